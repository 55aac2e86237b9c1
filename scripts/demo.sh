#!/usr/bin/env bash
# The demonstration behind `make demo`: what this machine can do, a small transformer trained on its best device without
# Spillway and within a third of the memory, the plan that was executed, and what other budgets would cost.
# usage: scripts/demo.sh        (after `make build`; writes its report below build/demo)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

spillway=build/release/bin/spillway
report=build/demo
budget=33%
heading() { printf '\n==== %s\n' "$*"; }

[ -x "$spillway" ] || {
  echo "demo: $spillway is not there; run \`make build\` first" >&2
  exit 1
}
mkdir -p "$report"

heading "this machine (spillway doctor --quick)"
"$spillway" doctor --quick
"$spillway" doctor --quick --json >"$report/doctor.json"

# A GPU needs more work than two cores of a CPU can do in a minute.
model=(--layers 4 --hidden 256 --heads 8 --ffn 704 --tokens 256 --vocabulary 512)
if grep -q '"device": "cuda' "$report/doctor.json"; then
  model=(--layers 8 --hidden 2048 --heads 16 --ffn 5632 --tokens 8192 --vocabulary 32000)
fi

heading "a small transformer within a third of its memory (spillway train --compare --budget $budget)"
"$spillway" train --compare --budget "$budget" --steps 10 "${model[@]}" --out "$report/train"

heading "the executed plan (spillway explain)"
"$spillway" explain "$report/train/plan.json" --profile "$report/train/profile.json"

heading "what other budgets would cost (spillway plan --curve)"
"$spillway" plan --profile "$report/train/profile.json" --curve --time-limit 2 \
  --out "$report/curve.json" --svg "$report/curve.svg"

heading "that plan from a file, from the first step on (spillway train --plan)"
"$spillway" train --plan "$report/train/plan.json" --steps 3 "${model[@]}"

heading "report"
echo "$report/doctor.json           this machine"
echo "$report/train/report.txt      budget, peaks and times, predicted and measured, bit comparison, offloaded and recomputed bytes"
echo "$report/train/train.json      the same for programs"
echo "$report/train/profile.json    the profile of the recording step"
echo "$report/train/plan.json       the plan"
echo "$report/curve.svg             what other budgets would cost; curve.json for programs"
echo "The measurements, on a GPU where there is one: make bench"
