"""What the argmax design computes, and how its results are read."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdna_designs.argmax.design import BIAS, Argmax


def logits(w: NDArray[Any], x: NDArray[Any], bias: NDArray[Any]) -> NDArray[np.float32]:
    """w x + bias in float32."""
    return np.asarray(w.astype(np.float64) @ x.astype(np.float64) + bias, dtype=np.float32)


def winner(argmax: Argmax, results: NDArray[np.uint16]) -> tuple[int, NDArray[np.uint16]]:
    """Index and row of the best of all columns; the lowest index of equals."""
    found = results.reshape(-1, argmax.result)
    heads = np.ascontiguousarray(found[:, :4]).view(np.int32)
    best = min(range(len(found)), key=lambda column: (-int(heads[column, 0]), int(heads[column, 1])))
    return int(heads[best, 1]), found[best, BIAS:]
