"""What GEMM computes, in float32."""

import math

import numpy as np
from numpy.typing import NDArray

from xdna_designs.gemm.design import Epilogue

Matrix = NDArray[np.float32]


def gelu(x: Matrix) -> Matrix:
    """x Phi(x), the erf form."""
    erf = np.vectorize(math.erf, otypes=[np.float32])
    return np.asarray(0.5 * x * (1.0 + erf(x / math.sqrt(2.0))), dtype=np.float32)


def sigmoid(x: Matrix) -> Matrix:
    """1 / (1 + exp(-x))"""
    return np.asarray(1.0 / (1.0 + np.exp(-x.astype(np.float64))), dtype=np.float32)


def product(a: Matrix, b: Matrix, bias: Matrix, epilogue: Epilogue, residual: Matrix | None = None) -> Matrix:
    """epilogue(a b). For GLU the first half of b's columns are values, the second half their gates."""
    c = a @ b
    match epilogue:
        case Epilogue.NONE:
            return np.asarray(c, dtype=np.float32)
        case Epilogue.BIAS:
            return np.asarray(c + bias, dtype=np.float32)
        case Epilogue.GELU:
            return gelu(np.asarray(c + bias))
        case Epilogue.SILU:
            return np.asarray((c + bias) * sigmoid(c + bias), dtype=np.float32)
        case Epilogue.GLU:
            value, gate = np.split(c + bias, 2, axis=1)
            return np.asarray(value * sigmoid(gate), dtype=np.float32)
        case Epilogue.RESIDUAL:
            assert residual is not None
            return np.asarray(c + bias + residual, dtype=np.float32)
