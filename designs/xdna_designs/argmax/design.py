"""Argmax of W x + bias over a streamed W that keeps the winning row of each column's share; README.md has the picture."""

from dataclasses import dataclass

from xdna_designs.dataflow import (
    Barrier,
    Buffer,
    DesignError,
    Endpoint,
    HostBuffer,
    Kernel,
    ObjectFifo,
    Program,
    Runtime,
    TaskGroup,
    Tile,
    Worker,
    linear,
    range_,
    tensor,
)
from xdna_designs.device import FIRST_CORE_ROW, MEM_ROW, Device
from xdna_designs.kernels import kernel_object
from xdna_designs.parameters import Parameters

STACK = 4096
ROWS = 8
"""Rows of W in one object."""
BIAS = 32
"""bfloat16 places that an object's float32[16] of bias takes, and so does the header of a result."""
_OBJECTS, _FIRST = range(2)


@dataclass(frozen=True)
class Argmax:
    """The overlay for rows of `width` values."""

    device: Device
    width: int = 384

    @property
    def object(self) -> int:
        """bfloat16 places of one object."""
        return ROWS * self.width + BIAS

    @property
    def result(self) -> int:
        """bfloat16 places of one column's result."""
        return BIAS + self.width

    def program(self, rows: int) -> Program:
        """The overlay with the sequence for W[rows, width]; host buffers: W as `layout.pack` does, x bf16[width], results.

        Raises DesignError unless every column gets the same number of whole objects.
        """
        lanes = self.device.columns
        if rows <= 0 or rows % (lanes * ROWS):
            raise DesignError(f"argmax: {rows} rows; they must be a multiple of {lanes * ROWS}; pad with a bias of -1e30")
        objects = rows // (lanes * ROWS)
        overlay = _Overlay(self)

        def sequence(tape: HostBuffer, x: HostBuffer, results: HostBuffer) -> None:
            for column, parameters in enumerate(overlay.parameters):
                parameters.send(objects, column * objects * ROWS)
            group = TaskGroup()
            overlay.x.prod().fill(x, group=group)
            share = objects * self.object
            for column in range(lanes):
                overlay.tape[column].prod().fill(tape, linear(tape.type.count, column * share, share), group=group)
                place = linear(results.type.count, column * self.result, self.result)
                overlay.best[column].consumers[0].drain(results, place, wait=True, group=group)
            group.finish()

        types = [tensor("bf16", lanes * objects * self.object), tensor("bf16", self.width), tensor("bf16", lanes * self.result)]
        return Program(self.device, Runtime(sequence, types), overlay.workers, name="argmax")


class _Overlay:
    def __init__(self, argmax: Argmax) -> None:
        piece, vector, best = tensor("bf16", argmax.object), tensor("bf16", argmax.width), tensor("bf16", argmax.result)
        obj = kernel_object("argmax", DIM_D=argmax.width, DIM_ROWS=ROWS)
        start = Kernel("argmax_start", obj, [best, int])
        rows = Kernel("argmax_rows", obj, [piece, vector, best])
        self.x = ObjectFifo(vector, name="x", depth=1)
        lanes = range(argmax.device.columns)
        self.tape = [ObjectFifo(piece, name=f"tape{column}") for column in lanes]
        self.best = [ObjectFifo(best, name=f"best{column}") for column in lanes]
        self.parameters = [Parameters(str(column)) for column in lanes]
        self.workers: list[Worker] = []
        for column in lanes:
            self.tape[column].prod(tile=Tile(column, 0))
            self.best[column].cons(tile=Tile(column, 0))
            stage = self.tape[column].cons(depth=4).forward(tile=Tile(column, MEM_ROW), name=f"tape{column}_near", depth=2)
            ends = [stage.cons(), self.x.cons(), self.best[column].prod()]
            parameters = self.parameters[column]
            arguments = [*ends, parameters.numbers, parameters.barrier, start, rows]
            self.workers.append(
                Worker(_core, arguments, tile=Tile(column, FIRST_CORE_ROW), stack_size=STACK, name=f"argmax{column}")
            )


def _core(tape: Endpoint, x: Endpoint, best: Endpoint, params: Buffer, barrier: Barrier, start: Kernel, rows: Kernel) -> None:
    barrier.wait_once()
    vector, result = x.acquire(1), best.acquire(1)
    start(result, params[_FIRST])
    for _ in range_(params[_OBJECTS]):
        rows(tape.acquire(1), vector, result)
        tape.release(1)
    best.release(1)
    x.release(1)
