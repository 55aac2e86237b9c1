#!/usr/bin/env bash
# What needs a CUDA device, on a machine that has one: tests, random programs, tests under compute-sanitizer, runs of
# several ranks on one GPU, and the benchmarks whose results are kept. Each command writes a log, and one line here.
# usage: scripts/gpu.sh <part>...     (tests, stress, sanitize, ranks, bench; or names such as sanitize:moe_cuda_test)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

bin=${SPILLWAY_BIN:-build/release/bin}
python=${SPILLWAY_PYTHON:-${SPILLWAY_VENV:-.venv}/bin/python}
out=${SPILLWAY_OUT:-build/gpu}
machine=${SPILLWAY_MACHINE:-gpu}
# Without it matrix products may differ from run to run.
export CUBLAS_WORKSPACE_CONFIG=${CUBLAS_WORKSPACE_CONFIG:-:4096:8}

[ $# -gt 0 ] || {
  sed -n 's/^# \{0,1\}//; 2,4p' "$0" >&2
  exit 2
}
"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || {
  echo "gpu: torch finds no CUDA device on this machine, so there is nothing to run" >&2
  exit 1
}
mkdir -p "$out"
failed=0

# Whether the name, or all of its part, was requested.
wanted() {
  local each
  for each in "${asked[@]}"; do
    if [ "$each" = "$1" ] || [ "$each" = "${1%%:*}" ]; then return 0; fi
  done
  return 1
}

# Runs a command under a name, if that was requested. Prints the tests that skip, such as for want of a second GPU.
run() {
  local name=$1 log start=$SECONDS code
  shift
  wanted "$name" || return 0
  log=$out/${name//[:\/]/-}.log
  "$@" >"$log" 2>&1
  code=$?
  # GoogleTest says so at its end, and exits with 0.
  if [ "$code" = 0 ] && sed 's/\x1b\[[0-9;]*m//g' "$log" | grep -qE '^\[  SKIPPED \] [0-9]+ test'; then
    printf '%-36s skipped some, see %s (%d s)\n' "$name" "$log" "$((SECONDS - start))"
  elif [ "$code" = 0 ]; then
    printf '%-36s passed (%d s)\n' "$name" "$((SECONDS - start))"
  else
    printf '%-36s FAILED with %d, see %s (%d s)\n' "$name" "$code" "$log" "$((SECONDS - start))"
    tail -n 15 "$log"
    failed=1
  fi
}

# Random programs on the GPU: seeds, and what they may do besides common operators (tests/torch/stress/features.cpp).
stress() {
  local seeds=$1
  shift
  env SPILLWAY_TEST_DEVICE=cuda SPILLWAY_TEST_SEED="$seeds" OMP_NUM_THREADS=1 "$@" "$bin/tests/stress_test" \
    --gtest_filter='Policies/*:Stress.*'
}

# The same tests with every memory access checked. NCCL and torch probe for what a driver can do: calls of
# the API that fail on purpose are no errors of a kernel.
sanitized() {
  local tool=$1
  shift
  compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 9 --target-processes all "$@"
}

result() {
  local name=$1
  shift
  "$@" --out "$out/$name-$machine.json" --markdown "$out/$name-$machine.md" ${SPILLWAY_COMMIT:+--commit "$SPILLWAY_COMMIT"}
}

# Four or eight ranks on one GPU: gloo moves CUDA tensors.
trainer() {
  local ranks=$1
  shift
  OMP_NUM_THREADS=1 "$python" -m torch.distributed.run --standalone --nproc-per-node "$ranks" -m spillway train \
    --device cuda --steps 16 --compare --digest "$@"
}

pipeline_budget() {
  trainer 4 --layers 8 --hidden 512 --tokens 1024 --set parallel.pipeline=4 --set train.micro_batches=8 \
    --set train.precision=bf16 --set model.dropout=0.1 --budget "$1"
}

asked=("$@")
for name in cuda_test session_cuda_test session_streams_cuda_test training_cuda_test moe_cuda_test nccl_test; do
  run "tests:$name" "$bin/tests/$name"
done
run tests:python "$python" -m pytest -q -p no:cacheprovider -m gpu -rs python/tests

# Steps that only offload do not see what .data writes after the recording step.
run stress:programs stress "${SPILLWAY_TEST_SEED:-0-59}" SPILLWAY_TEST_WITHOUT=data_write_late
run stress:streams stress "${SPILLWAY_TEST_SEED:-0-59}" \
  SPILLWAY_TEST_ONLY=streams,views,in_place,dropout,branches,micro_batches

for name in cuda_test session_cuda_test training_cuda_test moe_cuda_test nccl_test; do
  run "sanitize:$name" sanitized memcheck "$bin/tests/$name"
done
# Kernels run one after another here, so one window and action of each program is enough.
run sanitize:session_streams_cuda_test sanitized memcheck "$bin/tests/session_streams_cuda_test" \
  --gtest_filter='*ASession*_NoWindow:*offload_NoWindow:TwoStreamsOfReplays*:CudaOutOfMemory*:EmptiedCache*-*Verified*'
run sanitize:race sanitized racecheck "$bin/tests/cuda_test"
run sanitize:race-streams sanitized racecheck "$bin/tests/session_streams_cuda_test" \
  --gtest_filter='*OwnerSavesFirst_*_NoWindow:*SlowGuestReadsFirst_*_NoWindow:TwoStreamsOfReplays*'
# Tests that block a stream until another one continues do not end under initcheck.
run sanitize:init sanitized initcheck "$bin/tests/cuda_test" --gtest_filter='CudaDevice*:CudaTransfer.*-*OnceWarm*'

run ranks:pipeline trainer 4 --set parallel.pipeline=4 --set train.precision=bf16 --set model.dropout=0.1
run ranks:budget pipeline_budget 90%
run ranks:tensor trainer 4 --set parallel.tensor=2 --set parallel.pipeline=2 --set parallel.recompute_interval=1 \
  --set parallel.recompute_partition=true
run ranks:experts trainer 4 --set parallel.tensor=2 --set parallel.expert=2 --set model.experts=4
run ranks:paddle "$python" examples/seeds/paddle/run.py --torchrun --size full --device cuda --steps 8 \
  --set train.micro_batches=4 --out "$out/paddle"
# At its full size it takes more than the 140 GB of one device for all ranks.
run ranks:megatron "$python" examples/seeds/megatron/run.py --torchrun --size full --device cuda --steps 8 \
  --set model.layers=8 --set 'model.moe_layers="1,3,5,7"' --set model.tokens=2048 --set train.micro_batches=4 \
  --rows all,expert_fc1,moe_act --out "$out/megatron"

run bench:transfer result transfer "$bin/bench_transfer"
run bench:layers result layers "$bin/bench_layers"
run bench:budget result budget "$bin/bench_budget"
run bench:budget-long result budget-long "$bin/bench_budget" --model long
run bench:budget-moe result budget-moe "$bin/bench_budget" --model moe
run bench:pipeline result pipeline "$bin/bench_pipeline"
run bench:pipeline-experts env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
  "$bin/bench_pipeline" --plans experts,recompute,recompute_offload,recompute_partition,recompute_all --out "$out/pipeline-experts-$machine.json" \
  --markdown "$out/pipeline-experts-$machine.md"
run bench:overlap result overlap "$bin/bench_overlap" --links 25,50,200
run bench:python result python-layers "$python" bench/python/layers.py
run bench:peers result python-peers "$python" bench/python/peers.py --repeats 20
# With a kernel for each elementwise operator that is repeated.
run bench:layers-unfused result layers-unfused "$bin/bench_layers" --no-fuse --row cheap --row cheap_small --row mlp
run bench:python-unfused result python-unfused "$python" bench/python/layers.py --no-fuse --row cheap --row cheap_small
run bench:saves result saves "$bin/bench_saves"

exit "$failed"
