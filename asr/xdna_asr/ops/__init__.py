"""The op set: what a model may ask for. Models are written once against `Ops`, back ends implement it.

Tensors are unbatched and row-major: (T, d) for a sequence of T vectors, (H, T, d/H) once split into heads. Learned
tensors are named (`enc.0.attn.qkv`), never passed, so that a back end may keep them in any form it likes.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Ops(Protocol[T]):
    """Operators over a back end's tensor type `T`."""

    def linear(self, x: T, name: str) -> T:
        """(..., in) -> (..., out): x @ `name`.w.T + `name`.b."""
        ...

    def conv1d(self, x: T, name: str, *, stride: int = 1, pad: int = 0) -> T:
        """(..., T, in) -> (..., T', out), kernel `name`.w (out, in, k), zeros around; T' = (T + 2 pad - k) // stride + 1."""
        ...

    def layer_norm(self, x: T, name: str) -> T:
        """(..., d) -> (..., d), epsilon 1e-5, gain `name`.g and bias `name`.b."""
        ...

    def add(self, a: T, b: T) -> T:
        """Elementwise a + b, broadcast as numpy does."""
        ...

    def gelu(self, x: T) -> T:
        """x * Phi(x), the exact form with erf."""
        ...

    def relu(self, x: T) -> T:
        """max(x, 0)."""
        ...

    def sigmoid(self, x: T) -> T:
        """1 / (1 + exp(-x))."""
        ...

    def hypot(self, a: T, b: T) -> T:
        """sqrt(a^2 + b^2)."""
        ...

    def concat(self, parts: Sequence[T], axis: int) -> T:
        """Join along `axis`."""
        ...

    def split(self, x: T, parts: int) -> list[T]:
        """(..., parts * n) -> `parts` tensors (..., n)."""
        ...

    def flatten(self, x: T) -> T:
        """(n, a, b) -> (n, a * b)."""
        ...

    def embedding(self, name: str, indices: T) -> T:
        """Rows `indices` (T,) int64 of the learned table `name` (N, d) -> (T, d)."""
        ...

    def rows(self, x: T, indices: T) -> T:
        """(N, d), (T,) int64 -> (T, d)."""
        ...

    def split_heads(self, x: T, heads: int) -> T:
        """(T, heads * n) -> (heads, T, n)."""
        ...

    def merge_heads(self, x: T) -> T:
        """(heads, T, n) -> (T, heads * n)."""
        ...

    def attention(self, q: T, k: T, v: T, bias: T, scale: float) -> tuple[T, T]:
        """softmax(scale q k^T + bias) v over (H, T, n), (H, S, n), (H, S, n); bias broadcasts to (H, T, S).

        Returns the result (H, T, n) and the probabilities (H, T, S).
        """
        ...

    def attention_by_head(self, q: T, k: T, v: T, bias: T, scale: float, heads: int) -> T:
        """`attention` over (T, d), (S, d), (S, d) that are split into heads here, for long sequences -> (T, d).

        One head after the other, so that only one (T, S) matrix of scores has to exist.
        """
        ...

    def heads(self, x: T, indices: Sequence[int]) -> T:
        """(H, T, S) -> (len(indices), T, S)."""
        ...

    def lstm(self, x: T, name: str, hidden: T, cell: T) -> tuple[T, T, T]:
        """(T, in) with state (1, n), (1, n) -> outputs (T, n) and the new state.

        Gates in the order i, f, g, o in `name`.{wi,wh,b}.
        """
        ...

    def tied_logits(self, x: T, name: str) -> T:
        """(T, d) -> (T, V): x @ `name`.T for an embedding table (V, d).

        A back end may round the table; the best few logits of each row are exact all the same.
        """
        ...
