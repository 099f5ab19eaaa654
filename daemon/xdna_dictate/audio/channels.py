"""Several channels to one."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

_CANCELLED: Final = 0.1
"""If the mean of the channels has less than this share of the loudest one's level, they cancel each other."""


def mix(block: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, channels) -> (n,): the mean of the channels, or the loudest one where they cancel out."""
    if block.shape[1] == 1:
        return block[:, 0]
    mean = block.mean(axis=1)
    levels = np.sqrt(np.mean(block * block, axis=0))
    if np.sqrt(np.mean(mean * mean)) < _CANCELLED * levels.max(initial=0.0):
        return block[:, int(levels.argmax())]
    return np.asarray(mean, np.float32)
