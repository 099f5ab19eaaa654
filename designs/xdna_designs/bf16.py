"""bfloat16 as its bits, in uint16 arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def narrow(values: NDArray[Any]) -> NDArray[np.uint16]:
    """float32 to bfloat16, to nearest even."""
    words = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (words + np.uint32(0x7FFF) + (words >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded.astype(np.uint16)).astype(np.uint16)


def widen(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """bfloat16 to float32, exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def rounded(values: NDArray[Any]) -> NDArray[np.float32]:
    """float32 values as bfloat16 holds them."""
    return widen(narrow(values))
