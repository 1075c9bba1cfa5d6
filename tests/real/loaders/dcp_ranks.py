#!/usr/bin/env python3
"""torch.distributed.checkpoint's reader of safetensors, in every rank that torchrun starts.

Each rank loads all of the checkpoint into a module of its own. Stages are those of all ranks together: told by rank 0
once every rank is there. With `silent` nothing is told, and the ranks work for a second before they end.

Usage: torchrun --nproc-per-node N dcp_ranks.py DIR [silent]
"""

import pathlib
import sys
import time

import torch
import torch.distributed
import torch.distributed.checkpoint as dcp

from stack import LAYER_BYTES, Stack, first_response
from stages import reached

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()


silent = sys.argv[2:] == ["silent"]


def all_reached(stage):
    torch.distributed.barrier()
    if rank == 0 and not silent:
        reached(stage)
    torch.distributed.barrier()


payload = sum(path.stat().st_size for path in pathlib.Path(sys.argv[1]).glob("*.safetensors"))
with torch.device("meta"):
    module = Stack(payload // LAYER_BYTES)
module.to_empty(device="cpu")
all_reached("module_built")
dcp.load(module.state_dict(), storage_reader=dcp.HuggingFaceStorageReader(sys.argv[1]))
all_reached("module_populated")
# One write, so that two ranks' lines stay apart.
sys.stdout.write(f"answer {first_response(module)} of rank {rank}\n")
sys.stdout.flush()
all_reached("first_response")
end = time.monotonic() + silent
while time.monotonic() < end:
    first_response(module)
torch.distributed.destroy_process_group()
