"""What the argmax design computes, and the layout of its matrix and its results."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdna_designs.argmax.design import BIAS, ROWS, Argmax
from xdna_designs.bf16 import narrow


def logits(w: NDArray[Any], x: NDArray[Any], bias: NDArray[Any]) -> NDArray[np.float32]:
    """w x + bias in float32."""
    return np.asarray(w.astype(np.float64) @ x.astype(np.float64) + bias, dtype=np.float32)


def pack(w: NDArray[np.float32], bias: NDArray[np.float32]) -> NDArray[np.uint16]:
    """W[rows, width] and its bias as objects of ROWS rows, each followed by its bias as float32[16]."""
    rows, width = w.shape
    biases = np.zeros((rows // ROWS, BIAS // 2), dtype=np.float32)
    biases[:, :ROWS] = bias.reshape(-1, ROWS)
    return np.concatenate([narrow(w).reshape(-1, ROWS * width), biases.view(np.uint16)], axis=1).reshape(-1)


def unpack(packed: NDArray[np.uint16], width: int) -> tuple[NDArray[np.uint16], NDArray[np.float32]]:
    """The matrix (bfloat16 bits) and the bias back from `pack`."""
    objects = packed.reshape(-1, ROWS * width + BIAS)
    bias = np.ascontiguousarray(objects[:, ROWS * width :]).view(np.float32)[:, :ROWS]
    return objects[:, : ROWS * width].reshape(-1, width), bias.reshape(-1)


def winner(argmax: Argmax, results: NDArray[np.uint16]) -> tuple[int, NDArray[np.uint16]]:
    """Index and row of the best of all columns; the lowest index of equals."""
    found = results.reshape(-1, argmax.result)
    heads = np.ascontiguousarray(found[:, :4]).view(np.int32)
    best = min(range(len(found)), key=lambda column: (-int(heads[column, 0]), int(heads[column, 1])))
    return int(heads[best, 1]), found[best, BIAS:]
