"""How the right-hand side of a GEMM lies in device memory."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdna_designs.bf16 import narrow
from xdna_designs.gemm.design import Epilogue, Gemm

Matrix = NDArray[np.float32]


def pack(gemm: Gemm, b: Matrix, bias: Matrix, epilogue: Epilogue = Epilogue.NONE) -> NDArray[np.uint16]:
    """B[depth, columns] and its bias as bfloat16 tiles in the order in which each column of cores wants them.

    Array column, pass, k tile: blocks of s x t. After the last k tile one object that begins with the bias of its n columns
    in float32.
    """
    depth, columns = b.shape
    k, n, (_, s, t) = gemm.k, gemm.n, gemm.block
    order = column_order(gemm, columns, epilogue)
    tiles = b[:, order].reshape(depth // k, k // s, s, -1, n // t, t).transpose(3, 0, 1, 4, 2, 5)
    biases = np.zeros((len(tiles), 1, k * n), dtype=np.uint16)
    biases[:, 0, : 2 * n] = np.ascontiguousarray(bias[order].reshape(-1, n), dtype=np.float32).view(np.uint16)
    return np.concatenate([narrow(tiles).reshape(len(tiles), depth // k, k * n), biases], axis=1).reshape(-1)


def unpack(
    gemm: Gemm, packed: NDArray[np.uint16], depth: int, columns: int, epilogue: Epilogue = Epilogue.NONE
) -> tuple[NDArray[np.uint16], Matrix]:
    """The matrix (bfloat16 bits) and the bias back from `pack`."""
    k, n, (_, s, t) = gemm.k, gemm.n, gemm.block
    objects = packed.reshape(-1, depth // k + 1, k * n)
    order = column_order(gemm, columns, epilogue)
    b = np.empty((depth, columns), dtype=np.uint16)
    blocks = objects[:, :-1].reshape(-1, depth // k, k // s, n // t, s, t)
    b[:, order] = blocks.transpose(1, 2, 4, 0, 3, 5).reshape(depth, columns)
    bias = np.empty(columns, dtype=np.float32)
    bias[order] = np.ascontiguousarray(objects[:, -1, : 2 * n]).view(np.float32).reshape(-1)
    return b, bias


def column_order(gemm: Gemm, columns: int, epilogue: Epilogue) -> NDArray[Any]:
    """Which column of B comes where: array column first, then pass, half and place in the tile."""
    lanes, n = gemm.device.columns, gemm.n
    if epilogue is not Epilogue.GLU:
        return np.arange(columns).reshape(-1, lanes, n).transpose(1, 0, 2).reshape(-1)
    values = np.arange(columns // 2).reshape(-1, lanes, 2, n // 2)
    return np.stack([values, values + columns // 2], axis=3).transpose(1, 0, 2, 3, 4).reshape(-1)
