#!/usr/bin/env bash
# The demonstration behind `make demo`: what this machine can do, the transfer engine beside plain copies, and a small
# model trained in turns without and with a session.
# usage: scripts/demo.sh        (after `make build`; writes its report below build/demo)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=build/release/bin
report=build/demo
heading() { printf '\n==== %s\n' "$*"; }

for program in spillway bench_transfer bench_layers; do
  [ -x "$bin/$program" ] || {
    echo "demo: $bin/$program is not there; run \`make build\` first" >&2
    exit 1
  }
done
mkdir -p "$report"

heading "this machine (spillway doctor --quick)"
"$bin/spillway" doctor --quick
"$bin/spillway" doctor --quick --json >"$report/doctor.json"

heading "the transfer engine beside plain copies (bench_transfer --quick)"
"$bin/bench_transfer" --quick --out "$report/transfer.json" --markdown "$report/transfer.md"

heading "a small model without and with a session (bench_layers --small)"
"$bin/bench_layers" --small --out "$report/layers.json" --markdown "$report/layers.md"

heading "report"
echo "$report/doctor.json     this machine"
echo "$report/transfer.json   every figure with its spread"
echo "$report/transfer.md     its table"
echo "$report/layers.md       steps without and with a session, gradients compared"
echo "The full measurement, on a GPU where there is one: make bench"
