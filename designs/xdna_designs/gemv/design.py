"""Streamed GEMV: y = W x, one worker a column, the matrix a tape that runs past them. README.md has the picture."""

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
    TensorAccessPattern,
    Tile,
    Worker,
    linear,
    range_,
    tensor,
)
from xdna_designs.device import FIRST_CORE_ROW, MEM_ROW, Device
from xdna_designs.kernels import kernel_object
from xdna_designs.parameters import NUMBERS, Parameters, counters

STACK = 4096
GROUP = 64
"""Rows of y that leave a worker together."""
_GROUPS, _PIECES, _ROWS, _K = range(4)


@dataclass(frozen=True)
class Gemv:
    """The overlay for matrices of up to `longest` columns; a tape object holds `object` bfloat16: whole rows."""

    device: Device
    object: int = 4096
    longest: int = 2048

    def program(self, rows: int, k: int) -> Program:
        """The overlay with the sequence for y[rows] = W[rows, k] x[k].

        Host buffers: W as `layout.pack` lays it out, x bf16[k] padded to `longest`, y bf16[rows].
        Raises DesignError unless k divides the object and rows are whole groups on every column.
        """
        lanes = self.device.columns
        if k % 32 or self.object % k or GROUP % (self.object // k) or k > self.longest:
            raise DesignError(
                f"GEMV: {k} columns; they must be a multiple of 32, at most {self.longest}, and divide {self.object}"
            )
        if rows % (lanes * GROUP):
            raise DesignError(f"GEMV: {rows} rows; they must be a multiple of {lanes * GROUP}; pad the matrix")
        overlay = _Overlay(self)
        groups, pieces = rows // (lanes * GROUP), GROUP // (self.object // k)

        def sequence(tape: HostBuffer, x: HostBuffer, y: HostBuffer) -> None:
            for parameters in overlay.parameters:
                parameters.send(groups, pieces, self.object // k, k)
            group = TaskGroup()
            overlay.x.prod().fill(x, linear(x.type.count), group=group)
            share = groups * pieces * self.object
            for column in range(lanes):
                overlay.tape[column].prod().fill(tape, linear(tape.type.count, column * share, share), group=group)
                walk = TensorAccessPattern(y.type.shape, column * groups * GROUP, (1, 1, 1, groups * GROUP), (0, 0, 0, 1))
                overlay.y[column].consumers[0].drain(y, walk, wait=True, group=group)
            group.finish()

        types = [tensor("bf16", rows * k), tensor("bf16", self.longest), tensor("bf16", rows)]
        return Program(self.device, Runtime(sequence, types), overlay.workers, name="gemv")


class _Overlay:
    def __init__(self, gemv: Gemv) -> None:
        piece, vector, sums, out = (
            tensor("bf16", gemv.object),
            tensor("bf16", gemv.longest),
            tensor("f32", GROUP),
            tensor("bf16", GROUP),
        )
        obj = kernel_object("gemv")
        rows = Kernel("gemv_rows", obj, [piece, vector, sums, NUMBERS, int, int])
        store = Kernel("gemv_store", obj, [sums, out, NUMBERS])
        self.x = ObjectFifo(vector, name="x", depth=1)
        self.tape = [ObjectFifo(piece, name=f"tape{column}") for column in range(gemv.device.columns)]
        self.y = [ObjectFifo(out, name=f"y{column}") for column in range(gemv.device.columns)]
        self.parameters: list[Parameters] = []
        self.workers: list[Worker] = []
        for column in range(gemv.device.columns):
            self.y[column].cons(tile=Tile(column, 0))
            self.tape[column].prod(tile=Tile(column, 0))
            stage = self.tape[column].cons(depth=4).forward(tile=Tile(column, MEM_ROW), name=f"tape{column}_near", depth=2)
            parameters = Parameters(str(column))
            self.parameters.append(parameters)
            ends = [stage.cons(), self.x.cons(), self.y[column].prod()]
            memory = [Buffer(sums, name=f"sums{column}"), counters(str(column)), parameters.numbers, parameters.barrier]
            arguments = [*ends, *memory, rows, store]
            self.workers.append(
                Worker(_core, arguments, tile=Tile(column, FIRST_CORE_ROW), stack_size=STACK, name=f"gemv{column}")
            )


def _core(
    tape: Endpoint,
    x: Endpoint,
    y: Endpoint,
    sums: Buffer,
    state: Buffer,
    params: Buffer,
    barrier: Barrier,
    rows: Kernel,
    store: Kernel,
) -> None:
    barrier.wait_once()
    vector = x.acquire(1)
    for _ in range_(params[_GROUPS]):
        for _ in range_(params[_PIECES]):
            rows(tape.acquire(1), vector, sums, state, params[_ROWS], params[_K])
            tape.release(1)
        store(sums, y.acquire(1), state)
        y.release(1)
    x.release(1)
