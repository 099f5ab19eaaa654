"""Device memory as the shim DMAs see it: buffers at addresses."""

import bisect
from typing import Final

import numpy as np
from numpy.typing import NDArray

_PAGE: Final = 4096
_START: Final = 0x8000_0000


class SimulationError(RuntimeError):
    """Something happened that the array would not survive, or would silently get wrong."""


class DeviceMemory:
    """Buffers of 32-bit words at ascending addresses."""

    def __init__(self) -> None:
        self._next = _START
        self._starts: list[int] = []
        self._buffers: dict[int, NDArray[np.uint32]] = {}

    def add(self, words: NDArray[np.uint32]) -> int:
        """Give a buffer an address."""
        address = self._next
        self._next += -(-max(words.nbytes, 1) // _PAGE) * _PAGE + _PAGE
        self._starts.append(address)
        self._buffers[address] = words
        return address

    def remove(self, address: int) -> None:
        """Forget a buffer."""
        self._starts.remove(address)
        del self._buffers[address]

    def find(self, address: int, words: int, who: str) -> tuple[NDArray[np.uint32], int, int]:
        """The buffer that holds an address, the word in it, and where it starts. Raises SimulationError outside all buffers."""
        index = bisect.bisect_right(self._starts, address) - 1
        if index >= 0:
            start = self._starts[index]
            buffer = self._buffers[start]
            first = (address - start) // 4
            if first + words <= len(buffer):
                return buffer, first, start
        raise SimulationError(f"{who}: {words} words at device address {address:#x} lie outside every buffer of this run")
