#!/usr/bin/env python3
"""torch.load to the heap, then load_state_dict(assign=True): the file is read, never mapped.

Usage: torch_heap.py model.pt
"""

import sys

import torch

from stack import first_response, on_meta
from stages import reached

module = on_meta(sys.argv[1])
reached("module_built")
weights = torch.load(sys.argv[1], mmap=False, weights_only=True)
module.load_state_dict(weights, assign=True)
reached("module_populated")
print("answer", first_response(module))
reached("first_response")
