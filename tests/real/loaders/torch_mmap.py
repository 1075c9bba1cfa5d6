#!/usr/bin/env python3
"""torch.load(mmap=True), then load_state_dict: every weight is copied out of the mapping into the module.

Usage: torch_mmap.py model.pt
"""

import sys

import torch

from stack import first_response, on_meta
from stages import reached

module = on_meta(sys.argv[1]).to_empty(device="cpu")
reached("module_built")
weights = torch.load(sys.argv[1], mmap=True, weights_only=True)
reached("mapping_available")
module.load_state_dict(weights)
reached("module_populated")
print("answer", first_response(module))
reached("first_response")
