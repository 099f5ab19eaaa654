"""Calls a kernel compiled for this machine, on arrays aligned like local memory."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npusim.kernels import Core, build, load
from xdna_designs.kernels import parse_object

ROUNDING = {"floor": 0, "conv_even": 12}


def aligned(values: NDArray[Any]) -> NDArray[Any]:
    """A copy that begins on a 64-byte boundary."""
    raw = np.zeros(values.nbytes + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    copy: NDArray[Any] = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


class KernelCalls:
    """The functions of one kernel object; `core` has its registers, `faults` what went wrong."""

    def __init__(self, file_name: str, arch: int, cxx: str | None = None, folder: Path | None = None) -> None:
        self.object = parse_object(file_name)
        self._library = load(build(file_name, arch, cxx=cxx, folder=folder))
        self.core = Core()

    def __getattr__(self, name: str) -> Callable[..., None]:
        function = getattr(self._library, name)
        function.restype = None

        def call(*arguments: Any) -> None:
            self._library.aie_host_enter(ctypes.addressof(self.core))
            given = [ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else ctypes.c_int32(a) for a in arguments]
            function(*given)

        return call

    @property
    def fault(self) -> str:
        """The first fault, in words; empty when there was none."""
        return self.core.message.decode() if self.core.fault else ""
