#!/usr/bin/env python3
"""safetensors.safe_open as most loaders use it: torch tensors that stay where the file is mapped, until first use.

Usage: safetensors_lazy.py model.safetensors
"""

import sys

from safetensors import safe_open

from stack import first_response, on_meta
from stages import reached

module = on_meta(sys.argv[1])
reached("module_built")
with safe_open(sys.argv[1], framework="pt") as checkpoint:
    reached("mapping_available")
    weights = {name: checkpoint.get_tensor(name) for name in checkpoint.keys()}
    module.load_state_dict(weights, assign=True)
    reached("module_populated")
    print("answer", first_response(module))
    reached("first_response")
