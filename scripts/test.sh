#!/usr/bin/env bash
# Configures, builds and tests the given presets one after the other, then prints one line for each. With release come
# the Python package and its tests.
# usage: scripts/test.sh <preset>...     (release, debug, asan, tsan)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ $# -gt 0 ] || {
  echo "usage: scripts/test.sh <preset>...   (release, debug, asan, tsan)" >&2
  exit 2
}

# Some virtual machines say that they have AMX and do not run it: a product in bfloat16 ends with an illegal instruction.
multiplies() {
  ("${SPILLWAY_VENV:-.venv}/bin/python" -c 'import torch; x = torch.ones(256, 256, dtype=torch.bfloat16); x @ x') \
    >/dev/null 2>&1
}
if [ -z "${ONEDNN_MAX_CPU_ISA:-}" ] && ! multiplies; then
  export ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16
  if multiplies; then
    echo "test: this machine does not run the AMX it has; tests run with ONEDNN_MAX_CPU_ISA=$ONEDNN_MAX_CPU_ISA"
  else
    unset ONEDNN_MAX_CPU_ISA
  fi
fi

# Tests run side by side; threads of OpenMP that spin would take the cores from each other.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

# Tests with the label long run in make test-long.
chosen=()
[ "${SPILLWAY_TEST_LONG:-}" = 1 ] || chosen=(-LE '^long$')

summary=()
failed=0

# Runs one preset to the end or to its first failing step, and adds its line to the summary.
test_preset() {
  local preset=$1 start=$SECONDS outcome log=build/$1/test.log
  printf '\n==== %s: build\n' "$preset"
  if ! { cmake --preset "$preset" && cmake --build --preset "$preset"; }; then
    outcome="FAILED to build"
    failed=1
  else
    printf '\n==== %s: test\n' "$preset"
    if ctest --preset "$preset" "${chosen[@]}" 2>&1 | tee "$log"; then
      outcome="passed"
    else
      outcome="FAILED"
      failed=1
    fi
    outcome+=", $(sed -nE 's/.*, ([0-9]+) tests? failed out of ([0-9]+)/\2 tests, \1 failed/p' "$log")"
    local skipped
    skipped=$(grep -c '\*\*\*Skipped' "$log" || true)
    [ "$skipped" = 0 ] || outcome+=", $skipped skipped"
  fi
  summary+=("$(printf '%-8s %s (%d s)' "$preset" "$outcome" "$((SECONDS - start))")")
}

# The Python package, which is built like the preset release.
test_python() {
  local start=$SECONDS outcome log=build/python/test.log
  printf '\n==== python: build and test\n'
  if ! scripts/python_package.sh; then
    outcome="FAILED to build"
    failed=1
  elif "${SPILLWAY_VENV:-.venv}/bin/python" -m pytest -q -p no:cacheprovider -n "$(nproc)" --dist worksteal 2>&1 |
    tee "$log"; then
    outcome="passed, $(tail -n 1 "$log")"
  else
    outcome="FAILED, $(tail -n 1 "$log")"
    failed=1
  fi
  summary+=("$(printf '%-8s %s (%d s)' python "$outcome" "$((SECONDS - start))")")
}

for preset in "$@"; do
  test_preset "$preset"
  if [ "$preset" = release ]; then test_python; fi
done

printf '\n==== summary\n'
printf '%s\n' "${summary[@]}"
if [ "$failed" = 0 ]; then
  echo "all tests passed"
else
  echo "some tests FAILED, see above"
fi
exit "$failed"
