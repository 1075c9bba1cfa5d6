#!/usr/bin/env python3
"""A program that loads a checkpoint and works, and says nothing of it: what its stages are is to be seen from outside.

Usage: silent.py torch model.pt | silent.py safetensors model.safetensors

torch.load reads into memory; safetensors' load_file for numpy maps, copies, and lets go. Then it answers for a second.
"""

import sys
import time


def torch_load(path):
    import torch

    return torch.load(path, weights_only=True)


def numpy_load_file(path):
    from safetensors.numpy import load_file

    return load_file(path)


weights = {"torch": torch_load, "safetensors": numpy_load_file}[sys.argv[1]](sys.argv[2])
end = time.monotonic() + 1
while time.monotonic() < end:
    answer = sum(float(tensor[0, 0]) for tensor in weights.values())
print("answer", answer)
