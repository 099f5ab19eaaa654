"""Runs programs in the simulator on plain arrays."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npusim.array import Array, Run
from npusim.kernels import Kernels
from xdna_designs.bf16 import narrow, widen
from xdna_designs.dataflow import Program
from xdna_designs.instructions import stream
from xdna_designs.lowering import lower


class Simulation:
    """One configured array; `run` may be called again."""

    def __init__(self, program: Program, kernels: Kernels | None = None, **options: Any) -> None:
        self.configuration = lower(program)
        self.array = Array(self.configuration, kernels, **options)

    def run(self, arguments: Sequence[NDArray[Any]], program: Program | None = None) -> Run:
        """One dispatch over arrays, in place: of this program, or of another on the same overlay."""
        words = stream(lower(program) if program else self.configuration)
        addresses = [self.array.memory.add(array.reshape(-1).view(np.uint32)) for array in arguments]
        try:
            return self.array.run(words, addresses)
        finally:
            for address in addresses:
                self.array.memory.remove(address)


def _add(a: Any, b: Any, c: Any) -> None:
    c[:] = narrow(widen(a) + widen(b))


def _matrix(tile: Any) -> Any:
    """A tile of 4 x 4 blocks as a matrix."""
    rows, columns = tile.shape
    return tile.reshape(rows // 4, columns // 4, 4, 4).transpose(0, 2, 1, 3).reshape(rows, columns)


def _product(a: Any, b: Any, c: Any) -> None:
    product = _matrix(a).astype(np.int32) @ _matrix(b).astype(np.int32)
    rows, columns = product.shape
    c += product.reshape(rows // 4, 4, columns // 4, 4).transpose(0, 2, 1, 3).reshape(rows, columns)


def _gemv(a: Any, b: Any, c: Any) -> None:
    words = a.view(np.uint32).reshape(16, 32).T.copy()
    c += words.view(np.int16).reshape(32, 32).astype(np.int32) @ b.astype(np.int32)


def referee_kernels() -> Kernels:
    """What the referee's own kernels compute; their sources are not ours."""
    functions: dict[str, Callable[..., None]] = {
        "eltwise_add_bf16_vector": _add,
        "zero_i32": lambda c: c.fill(0),
        "matmul_i16_i32": _product,
        "matvec_i16_i32": _gemv,
    }
    return Kernels(20, functions)
