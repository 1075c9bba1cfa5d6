#!/usr/bin/env python3
"""transformers as most scripts use it: from_pretrained, then generate. Only the answer is told; the rest is to be seen.

Usage: transformers_generate.py MODEL_DIRECTORY
"""

import sys

from transformers import AutoModelForCausalLM, AutoTokenizer

from stages import reached

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
prompt = tokenizer("hi", return_tensors="pt")
answer = model.generate(**prompt, max_new_tokens=1, do_sample=False)
print("answer", answer[0, prompt["input_ids"].shape[1]:].tolist(), flush=True)
reached("first_response")
