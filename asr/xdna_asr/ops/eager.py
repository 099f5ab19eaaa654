"""The numpy back end of the op set: eager, float32, slow and readable. Every other back end is compared with it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_EPSILON = np.float32(1e-5)


def erf(x: Array) -> Array:
    """Error function to 1.5e-7 absolute (Abramowitz and Stegun 7.1.26), evaluated in float64."""
    z = np.abs(x.astype(np.float64))
    t = 1 / (1 + 0.3275911 * z)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.asarray(np.copysign(1 - poly * np.exp(-z * z), x))


class NumpyOps:
    """`Ops` over numpy arrays and a mapping of canonical tensors."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self._weights = weights
        self._cache: dict[str, Array] = {}

    def _weight(self, name: str) -> Array:
        if name not in self._cache:
            self._cache[name] = self._weights[name].astype(np.float32)
        return self._cache[name]

    def linear(self, x: Array, name: str) -> Array:
        return np.asarray(x @ self._weight(f"{name}.w").T + self._weight(f"{name}.b"))

    def conv1d(self, x: Array, name: str, *, stride: int = 1, pad: int = 0) -> Array:
        kernel = self._weight(f"{name}.w")
        padded = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(pad, pad), (0, 0)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape[2], axis=-2)[..., ::stride, :, :]
        flat = windows.reshape(*windows.shape[:-2], -1)
        return np.asarray(flat @ kernel.reshape(len(kernel), -1).T + self._weight(f"{name}.b"))

    def layer_norm(self, x: Array, name: str) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = np.mean(centred * centred, axis=-1, keepdims=True)
        return np.asarray(centred / np.sqrt(variance + _EPSILON) * self._weight(f"{name}.g") + self._weight(f"{name}.b"))

    def add(self, a: Array, b: Array) -> Array:
        return np.asarray(a + b)

    def gelu(self, x: Array) -> Array:
        return np.asarray(x * 0.5 * (1 + erf(x / np.sqrt(2))), np.float32)

    def relu(self, x: Array) -> Array:
        return np.maximum(x, 0)

    def sigmoid(self, x: Array) -> Array:
        return np.asarray(1 / (1 + np.exp(-x)))

    def hypot(self, a: Array, b: Array) -> Array:
        return np.asarray(np.sqrt(a * a + b * b))

    def concat(self, parts: Sequence[Array], axis: int) -> Array:
        return np.concatenate(parts, axis=axis)

    def split(self, x: Array, parts: int) -> list[Array]:
        return np.split(x, parts, axis=-1)

    def flatten(self, x: Array) -> Array:
        return x.reshape(len(x), -1)

    def embedding(self, name: str, indices: Array) -> Array:
        return np.asarray(self._weights[name][indices], np.float32)

    def rows(self, x: Array, indices: Array) -> Array:
        return np.asarray(x[indices])

    def split_heads(self, x: Array, heads: int) -> Array:
        return x.reshape(len(x), heads, -1).transpose(1, 0, 2)

    def merge_heads(self, x: Array) -> Array:
        return x.transpose(1, 0, 2).reshape(x.shape[1], -1)

    def attention(self, q: Array, k: Array, v: Array, bias: Array, scale: float) -> tuple[Array, Array]:
        scores = q @ k.transpose(0, 2, 1) * np.float32(scale) + bias
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return weights @ v, weights

    def attention_by_head(self, q: Array, k: Array, v: Array, bias: Array, scale: float, heads: int) -> Array:
        q, k, v = (self.split_heads(part, heads) for part in (q, k, v))
        return self.merge_heads(self.attention(q, k, v, bias, scale)[0])

    def heads(self, x: Array, indices: Sequence[int]) -> Array:
        return np.asarray(x[list(indices)])

    def lstm(self, x: Array, name: str, hidden: Array, cell: Array) -> tuple[Array, Array, Array]:
        inputs = x @ self._weight(f"{name}.wi").T + self._weight(f"{name}.b")
        outputs = np.zeros((len(x), hidden.shape[1]), np.float32)
        for t, row in enumerate(inputs):
            i, f, g, o = np.split(row + hidden @ self._weight(f"{name}.wh").T, 4, axis=-1)
            cell = self.sigmoid(f) * cell + self.sigmoid(i) * np.tanh(g)
            hidden = self.sigmoid(o) * np.tanh(cell)
            outputs[t] = hidden
        return outputs, hidden, cell

    def tied_logits(self, x: Array, name: str) -> Array:
        return x @ self._weight(name).T
