"""What GEMV computes, and how its matrix is laid out."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdna_designs.bf16 import narrow


def product(w: NDArray[Any], x: NDArray[Any]) -> NDArray[np.float32]:
    """w x in float32."""
    return np.asarray(w.astype(np.float64) @ x.astype(np.float64), dtype=np.float32)


def pack(w: NDArray[np.float32]) -> NDArray[np.uint16]:
    """W[rows, k] as the tapes of all columns, one after the other: each column's share of the rows, row-major, bfloat16."""
    return narrow(w).reshape(-1)


def unpack(packed: NDArray[np.uint16], k: int) -> NDArray[np.uint16]:
    """The matrix (bfloat16 bits) back from `pack`."""
    return packed.reshape(-1, k)
