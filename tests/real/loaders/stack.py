"""The module that the checkpoints of make_checkpoint.py fit: a stack of square linear layers."""

import os

import torch

WIDTH = 2048
LAYER_BYTES = WIDTH * WIDTH * 4


class Stack(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def on_meta(checkpoint):
    """A module for a checkpoint of this size, on the meta device: shapes, and no memory behind them."""
    with torch.device("meta"):
        return Stack(os.path.getsize(checkpoint) // LAYER_BYTES)


@torch.inference_mode()
def first_response(module):
    """One request's answer: reads every weight once."""
    return float(module(torch.ones(1, WIDTH)).double().sum())
