"""What the LayerNorm design computes."""

import numpy as np
from numpy.typing import NDArray


def layer_norm(x: NDArray[np.float32], gamma: NDArray[np.float32], beta: NDArray[np.float32]) -> NDArray[np.float32]:
    """(x - mean) / sqrt(variance + 1e-5) * gamma + beta, row by row."""
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    scale = 1.0 / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    return np.asarray(centred * scale * gamma + beta, dtype=np.float32)
