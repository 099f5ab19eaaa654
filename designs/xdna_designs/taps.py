"""Types of objects and the walks over them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Problems = Iterator[str]
"""What a check found, one sentence each."""
ITEM_BYTES: Final = {"bf16": 2, "f32": 4, "i16": 2, "i32": 4, "u32": 4}
WORD: Final = 4


class DesignError(ValueError):
    """A design asks for what the array does not have; the text names the tile or fifo, the resource and the limit."""


@dataclass(frozen=True)
class TensorType:
    """Shape and element type of an object, a buffer or a host argument."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def count(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return self.count * ITEM_BYTES[self.dtype]

    @property
    def words(self) -> int:
        """32-bit words. Raises DesignError for a fraction of one."""
        if self.nbytes % WORD:
            raise DesignError(f"an object of {self.nbytes} bytes is no whole number of 32-bit words")
        return self.nbytes // WORD

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def tensor(dtype: str, *shape: int) -> TensorType:
    """tensor("bf16", 64, 64)"""
    if dtype not in ITEM_BYTES:
        raise DesignError(f"unknown element type {dtype}; known: {', '.join(ITEM_BYTES)}")
    return TensorType(shape, dtype)


@dataclass(frozen=True)
class TensorAccessPattern:
    """A walk over a tensor: offset, then sizes and strides in elements, outermost first; the same arguments as IRON's."""

    tensor_dims: tuple[int, ...]
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def __init__(self, tensor_dims: Sequence[int], offset: int, sizes: Sequence[int], strides: Sequence[int]) -> None:
        if len(sizes) != len(strides):
            raise DesignError(f"{len(sizes)} sizes but {len(strides)} strides")
        for name, value in (("tensor_dims", tensor_dims), ("sizes", sizes), ("strides", strides)):
            object.__setattr__(self, name, tuple(int(part) for part in value))
        object.__setattr__(self, "offset", int(offset))

    @property
    def count(self) -> int:
        """Elements visited."""
        return math.prod(self.sizes)

    def indices(self) -> NDArray[np.int64]:
        """The elements in the order of the walk."""
        index: NDArray[Any] = np.array(self.offset, dtype=np.int64)
        for size, stride in zip(self.sizes, self.strides, strict=True):
            index = index[..., None] + np.arange(size, dtype=np.int64) * stride
        return index.reshape(-1)


def linear(count: int, offset: int = 0, length: int | None = None) -> TensorAccessPattern:
    """`length` elements from `offset` of a tensor of `count`, one after the other."""
    return TensorAccessPattern((count,), offset, (1, 1, 1, count - offset if length is None else length), (0, 0, 0, 1))


def merged(sizes: Sequence[int], strides: Sequence[int]) -> tuple[list[int], list[int]]:
    """The same walk in as few dimensions as possible, outermost first."""
    kept: list[tuple[int, int]] = []
    for size, stride in zip(sizes, strides, strict=True):
        if size == 1:
            continue
        if kept and kept[-1][1] == size * stride:
            kept[-1] = (kept[-1][0] * size, stride)
        else:
            kept.append((size, stride))
    kept = kept or [(1, 1)]
    return [size for size, _ in kept], [stride for _, stride in kept]


def to_words(sizes: Sequence[int], strides: Sequence[int], dtype: str, where: str) -> list[tuple[int, int]]:
    """A walk over elements as (size, stride) of 32-bit words, innermost first.

    Raises DesignError when it does not move whole words: the DMA's grain.
    """
    item = ITEM_BYTES[dtype]
    dims = [(size, stride * item) for size, stride in zip(sizes, strides, strict=True)]
    size, stride = dims[-1]
    if item < WORD:
        if size > 1 and stride != item:
            raise DesignError(f"{where}: the innermost stride of a {dtype} walk must be 1, not {stride // item}")
        if size * item % WORD:
            raise DesignError(f"{where}: an innermost run of {size} {dtype} is no whole number of 32-bit words")
        dims[-1] = (size * item // WORD, WORD)
    for size, stride in dims:
        if size > 1 and stride % WORD:
            raise DesignError(f"{where}: a stride of {stride} bytes is no whole number of 32-bit words")
    return [(size, stride // WORD) for size, stride in reversed(dims)]


def tiles_of(indices: NDArray[np.int64], count: int) -> bool:
    """Whether the indices visit each of `count` elements exactly once."""
    return len(indices) == count and bool(np.array_equal(np.sort(indices), np.arange(count)))
