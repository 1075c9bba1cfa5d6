#!/usr/bin/env python3
"""Writes the weights of make_checkpoint.py as torch.distributed.checkpoint does: two safetensors shards in DIR.

Usage: make_dcp.py DIR [MIB]     (128 MiB of payload if not said; a multiple of 16)

Prints the payload in bytes.
"""

import pathlib
import sys

import torch
import torch.distributed.checkpoint as dcp

from stack import LAYER_BYTES, WIDTH

directory = pathlib.Path(sys.argv[1])
layers = ((int(sys.argv[2]) if len(sys.argv) > 2 else 128) << 20) // LAYER_BYTES
generator = torch.Generator().manual_seed(0)
weights = {
    f"layers.{i}.weight": torch.randn(WIDTH, WIDTH, generator=generator) * (2 / WIDTH) ** 0.5 for i in range(layers)
}
shards = {name: 1 + 2 * i // layers for i, name in enumerate(weights)}
writer = dcp.HuggingFaceStorageWriter(str(directory), fqn_to_index_mapping=shards)
dcp.save(weights, storage_writer=writer, no_dist=True)
print(layers * LAYER_BYTES)
