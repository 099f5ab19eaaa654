"""Word times from the alignment heads' attention to the audio.

Source: openai/whisper `timing.py` (standardise over tokens, median filter of 7 along time, mean over heads, dynamic
time warping). Here the attention is kept while decoding, so no second pass over the text is needed.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xdna_asr.types import F32

_MEDIAN: Final = 7
SECONDS_PER_POSITION: Final = 0.02


def token_times(alignment: F32, positions: int) -> F32:
    """(heads, n + 1, S) attention of n tokens and the end -> (n + 1,) seconds at which each begins.

    Only the first `positions` states, the clip itself, are looked at.
    """
    weights = alignment[:, :, :positions]
    spread = weights.std(axis=1, keepdims=True)
    weights = np.asarray((weights - weights.mean(axis=1, keepdims=True)) / np.maximum(spread, 1e-9), np.float32)
    return _begin_positions(-_median_along_time(weights).mean(axis=0)) * np.float32(SECONDS_PER_POSITION)


def _median_along_time(x: F32) -> F32:
    half = _MEDIAN // 2
    if x.shape[-1] <= half:
        return x
    padded = np.pad(x, ((0, 0), (0, 0), (half, half)), mode="reflect")
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(padded, _MEDIAN, axis=-1), axis=-1), np.float32)


def _begin_positions(cost: F32) -> NDArray[Any]:
    """First position of each row on the cheapest monotonic path through cost (rows, positions)."""
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf)
    total[0, 0] = 0
    for row in range(1, rows + 1):
        best_above = np.minimum(total[row - 1, :-1], total[row - 1, 1:])
        for column in range(1, columns + 1):
            total[row, column] = cost[row - 1, column - 1] + min(best_above[column - 1], total[row, column - 1])
    begins = np.zeros(rows, np.float32)
    row, column = rows, columns
    while row > 0 and column > 0:
        begins[row - 1] = column - 1
        step = np.argmin([total[row - 1, column - 1], total[row - 1, column], total[row, column - 1]])
        row, column = row - (step != 2), column - (step != 1)
    return begins
