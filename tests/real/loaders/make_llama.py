#!/usr/bin/env python3
"""Writes a small Llama with random weights as servers take it: DIR/hf, Hugging Face's layout (sharded safetensors in
bfloat16, config, tokenizer), and DIR/llama.gguf (float16). The same bytes every time. Needs nothing but Python.

Usage: make_llama.py DIR

Prints the payload of each in bytes: `hf N`, `gguf N`.

A weight has a random sign and a magnitude in [1/64, 1/32): its exponent is a constant, so that a few operations on
large integers make a whole tensor of random bytes into numbers that a model of this width can add up.
"""

import json
import pathlib
import random
import struct
import sys

LAYERS, WIDTH, FEED_FORWARD, HEADS, KV_HEADS, CONTEXT = 6, 1024, 2816, 16, 4, 2048
KV_WIDTH = WIDTH // HEADS * KV_HEADS
SHARDS = 3

# GPT-2's alphabet: every byte as a printable character. A merge, so that there is one; fillers up to a round number.
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
ALPHABET = [*map(chr, PRINTABLE), *(chr(256 + i) for i in range(256 - len(PRINTABLE)))]
SPECIAL = ["<unk>", "<s>", "</s>"]
TOKENS = [*SPECIAL, *sorted(ALPHABET), "he"]
TOKENS += [f"filler{i}" for i in range(len(TOKENS), 4096)]

# name in Hugging Face's layout, name in GGUF, rows (none: a vector), columns
TENSORS = [("model.embed_tokens.weight", "token_embd.weight", len(TOKENS), WIDTH)]
for i in range(LAYERS):
    TENSORS += [
        (f"model.layers.{i}.{theirs}.weight", f"blk.{i}.{gguf}.weight", rows, columns)
        for theirs, gguf, rows, columns in [
            ("input_layernorm", "attn_norm", None, WIDTH),
            ("self_attn.q_proj", "attn_q", WIDTH, WIDTH),
            ("self_attn.k_proj", "attn_k", KV_WIDTH, WIDTH),
            ("self_attn.v_proj", "attn_v", KV_WIDTH, WIDTH),
            ("self_attn.o_proj", "attn_output", WIDTH, WIDTH),
            ("post_attention_layernorm", "ffn_norm", None, WIDTH),
            ("mlp.gate_proj", "ffn_gate", FEED_FORWARD, WIDTH),
            ("mlp.up_proj", "ffn_up", FEED_FORWARD, WIDTH),
            ("mlp.down_proj", "ffn_down", WIDTH, FEED_FORWARD),
        ]
    ]
TENSORS += [("model.norm.weight", "output_norm.weight", None, WIDTH), ("lm_head.weight", "output.weight", len(TOKENS), WIDTH)]


def weights(seed, count, exponent, mantissa_bits):
    """`count` 16-bit numbers of this format, 2^-6 times one to two in magnitude."""
    noise = int.from_bytes(random.Random(seed).randbytes(2 * count), "little")
    every = int.from_bytes(b"\x01\x00" * count, "little")
    mask = 0x8000 | ((1 << mantissa_bits) - 1)
    return (noise & every * mask | every * (exponent << mantissa_bits)).to_bytes(2 * count, "little")


def hugging_face(directory):
    directory.mkdir(parents=True, exist_ok=True)
    payload, where, written = 0, {}, 0
    total = sum((rows or 1) * columns * 2 for _, _, rows, columns in TENSORS)
    pending = list(TENSORS)
    for shard in range(1, SHARDS + 1):
        header, data, offset = {"__metadata__": {"format": "pt"}}, [], 0
        while pending and (shard == SHARDS or written < total * shard // SHARDS):
            name, _, rows, columns = pending.pop(0)
            count = (rows or 1) * columns
            # bfloat16's exponent of 2^-6, and its one.
            data.append(weights(name, count, 127 - 6, 7) if rows else b"\x80\x3f" * count)
            shape = [rows, columns] if rows else [columns]
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + 2 * count]}
            where[name] = f"model-{shard:05}-of-{SHARDS:05}.safetensors"
            offset += 2 * count
            written += 2 * count
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(directory / f"model-{shard:05}-of-{SHARDS:05}.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.writelines(data)
        payload += offset

    def say(name, value):
        (directory / name).write_text(json.dumps(value, indent=1))

    say("model.safetensors.index.json", {"metadata": {"total_size": payload}, "weight_map": where})
    say("config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "dtype": "bfloat16",
        "vocab_size": len(TOKENS), "hidden_size": WIDTH, "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "head_dim": WIDTH // HEADS, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
        "bos_token_id": 1, "eos_token_id": 2,
    })
    say("generation_config.json", {"bos_token_id": 1, "eos_token_id": 2})
    say("tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": True} for i, token in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "vocab": {token: i for i, token in enumerate(TOKENS)}, "merges": [["h", "e"]],
        },
    })
    say("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>",
        "model_max_length": CONTEXT, "clean_up_tokenization_spaces": False,
    })
    return payload


UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
F32, F16 = 0, 1
ALIGNMENT = 32


def gguf_string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_value(kind, value):
    if kind == STRING:
        return gguf_string(value)
    return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], value)


def gguf(path):
    ordinary, unknown, control = 1, 2, 3
    values = [
        ("general.architecture", STRING, "llama"),
        ("general.name", STRING, "random llama"),
        ("general.file_type", UINT32, 1),
        ("llama.context_length", UINT32, CONTEXT),
        ("llama.embedding_length", UINT32, WIDTH),
        ("llama.block_count", UINT32, LAYERS),
        ("llama.feed_forward_length", UINT32, FEED_FORWARD),
        ("llama.attention.head_count", UINT32, HEADS),
        ("llama.attention.head_count_kv", UINT32, KV_HEADS),
        ("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
        ("llama.rope.dimension_count", UINT32, WIDTH // HEADS),
        ("llama.vocab_size", UINT32, len(TOKENS)),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.pre", STRING, "gpt-2"),
        ("tokenizer.ggml.tokens", (ARRAY, STRING), TOKENS),
        ("tokenizer.ggml.token_type", (ARRAY, INT32), [unknown, control, control] + [ordinary] * (len(TOKENS) - 3)),
        ("tokenizer.ggml.merges", (ARRAY, STRING), ["h e"]),
        ("tokenizer.ggml.unknown_token_id", UINT32, 0),
        ("tokenizer.ggml.bos_token_id", UINT32, 1),
        ("tokenizer.ggml.eos_token_id", UINT32, 2),
        ("tokenizer.ggml.add_bos_token", BOOL, True),
        ("tokenizer.chat_template", STRING, "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"),
    ]
    head = [b"GGUF", struct.pack("<IQQ", 3, len(TENSORS), len(values))]
    for key, kind, value in values:
        head.append(gguf_string(key))
        if isinstance(kind, tuple):
            head.append(struct.pack("<IIQ", ARRAY, kind[1], len(value)))
            head.extend(gguf_value(kind[1], element) for element in value)
        else:
            head.append(struct.pack("<I", kind) + gguf_value(kind, value))
    payload = offset = 0
    for _, name, rows, columns in TENSORS:
        size = rows * columns * 2 if rows else columns * 4
        # The fastest dimension first.
        shape = [columns, rows] if rows else [columns]
        head.append(gguf_string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape))
        head.append(struct.pack("<IQ", F16 if rows else F32, offset))
        payload += size
        offset += size + -size % ALIGNMENT
    head = b"".join(head)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for _, name, rows, columns in TENSORS:
            # float16's exponent of 2^-6; vectors are float32.
            data = weights(name, rows * columns, 15 - 6, 10) if rows else struct.pack("<f", 1.0) * columns
            file.write(data + bytes(-len(data) % ALIGNMENT))
    return payload


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    print("hf", hugging_face(folder / "hf"))
    print("gguf", gguf(folder / "llama.gguf"))
