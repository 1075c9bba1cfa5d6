#!/usr/bin/env python3
"""Copies a model file to a CUDA device from one kind of host memory, and writes down what CUDA and torch say of it.

Usage: torch_cuda.py mapped|prefaulted|heap|pinned MODEL TRUTH

mapped      mmap'd, copied as pages come in
prefaulted  mmap'd with MAP_POPULATE first
heap        read into memory, then copied
pinned      read into page-locked memory, then copied

TRUTH gets a JSON line a stage: what cudaMemGetInfo says is in use on the device (everybody's), and torch's own
memory_allocated and memory_reserved, which leave out the context.
"""

import json
import mmap
import os
import sys
import time

import torch

from stages import reached

how, model, truth_path = sys.argv[1:]
# Pieces of a copy: no staging memory of the whole file's size.
PIECE = 64 << 20

if not torch.cuda.is_available():
    sys.exit("torch_cuda.py: torch sees no CUDA device")


def tell(stage):
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    line = {
        "stage": stage,
        "t_ns": time.monotonic_ns(),
        "pid": os.getpid(),
        "uuid": str(getattr(torch.cuda.get_device_properties(0), "uuid", "")),
        "used_bytes": total - free,
        "total_bytes": total,
        "allocated_bytes": torch.cuda.memory_allocated(),
        "reserved_bytes": torch.cuda.memory_reserved(),
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
    }
    with open(truth_path, "a") as file:
        file.write(json.dumps(line) + "\n")
    # Held until the profiler has looked: what was told is what it then finds.
    reached(stage)


# The context alone, with a first tensor that is small beside it.
first = torch.zeros(1, device="cuda")
tell("context")

size = os.path.getsize(model)
# Taken before anything is read, as servers do.
target = torch.empty(size, dtype=torch.uint8, device="cuda")
tell("allocated")

with open(model, "rb") as file:
    if how in ("mapped", "prefaulted"):
        flags = mmap.MAP_PRIVATE | (mmap.MAP_POPULATE if how == "prefaulted" else 0)
        view = mmap.mmap(file.fileno(), size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        source = torch.frombuffer(view, dtype=torch.uint8)
    else:
        source = torch.empty(size, dtype=torch.uint8, pin_memory=how == "pinned")
        into = memoryview(source.numpy())
        done = 0
        while done < size:
            got = file.readinto(into[done : done + PIECE])
            if not got:
                sys.exit(f"torch_cuda.py: {model} ends at {done} of {size} bytes")
            done += got
        del into
tell("source_ready")

for start in range(0, size, PIECE):
    target[start : start + PIECE].copy_(source[start : start + PIECE], non_blocking=how == "pinned")
torch.cuda.synchronize()
del source
tell("gpu_placed")
# The whole of it arrived.
checked = int(target[:: 1 << 12].sum(dtype=torch.int64).item())

# Taken and given back: the peak stands, and torch keeps nothing.
spare = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
tell("over")
del spare
torch.cuda.empty_cache()
tell("settled")
print("sum of every 4096th byte", checked)
