#!/bin/bash
# What only a real card can say: launches a PyTorch loader under stagemark, its source mapped, pre-faulted, on the heap and
# pinned, and holds stagemark's figures of device memory against torch.cuda.memory and cudaMemGetInfo. Then copies to the
# card by every way of copy-paths; what comes back must be the file's bytes.
#
# Usage: tests/on_gpu.sh RESULTS
#   RESULTS     a folder: run folders, truths, the table `results.csv`, the card's facts `card.txt`, `copy-paths`
#   STAGEMARK   the built program (default target/release/stagemark)
#   PYTHON      an interpreter with a CUDA build of torch (default python3)
#   MODEL_MIB   size of the file that is copied (default 1024)
#
# It builds nothing and takes under 3 minutes on one card. Exit status: 0 all agrees, 1 something does not, 2 wrong
# usage, 3 there is no card, no torch, or no program here.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ $# != 1 ]; then
    echo "usage: tests/on_gpu.sh RESULTS" >&2
    exit 2
fi
results=$1
stagemark=${STAGEMARK:-$here/../target/release/stagemark}
python=${PYTHON:-python3}
mebibytes=${MODEL_MIB:-1024}

if ! [ -x "$stagemark" ]; then
    echo "on_gpu: $stagemark is no program: build it, or name it in STAGEMARK" >&2
    exit 3
fi
if ! nvidia-smi -L >/dev/null 2>&1 && ! [ -e /dev/nvidiactl ]; then
    echo "on_gpu: there is no card here: neither does nvidia-smi list one, nor is there /dev/nvidiactl" >&2
    exit 3
fi
if ! why=$(timeout 60 "$python" -c '
import sys
try:
    import torch
except ImportError as error:
    sys.exit(f"no torch: {error}")
if not torch.cuda.is_available():
    sys.exit(f"torch {torch.__version__} sees no CUDA device")' 2>&1); then
    echo "on_gpu: $python: $why" >&2
    exit 3
fi

mkdir -p "$results"
results=$(cd "$results" && pwd)
stagemark=$(realpath "$stagemark")
# One card is enough, and torch's device 0 is then it.
export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

{
    nvidia-smi --query-gpu=index,uuid,name,driver_version,memory.total,memory.used,memory.reserved,accounting.mode,mig.mode.current \
        --format=csv 2>&1 || true
    "$python" -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda)'
    "$stagemark" --version
} >"$results/card.txt"
"$stagemark" doctor >"$results/doctor.txt" 2>&1 || true

head -c "${mebibytes}M" /dev/urandom >"$scratch/model.bin"
for how in mapped prefaulted heap pinned; do
    rm -rf "$results/$how" "$results/$how.truth"
    stages=()
    for stage in context allocated source_ready gpu_placed over settled; do
        stages+=(--stage "$stage=notify")
    done
    timeout 60 "$stagemark" run --quiet --out "$results/$how" --artifact "$scratch/model.bin" "${stages[@]}" -- \
        "$python" "$here/real/loaders/torch_cuda.py" "$how" "$scratch/model.bin" "$results/$how.truth" \
        >"$results/$how.out" 2>&1 || echo "on_gpu: $how: exit status $?, see $results/$how.out" >&2
done

status=0
"$python" "$here/real/compare_device.py" "$results" || status=$?

# A quarter of the file at most: its bytes are compared, which takes longer than the copies.
head -c "$((mebibytes < 256 ? mebibytes : 256))M" "$scratch/model.bin" >"$scratch/copied.bin"
timeout 90 "$stagemark" copy-paths --to cuda --repeats 3 --out "$results/copy-paths" "raw:$scratch/copied.bin" \
    >"$results/copy-paths.txt" 2>&1 || { echo "on_gpu: copy-paths: exit status $?:"; cat "$results/copy-paths.txt"; } >&2
"$python" "$here/real/compare_copies.py" "$results/copy-paths/copy-paths.json" || status=1
exit "$status"
