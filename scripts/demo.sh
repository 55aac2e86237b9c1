#!/usr/bin/env bash
# The demonstration behind `make demo`: what this machine can do, a small transformer trained on its best device without
# and with Spillway, and the plan that was carried out.
# usage: scripts/demo.sh        (after `make build`; writes its report below build/demo)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

spillway=build/release/bin/spillway
report=build/demo
rules=examples/rules/demo.toml
heading() { printf '\n==== %s\n' "$*"; }

[ -x "$spillway" ] || {
  echo "demo: $spillway is not there; run \`make build\` first" >&2
  exit 1
}
mkdir -p "$report"

heading "this machine (spillway doctor --quick)"
"$spillway" doctor --quick
"$spillway" doctor --quick --json >"$report/doctor.json"

# A GPU wants more work than two cores of a CPU can do in a minute.
model=(--layers 4 --hidden 256 --heads 8 --ffn 704 --tokens 256 --vocabulary 512)
if grep -q '"device": "cuda' "$report/doctor.json"; then
  model=(--layers 8 --hidden 2048 --heads 16 --ffn 5632 --tokens 8192 --vocabulary 32000)
fi

heading "a small transformer without and with Spillway (spillway train --compare --rules $rules)"
"$spillway" train --compare --rules "$rules" --steps 10 "${model[@]}" --out "$report/train"

heading "the plan that was carried out (spillway plan, spillway explain)"
"$spillway" plan --profile "$report/train/profile.json" --rules "$rules" --out "$report/plan.json" >/dev/null
"$spillway" explain "$report/plan.json" --profile "$report/train/profile.json"

heading "that plan from a file, from the first step on (spillway train --plan)"
"$spillway" train --plan "$report/plan.json" --steps 3 "${model[@]}"

heading "report"
echo "$report/doctor.json           this machine"
echo "$report/train/report.txt      peaks, times, bits, and what was moved where"
echo "$report/train/train.json      the same for programs"
echo "$report/train/profile.json    what the first step showed"
echo "$report/plan.json             what was made of it"
echo "The measurements, on a GPU where there is one: make bench"
