#!/usr/bin/env python3
"""safetensors.numpy.load_file: the file is mapped, copied into arrays, and unmapped, in one call.

Usage: safetensors_numpy.py model.safetensors
"""

import sys

import numpy
from safetensors.numpy import load_file

from stages import reached

reached("module_built")
weights = load_file(sys.argv[1])
reached("module_populated")
x = numpy.ones(next(iter(weights.values())).shape[1], dtype=numpy.float32)
for i in range(len(weights)):
    x = numpy.maximum(weights[f"layers.{i}.weight"] @ x, 0)
print("answer", float(x.sum(dtype=numpy.float64)))
reached("first_response")
