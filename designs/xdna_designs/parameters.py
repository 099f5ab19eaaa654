"""Numbers that a worker gets before each dispatch, and numbers it keeps for itself."""

import numpy as np

from xdna_designs.dataflow import Barrier, Buffer, tensor

_COUNT = 8
NUMBERS = tensor("i32", _COUNT)


class Parameters:
    """int32 numbers that the sequence writes and a worker reads, behind a barrier. Both go into the worker's arguments."""

    def __init__(self, name: str) -> None:
        self.numbers = Buffer(NUMBERS, initial_value=np.zeros(_COUNT, dtype=np.int32), name=f"params_{name}", use_write_rtp=True)
        self.barrier = Barrier()

    def send(self, *values: int) -> None:
        """In the sequence: write the numbers, then let the worker begin."""
        for index, value in enumerate(values):
            self.numbers[index] = value
        self.barrier.open()


def counters(name: str) -> Buffer:
    """int32 numbers, 0 at first, that a worker's kernels count in."""
    return Buffer(NUMBERS, initial_value=np.zeros(_COUNT, dtype=np.int32), name=f"counters_{name}")
