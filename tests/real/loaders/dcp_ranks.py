#!/usr/bin/env python3
"""torch.distributed.checkpoint's reader of safetensors, in every rank that torchrun starts.

Each rank loads all of the checkpoint into a module of its own. Stages are those of all ranks together: told by rank 0
once every rank is there.

Usage: torchrun --nproc-per-node N dcp_ranks.py DIR
"""

import pathlib
import sys

import torch
import torch.distributed
import torch.distributed.checkpoint as dcp

from stack import LAYER_BYTES, Stack, first_response
from stages import reached

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()


def all_reached(stage):
    torch.distributed.barrier()
    if rank == 0:
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
torch.distributed.destroy_process_group()
