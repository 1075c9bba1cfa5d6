#!/bin/bash
# Makes the files of this folder again: a real torch.load(mmap=True) of a cold 1 GiB checkpoint, its tensors assigned to
# a module, and one forward through it. Needs what tests/real/install.sh needs, and 2 GiB of disk below TMPDIR, which
# should not be a tmpfs: there nothing is ever cold.
#
# Usage: reports/example/make.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
repository=$PWD
loaders=$(realpath -m "${STAGEMARK_REAL_LOADERS:-target/real-loaders}")
tests/real/install.sh "$loaders" torch
cargo build --release --locked
stagemark=$(realpath "${CARGO_TARGET_DIR:-target}")/release/stagemark

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp tests/real/loaders/*.py tests/real/stages.toml "$work"
cd "$work"
export PATH=$loaders/torch/bin:$PATH
python make_checkpoint.py . 1024
rm model.safetensors
python - <<'PYTHON'
import os

with open("model.pt", "rb") as file:
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
PYTHON
"$stagemark" run --quiet --out run --stages stages.toml -- python torch_assign.py model.pt
# The folder's own place says nothing to a reader.
"$stagemark" report run | sed -e "/^run  /d" -e "/^page  /d" -e "/^timeline  /d" > run/table.txt
cp run/stages.csv run/timeline.svg run/timeline.png run/table.txt "$repository/reports/example/"
