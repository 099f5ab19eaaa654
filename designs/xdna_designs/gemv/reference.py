"""What GEMV computes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def product(w: NDArray[Any], x: NDArray[Any]) -> NDArray[np.float32]:
    """w x in float32."""
    return np.asarray(w.astype(np.float64) @ x.astype(np.float64), dtype=np.float32)
