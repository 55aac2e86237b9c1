#!/usr/bin/env bash
# The demonstration behind `make demo`: what this machine can do, and the transfer engine beside plain copies.
# usage: scripts/demo.sh        (after `make build`; writes its report below build/demo)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=build/release/bin
report=build/demo
heading() { printf '\n==== %s\n' "$*"; }

for program in spillway bench_transfer; do
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

heading "report"
echo "$report/doctor.json     this machine"
echo "$report/transfer.json   every figure with its spread"
echo "$report/transfer.md     the table above"
echo "The full measurement, on a GPU where there is one: make bench"
