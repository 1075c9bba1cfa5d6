#!/usr/bin/env python3
"""Writes one model as ONNX in two forms, the same weights every time: DIR/external.onnx, whose weights are in
DIR/external.onnx.data, and DIR/inline.onnx, which has them in itself. A stack of square matrices, each with a ReLU behind
it. Needs nothing but Python.

Usage: make_onnx.py DIR [MIB]     (128 MiB of payload if not said; a multiple of 16)

Prints the payload in bytes.
"""

import pathlib
import random
import sys

WIDTH = 2048
LAYER_BYTES = WIDTH * WIDTH * 4
FLOAT, EXTERNAL = 1, 1


def varint(value):
    low = bytearray()
    while value > 0x7F:
        low.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(low) + bytes([value])


def field(number, value):
    """A field of a protocol buffers message: an integer, a string, or bytes (a message within)."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def node(operator, inputs, output):
    return b"".join(field(1, name) for name in inputs) + field(2, output) + field(4, operator)


def tensor(name, *data):
    return field(1, WIDTH) * 2 + field(2, FLOAT) + field(8, name) + b"".join(data)


def external(file, offset, length):
    entries = {"location": file, "offset": str(offset), "length": str(length)}
    pairs = (field(13, field(1, key) + field(2, value)) for key, value in entries.items())
    return b"".join(pairs) + field(14, EXTERNAL)


def value(name):
    shape = field(1, field(1, 1)) + field(1, field(1, WIDTH))
    return field(1, name) + field(2, field(1, field(1, FLOAT) + field(2, shape)))


def model(tensors, layers):
    graph = b""
    for i in range(layers):
        graph += field(1, node("MatMul", [f"x{i}", f"w{i}"], f"y{i}")) + field(1, node("Relu", [f"y{i}"], f"x{i + 1}"))
    graph += field(2, "stack") + b"".join(field(5, tensor) for tensor in tensors)
    graph += field(11, value("x0")) + field(12, value(f"x{layers}"))
    return field(1, 8) + field(2, "make_onnx.py") + field(7, graph) + field(8, field(2, 17))


def weights(layer):
    """Random signs and mantissas with one exponent: magnitudes from 2^-6 to 2^-5, little-endian binary32."""
    count = WIDTH * WIDTH
    noise = int.from_bytes(random.Random(layer).randbytes(4 * count), "little")
    every = int.from_bytes(b"\x01\x00\x00\x00" * count, "little")
    return (noise & every * 0x807FFFFF | every * ((127 - 6) << 23)).to_bytes(4 * count, "little")


if __name__ == "__main__":
    directory = pathlib.Path(sys.argv[1])
    layers, rest = divmod((int(sys.argv[2]) if len(sys.argv) > 2 else 128) << 20, LAYER_BYTES)
    if rest or not layers:
        sys.exit("MIB must be a multiple of 16")
    directory.mkdir(parents=True, exist_ok=True)
    data = [weights(i) for i in range(layers)]
    (directory / "external.onnx.data").write_bytes(b"".join(data))
    placed = [tensor(f"w{i}", external("external.onnx.data", i * LAYER_BYTES, LAYER_BYTES)) for i in range(layers)]
    (directory / "external.onnx").write_bytes(model(placed, layers))
    within = [tensor(f"w{i}", field(9, raw)) for i, raw in enumerate(data)]
    (directory / "inline.onnx").write_bytes(model(within, layers))
    print(layers * LAYER_BYTES)
