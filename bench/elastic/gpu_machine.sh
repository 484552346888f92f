#!/usr/bin/env bash
# Run the benchmarks that need many cores or a GPU, and fault schedules on the remaining cores, within nine minutes on a machine
# with 16 cores and one GPU: `OUT=folder bench/elastic/gpu_machine.sh`. The table comes last; $OUT has the logs.
# PYTHON, DEVICE=cpu, SECONDS_OF_KILLS, ROUNDS, LIMIT (of each lane, in seconds) and CORES_A to CORES_C make a small trial of it.
set -u
cd "$(dirname "$0")/../.."
OUT=${OUT:-build/gpu-machine} PYTHON=${PYTHON:-python3} DEVICE=${DEVICE:-cuda}
SECONDS_OF_KILLS=${SECONDS_OF_KILLS:-60} ROUNDS=${ROUNDS:-2} LIMIT=${LIMIT:-515} SEEDS=${SEEDS:-0-499}
CORES_A=${CORES_A:-0-7} CORES_B=${CORES_B:-8-11} CORES_C=${CORES_C:-12-15} PARALLEL=${PARALLEL:-9}
export PYTHONPATH=src OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1 CUBLAS_WORKSPACE_CONFIG=:4096:8
mkdir -p "$OUT"
begun=$SECONDS
left() { echo $((LIMIT - (SECONDS - begun))); }
bench() { # CORES LOG ARGUMENTS: one benchmark, within the time that is left
    local cores=$1 log=$2
    shift 2
    if [ "$(left)" -lt 20 ]; then echo "== no time for $*" >>"$OUT/$log" && return; fi
    echo "== after $((SECONDS - begun)) s: $*" >>"$OUT/$log"
    timeout -k 5 "$(left)" taskset -c "$cores" "$PYTHON" -m bench.elastic.gpu "$@" >>"$OUT/$log" 2>&1
    echo "== after $((SECONDS - begun)) s: exit $?" >>"$OUT/$log"
}
faults() { # CORES LOG PARALLEL SEEDS...
    local cores=$1 log=$2 parallel=$3
    shift 3
    if [ "$(left)" -lt 40 ]; then echo "== no time for fault schedules" >>"$OUT/$log" && return; fi
    echo "== after $((SECONDS - begun)) s" >>"$OUT/$log"
    timeout -k 5 $(($(left) + 10)) taskset -c "$cores" "$PYTHON" -m tests.elastic.fault_schedules "$@" \
        --parallel "$parallel" --seconds $(($(left) - 25)) >>"$OUT/$log" 2>&1
}
half=$((${SEEDS#*-} / 5 * 3))

( # lane A: the goodput first, on eight cores
    bench "$CORES_A" goodput.log C11 --device cpu --fleets 5 --seconds "$SECONDS_OF_KILLS" --keep "$OUT"
    bench "$CORES_A" goodput.log C11 --device cpu --fleets 4 --seconds "$SECONDS_OF_KILLS" --keep "$OUT"
    faults "$CORES_A" faults-1.log "$PARALLEL" "${SEEDS%-*}-$half"
) &
( # lane B: what needs the GPU, one after the other but for the small models
    for model in convolutions gpt lstm; do bench "$CORES_B" "gpu.log" identity --device "$DEVICE" --models $model & done
    wait
    bench "$CORES_B" gpu.log C17 --device "$DEVICE" --rounds "$ROUNDS" --packages lightning
    bench "$CORES_B" gpu.log C17 --device "$DEVICE" --rounds "$ROUNDS" --packages transformers
    bench "$CORES_B" gpu.log C16 --device "$DEVICE" --rounds 1 --only-share
) &
( # lane C: the same comparisons with the model on the CPU, then faults
    bench "$CORES_C" cpu.log C16 --device cpu --rounds 1 --only-share
    faults "$CORES_C" faults-2.log $(((PARALLEL + 1) / 2)) "$((half + 1))-${SEEDS#*-}"
) &
wait

cat "$OUT"/faults-*.log >"$OUT/faults.log" && rm "$OUT"/faults-[12].log
echo "after $((SECONDS - begun)) s on $(nproc) cores:"
grep -h -A12 "^seed [0-9]* FAILED" "$OUT/faults.log" | tail -60
grep -h -E "Error|did not run" "$OUT"/{goodput,gpu,cpu}.log | sort | uniq -c | tail -12
grep -h -E "^== |^[CGS][0-9]+w? " "$OUT"/{goodput,gpu,cpu}.log
echo "fault schedules: $(grep -c '^seed [0-9]* passed: ' "$OUT/faults.log") passed, $(grep -c '^seed [0-9]* FAILED: ' "$OUT/faults.log") failed"
