"""How the matrix of an argmax lies in device memory."""

import numpy as np
from numpy.typing import NDArray

from xdna_designs.argmax.design import BIAS, ROWS
from xdna_designs.bf16 import narrow


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
