#!/usr/bin/env python3
"""mistral.rs by its Python package: a model, and one token of an answer. Only the answer is told; the rest is printed, or to
be seen.

Usage: mistralrs_complete.py HF_DIRECTORY [model.gguf]     (the second: these weights, with the tokenizer of the first)
"""

import os
import sys

from mistralrs import CompletionRequest, Runner, Which

from stages import reached

directory, *gguf = sys.argv[1:]
if gguf:
    folder, name = os.path.split(gguf[0])
    which = Which.GGUF(tok_model_id=directory, quantized_model_id=folder, quantized_filename=name)
else:
    which = Which.Plain(model_id=directory)
runner = Runner(which=which)
answer = runner.send_completion_request(CompletionRequest(model="default", prompt="hi", max_tokens=1))
print("answer", repr(answer.choices[0].text), flush=True)
reached("first_response")
