#!/usr/bin/env python3
"""Writes one set of weights as DIR/model.pt and DIR/model.safetensors; the same weights every time.

Usage: make_checkpoint.py DIR [MIB]     (256 MiB of payload if not said; a multiple of 16)

Prints the payload in bytes.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file

from stack import LAYER_BYTES, WIDTH

directory = pathlib.Path(sys.argv[1])
mebibytes = int(sys.argv[2]) if len(sys.argv) > 2 else 256
layers, rest = divmod(mebibytes << 20, LAYER_BYTES)
if rest or not layers:
    sys.exit("MIB must be a multiple of 16")
directory.mkdir(parents=True, exist_ok=True)
generator = torch.Generator().manual_seed(0)
weights = {
    f"layers.{i}.weight": torch.randn(WIDTH, WIDTH, generator=generator) * (2 / WIDTH) ** 0.5 for i in range(layers)
}
torch.save(weights, directory / "model.pt")
save_file(weights, directory / "model.safetensors")
print(layers * LAYER_BYTES)
