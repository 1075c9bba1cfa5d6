#!/usr/bin/env python3
"""torch.load(mmap=True), then load_state_dict(assign=True) on a module of the meta device.

The module takes over the mapped tensors: it is populated, and nothing was read. The first forward pays for it.

Usage: torch_assign.py model.pt
"""

import sys

import torch

from stack import first_response, on_meta
from stages import reached

module = on_meta(sys.argv[1])
reached("module_built")
weights = torch.load(sys.argv[1], mmap=True, weights_only=True)
reached("mapping_available")
module.load_state_dict(weights, assign=True)
reached("module_populated")
print("answer", first_response(module))
reached("first_response")
