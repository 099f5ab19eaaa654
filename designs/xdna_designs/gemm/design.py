"""Whole-array GEMM: C = epilogue(A B), the overlay that serves every length, depth and width.

Four rows of cores share the rows of A, all columns the columns of B. README.md has the picture.
"""

from dataclasses import dataclass
from enum import IntEnum

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
from xdna_designs.device import CORE_ROWS, FIRST_CORE_ROW, MEM_ROW, Device
from xdna_designs.kernels import kernel_object
from xdna_designs.parameters import NUMBERS, Parameters, counters

STACK = 4096
_TILES, _HALVES, _DEPTH, _RESIDUALS, _EPILOGUE = range(5)


class Epilogue(IntEnum):
    """What happens to a finished tile; numbers as in kernels/gemm.cc. GLU halves the width of the output."""

    NONE = 0
    BIAS = 1
    GELU = 2
    SILU = 3
    GLU = 4
    RESIDUAL = 5


@dataclass(frozen=True)
class Gemm:
    """The overlay for one device and tile size m x k x n."""

    device: Device
    m: int = 64
    k: int = 64
    n: int = 64

    @property
    def block(self) -> tuple[int, int, int]:
        """r, s, t of the matrix unit."""
        return (4, 8, 4) if self.device.generation == "aie2" else (8, 8, 8)

    @property
    def rows(self) -> int:
        """Rows of A that one pass takes."""
        return self.m * CORE_ROWS

    @property
    def columns(self) -> int:
        """Columns of B that one pass takes."""
        return self.n * self.device.columns

    def check(self, rows: int, depth: int, columns: int) -> None:
        """Raises DesignError unless A[rows, depth] B[depth, columns] is made of whole tiles."""
        for what, value, grain in (("rows", rows, self.rows), ("depth", depth, self.k), ("columns", columns, self.columns)):
            if value <= 0 or value % grain:
                raise DesignError(f"GEMM: {value} {what}, they must be a multiple of {grain}; pad the matrix")

    def program(self, rows: int, depth: int, columns: int, epilogue: Epilogue = Epilogue.NONE) -> Program:
        """The overlay with the sequence for one product.

        Host buffers: A bf16[rows, depth]; B as `layout.pack` lays it out; C bf16[rows, columns], columns / 2 for GLU; for
        RESIDUAL also R bf16[rows, columns].
        """
        self.check(rows, depth, columns)
        overlay = _Overlay(self)
        out = columns // 2 if epilogue is Epilogue.GLU else columns
        types = [tensor("bf16", rows, depth), tensor("bf16", self.packed(depth, columns)), tensor("bf16", rows, out)]
        if epilogue is Epilogue.RESIDUAL:
            types.append(tensor("bf16", rows, columns))
        sequence = _Sequence(overlay, rows, depth, columns, epilogue)
        return Program(self.device, Runtime(sequence.run, types), overlay.workers, name="gemm")

    def packed(self, depth: int, columns: int) -> int:
        """Elements of B with its biases, packed."""
        return columns // self.n * (depth // self.k + 1) * self.k * self.n


class _Overlay:
    def __init__(self, gemm: Gemm) -> None:
        self.gemm = gemm
        m, k, n, (r, s, t) = gemm.m, gemm.k, gemm.n, gemm.block
        defines = {"DIM_M": m, "DIM_K": k, "DIM_N": n}
        left, right, out, sums = tensor("bf16", m, k), tensor("bf16", k, n), tensor("bf16", m, n), tensor("f32", m, n)
        obj = kernel_object("gemm", **defines)
        self.kernels = [
            Kernel("gemm_zero", obj, [sums]),
            Kernel("gemm_accumulate", obj, [left, right, sums]),
            Kernel("gemm_bias", obj, [right, sums, int]),
            Kernel("gemm_residual", obj, [right, sums, NUMBERS, int, int]),
            Kernel("gemm_store", obj, [sums, out, NUMBERS, int]),
        ]
        self.a = [ObjectFifo(left, name=f"a{row}") for row in range(CORE_ROWS)]
        self.b = [ObjectFifo(right, name=f"b{column}") for column in range(gemm.device.columns)]
        blocks = [(m // r, r * k), (k // s, s), (r, k), (s, 1)]
        lines = [(m // r, r * n), (r, t), (n // t, r * t), (t, 1)]
        a = [
            fifo.cons().forward(tile=Tile(row, MEM_ROW), name=f"a{row}_blocks", to_stream=blocks)
            for row, fifo in enumerate(self.a)
        ]
        b = [fifo.cons().forward(tile=Tile(column, MEM_ROW), name=f"b{column}_tile") for column, fifo in enumerate(self.b)]
        self.c = [
            ObjectFifo(tensor("bf16", CORE_ROWS * m, n), name=f"c{column}", to_stream=lines)
            for column in range(gemm.device.columns)
        ]
        self.parameters: list[Parameters] = []
        self.workers: list[Worker] = []
        for column, whole in enumerate(self.c):
            parts = whole.prod().join(
                [row * m * n for row in range(CORE_ROWS)],
                tile=Tile(column, MEM_ROW),
                obj_types=[out] * CORE_ROWS,
                names=[f"c{column}_{row}" for row in range(CORE_ROWS)],
                depths=[1] * CORE_ROWS,
            )
            for row in range(CORE_ROWS):
                self.workers.append(self._worker(a[row].cons(), b[column].cons(), parts[row].prod(), row, column))

    def _worker(self, a: Endpoint, b: Endpoint, c: Endpoint, row: int, column: int) -> Worker:
        m, n = self.gemm.m, self.gemm.n
        acc = Buffer(tensor("f32", m, n), name=f"acc{column}_{row}")
        state, parameters = counters(f"{column}_{row}"), Parameters(f"{column}_{row}")
        self.parameters.append(parameters)
        place = Tile(column, FIRST_CORE_ROW + row)
        arguments = [a, b, c, acc, state, parameters.numbers, parameters.barrier, *self.kernels, row]
        return Worker(_core, arguments, tile=place, stack_size=STACK, name=f"gemm{column}_{row}")


def _core(
    a: Endpoint,
    b: Endpoint,
    c: Endpoint,
    acc: Buffer,
    state: Buffer,
    params: Buffer,
    barrier: Barrier,
    zero: Kernel,
    accumulate: Kernel,
    bias: Kernel,
    residual: Kernel,
    store: Kernel,
    row: int,
) -> None:
    barrier.wait_once()
    for _ in range_(params[_TILES]):
        out = c.acquire(1)
        for _ in range_(params[_HALVES]):
            zero(acc)
            for _ in range_(params[_DEPTH]):
                accumulate(a.acquire(1), b.acquire(1), acc)
                a.release(1)
                b.release(1)
            bias(b.acquire(1), acc, params[_EPILOGUE])
            b.release(1)
            for _ in range_(params[_RESIDUALS]):
                residual(b.acquire(1), acc, state, row, CORE_ROWS)
                b.release(1)
            store(acc, out, state, params[_EPILOGUE])
        c.release(1)


class _Sequence:
    """One product as fills and drains: for each block of rows, all passes over the columns of B."""

    def __init__(self, overlay: _Overlay, rows: int, depth: int, columns: int, epilogue: Epilogue) -> None:
        self.overlay = overlay
        self.gemm = overlay.gemm
        self.depth = depth
        self.epilogue = epilogue
        self.width = columns
        self.halves = 2 if epilogue is Epilogue.GLU else 1
        self.passes = columns // self.gemm.columns // self.halves
        self.blocks = rows // self.gemm.rows
        if self.passes == 0:
            raise DesignError(
                f"GEMM with GLU: {columns} columns, they must be a multiple of {2 * self.gemm.columns}; pad the matrix"
            )

    def run(self, a: HostBuffer, b: HostBuffer, c: HostBuffer, residual: HostBuffer | None = None) -> None:
        self._write_numbers()
        steps = [(block, 0, self.passes) for block in range(self.blocks)]
        if residual is not None:
            steps = [(block, first, 1) for block in range(self.blocks) for first in range(self.passes)]
        before: TaskGroup | None = None
        for block, first, count in steps:
            group = TaskGroup()
            self._step(a, b, c, residual, block, first, count, group)
            if before is not None:
                before.finish()
            before = group
        assert before is not None
        before.finish()

    def _write_numbers(self) -> None:
        pieces = CORE_ROWS * self.gemm.m // self.gemm.k if self.epilogue is Epilogue.RESIDUAL else 0
        values = [self.blocks * self.passes, self.halves, self.depth // self.gemm.k, pieces, int(self.epilogue)]
        for parameters in self.overlay.parameters:
            parameters.send(*values)

    def _step(
        self,
        a: HostBuffer,
        b: HostBuffer,
        c: HostBuffer,
        residual: HostBuffer | None,
        block: int,
        first: int,
        count: int,
        group: TaskGroup,
    ) -> None:
        gemm, depth = self.gemm, self.depth
        m, k, n = gemm.m, gemm.k, gemm.n
        for row, fifo in enumerate(self.overlay.a):
            start = (block * CORE_ROWS + row) * m * depth
            walk = TensorAccessPattern(a.type.shape, start, (count * self.halves, depth // k, m, k), (0, k, depth, 1))
            fifo.prod().fill(a, walk, group=group)
        tiles = (depth // k + 1) * k * n * self.halves
        out = self.width // self.halves
        for column, fifo in enumerate(self.overlay.b):
            start = (column * self.passes + first) * tiles
            fifo.prod().fill(b, linear(b.type.count, start, tiles * count), group=group)
            corner = block * gemm.rows * out + (first * gemm.device.columns + column) * n
            if residual is not None:
                walk = TensorAccessPattern(residual.type.shape, corner, (1, 1, gemm.rows, n), (0, 0, out, 1))
                fifo.prod().fill(residual, walk, group=group)
            walk = TensorAccessPattern(c.type.shape, corner, (count, 1, gemm.rows, n), (gemm.columns, 0, out, 1))
            end = self.overlay.c[column].consumers[0] if self.overlay.c[column].consumers else self.overlay.c[column].cons()
            end.drain(c, walk, wait=True, group=group)
