"""What the softmax design computes."""

import numpy as np
from numpy.typing import NDArray


def softmax(x: NDArray[np.float32], valid: int) -> NDArray[np.float32]:
    """exp(x) / sum over the first `valid` columns, 0 after them."""
    powers = np.exp(x[:, :valid].astype(np.float64) - x[:, :valid].max(axis=1, keepdims=True))
    result = np.zeros_like(x)
    result[:, :valid] = powers / powers.sum(axis=1, keepdims=True)
    return result
