"""A model of Triton's Python backend: a stack of square matrices, mapped from weights.npy beside it. What it is asked is
repeated up to its width.

The backend's interpreter heeds no PYTHONPATH; MODEL_PACKAGES names the folder that numpy is in.
"""

import os
import pathlib
import sys

sys.path.append(os.environ["MODEL_PACKAGES"])

import numpy
import triton_python_backend_utils as backend


class TritonPythonModel:
    def initialize(self, args):
        weights = numpy.load(pathlib.Path(__file__).with_name("weights.npy"), mmap_mode="r")
        # The backend takes plain arrays for an answer, and this class of the operands would be that of the results.
        self.weights = weights.view(numpy.ndarray)

    def answer(self, request):
        x = backend.get_input_tensor_by_name(request, "x").as_numpy()
        x = numpy.resize(x, self.weights.shape[-1])
        for layer in self.weights:
            x = numpy.maximum(layer @ x, 0)
        return backend.InferenceResponse([backend.Tensor("y", x)])

    def execute(self, requests):
        return [self.answer(request) for request in requests]
