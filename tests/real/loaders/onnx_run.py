#!/usr/bin/env python3
"""ONNX Runtime as a script uses it: a session, and runs of it. Nothing is told but the first response; then it answers for
a second.

Usage: onnx_run.py MODEL.onnx [--info] [KEY=VALUE]...     (--info: its log at INFO; entries of the session's configuration)
"""

import sys
import time

import numpy
import onnxruntime

from stages import reached

options = onnxruntime.SessionOptions()
for argument in sys.argv[2:]:
    if argument == "--info":
        options.log_severity_level = 1
    else:
        options.add_session_config_entry(*argument.split("=", 1))
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
(given,) = session.get_inputs()
question = {given.name: numpy.ones(given.shape, dtype=numpy.float32)}


def answer():
    return float(session.run(None, question)[0].sum(dtype=numpy.float64))


first = answer()
print("answer", first, flush=True)
reached("first_response")
end = time.monotonic() + 1
while time.monotonic() < end:
    assert answer() == first
