"""The mask that keeps a decoder from looking ahead."""

import numpy as np

from xdna_asr.types import F32

_NEVER = np.float32(-1e30)


def causal_bias(past: int, count: int) -> F32:
    """(count, past + count): 0 where one of `count` new tokens may look, a large negative number at later ones."""
    return np.triu(np.full((count, past + count), _NEVER, np.float32), past + 1)
