#!/usr/bin/env python3
"""Loaders that read safetensors by threads of their own, as a script uses them on a CPU: nothing is told but the first
response. Then it answers for a second.

Usage: readers.py fastsafetensors|runai [--log] model.safetensors...     (--log: with logging set up, as servers do)
"""

import logging
import sys
import time

import torch

from stack import LAYER_BYTES, Stack, first_response
from stages import reached


def fastsafetensors(paths):
    from fastsafetensors import fastsafe_open

    # Without GDS, where there is no device that could read by itself.
    with fastsafe_open(paths, nogds=True, device="cpu") as checkpoint:
        return {name: checkpoint.get_tensor(name) for name in checkpoint.keys()}


def runai(paths):
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_files(paths)
        return dict(streamer.get_tensors())


how, *paths = sys.argv[1:]
if "--log" in paths:
    paths.remove("--log")
    logging.basicConfig(level=logging.INFO)
weights = {"fastsafetensors": fastsafetensors, "runai": runai}[how](paths)
with torch.device("meta"):
    module = Stack(sum(weight.nbytes for weight in weights.values()) // LAYER_BYTES)
module.load_state_dict(weights, assign=True)
answer = first_response(module)
print("answer", answer, flush=True)
reached("first_response")
end = time.monotonic() + 1
while time.monotonic() < end:
    assert first_response(module) == answer
