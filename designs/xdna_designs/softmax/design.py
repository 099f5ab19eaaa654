"""Softmax of rows with a run-time width; README.md has the picture."""

from dataclasses import dataclass

from xdna_designs.dataflow import Barrier, Buffer, DesignError, Endpoint, Kernel, Program, range_, tensor
from xdna_designs.device import Device
from xdna_designs.kernels import kernel_object
from xdna_designs.rows import row_program


@dataclass(frozen=True)
class Softmax:
    """The overlay for rows of up to `columns` values."""

    device: Device
    columns: int = 512

    def program(self, rows: int, valid: int) -> Program:
        """y = softmax(x) over the first `valid` of `columns` values of each row. Host buffers: x, y bf16[rows, columns]."""
        if not 1 <= valid <= self.columns:
            raise DesignError(f"softmax: {valid} valid columns of {self.columns}")
        row = tensor("bf16", self.columns)
        kernel = Kernel("softmax", kernel_object("softmax", DIM_COLUMNS=self.columns), [row, row, int])
        return row_program("softmax", self.device, rows, row, _core, [kernel], [valid])


def _core(x: Endpoint, y: Endpoint, params: Buffer, barrier: Barrier, softmax: Kernel) -> None:
    barrier.wait_once()
    for _ in range_(params[0]):
        softmax(x.acquire(1), y.acquire(1), params[1])
        x.release(1)
        y.release(1)
