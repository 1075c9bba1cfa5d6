#!/bin/bash
# Installs the Python packages of the real-loader tests into ROOT/venv, as pinned in requirements.txt.
# Usage: tests/real/install.sh ROOT
# Run again, it does nothing unless one of these files changed. Needs python3 (3.11 or later), cc and binutils.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${1:?usage: install.sh ROOT}
mkdir -p "$root"
root=$(cd "$root" && pwd)
venv=$root/venv
# Written last, so that an interrupted installation starts afresh. Any pip and any python3 that is replaced counts too.
stamp=$venv/installed
wanted=$({ cat "$here/requirements.txt" "$here/cuda_stubs.py" "$here/install.sh"; python3 --version; } | sha256sum)

if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    echo "real loaders: already in $venv"
    exit 0
fi

rm -rf "$venv"
# Debian's python3 has venv without its pip, until python3-venv is installed.
if ! python3 -c 'import ensurepip' 2>/dev/null; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "real loaders: python3 has no ensurepip; install python3-venv" >&2
        exit 1
    fi
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends python3-venv
fi
python3 -m venv "$venv"
# Byte code is compiled at first import and for the modules that are used only: by the check below.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --only-binary :all: \
    --requirement "$here/requirements.txt"
"$venv/bin/python" "$here/cuda_stubs.py" "$(echo "$venv"/lib/python3*/site-packages/torch/lib)"
env -u PYTHONDONTWRITEBYTECODE "$venv/bin/python" - <<'END'
import numpy, safetensors.numpy, safetensors.torch, torch
assert not torch.cuda.is_available()
with torch.device("meta"):
    torch.nn.Linear(2, 2).to_empty(device="cpu").load_state_dict(torch.nn.Linear(2, 2).state_dict(), assign=True)
print(f"real loaders: torch {torch.__version__}, safetensors {safetensors.__version__}, numpy {numpy.__version__}")
END
echo "$wanted" > "$stamp"
