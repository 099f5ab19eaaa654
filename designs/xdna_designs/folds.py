"""Algebra that bakes one operator into the next: the array then does less, and rounds less often."""

import math

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]


def fold_layer_norm(weight: Matrix, bias: Matrix, gamma: Matrix, beta: Matrix) -> tuple[Matrix, Matrix]:
    """(weight, bias) of x @ weight + bias so that a LayerNorm before it need not scale and shift.

    weight: [inputs, outputs]; gamma, beta: [inputs].
    """
    wide = weight.astype(np.float64)
    return (gamma[:, None] * wide).astype(np.float32), (bias + beta @ wide).astype(np.float32)


def fold_attention_scale(weight: Matrix, bias: Matrix, head: int) -> tuple[Matrix, Matrix]:
    """(weight, bias) of the query projection so that scores come in units of log2: times log2(e) / sqrt(head)."""
    scale = np.float32(math.log2(math.e) / math.sqrt(head))
    return weight * scale, bias * scale


def fold_batch_norm(
    taps: Matrix, bias: Matrix, gamma: Matrix, beta: Matrix, mean: Matrix, variance: Matrix, epsilon: float
) -> tuple[Matrix, Matrix]:
    """(taps, bias) of a depthwise convolution followed by a batch norm. taps: [width, channels]."""
    scale = gamma / np.sqrt(variance + np.float32(epsilon))
    return taps * scale, (bias - mean) * scale + beta
