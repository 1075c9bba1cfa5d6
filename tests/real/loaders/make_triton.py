#!/usr/bin/env python3
"""Writes a model repository for Triton Inference Server: DIR/stack, by the Python backend (triton_stack.py), its weights in
DIR/stack/1/weights.npy. The same bytes every time. Needs nothing but Python.

Usage: make_triton.py DIR [MIB]     (128 MiB of payload if not said; a multiple of 16)

Prints the payload in bytes.
"""

import pathlib
import shutil
import struct
import sys

from make_onnx import LAYER_BYTES, WIDTH, weights

CONFIGURATION = """\
name: "stack"
backend: "python"
max_batch_size: 0
input [ { name: "x", data_type: TYPE_FP32, dims: [ -1 ] } ]
output [ { name: "y", data_type: TYPE_FP32, dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""

version = pathlib.Path(sys.argv[1], "stack", "1")
layers, rest = divmod((int(sys.argv[2]) if len(sys.argv) > 2 else 128) << 20, LAYER_BYTES)
if rest or not layers:
    sys.exit("MIB must be a multiple of 16")
version.mkdir(parents=True, exist_ok=True)
(version.parent / "config.pbtxt").write_text(CONFIGURATION)
shutil.copyfile(pathlib.Path(__file__).with_name("triton_stack.py"), version / "model.py")
described = repr({"descr": "<f4", "fortran_order": False, "shape": (layers, WIDTH, WIDTH)}).encode()
described += b" " * (-(len(described) + 11) % 64) + b"\n"
with open(version / "weights.npy", "wb") as file:
    file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(described)) + described)
    file.writelines(weights(i) for i in range(layers))
print(layers * LAYER_BYTES)
