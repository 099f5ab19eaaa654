"""How the matrix of a GEMV lies in device memory."""

import numpy as np
from numpy.typing import NDArray

from xdna_designs.bf16 import narrow


def pack(w: NDArray[np.float32]) -> NDArray[np.uint16]:
    """W[rows, k] as the tapes of all columns, one after the other: each column's share of the rows, row-major, bfloat16."""
    return narrow(w).reshape(-1)


def unpack(packed: NDArray[np.uint16], k: int) -> NDArray[np.uint16]:
    """The matrix (bfloat16 bits) back from `pack`."""
    return packed.reshape(-1, k)
