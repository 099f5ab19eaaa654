"""Five designs that were compiled by the real toolchain and ran on a real array, rebuilt on our interface.

Placement is pinned to what the compiler chose, so that even the raw instruction words can be compared.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xdna_designs.dataflow import (
    Endpoint,
    Kernel,
    ObjectFifo,
    Program,
    Runtime,
    TaskGroup,
    TensorAccessPattern,
    Tile,
    Worker,
    range_,
    tensor,
)
from xdna_designs.device import NPU1
from xdna_designs.taps import TensorType

FACTS = Path(__file__).parent.parent / "data" / "referee"
NAMES = ("single_add", "fused_add_add", "gemv_288", "gemm_256_1col", "gemm_512_4col")


def facts(name: str) -> dict[str, Any]:
    """The decoded tables of one design."""
    loaded: dict[str, Any] = json.loads((FACTS / f"{name}.json").read_text())
    return loaded


class Referee:
    """Builds one design with host ends where the compiler put them."""

    def __init__(self, name: str) -> None:
        self.facts = facts(name)
        self.description = self.facts["description"]
        self.fifos: dict[str, ObjectFifo] = {}
        self.shims = {entry["fifo"]: entry["shim"] for entry in self.facts["transfers"] if entry["kind"] != "wait"}

    def host(self, name: str, obj_type: TensorType) -> ObjectFifo:
        """A fifo that the host fills or drains."""
        return self.pin(ObjectFifo(obj_type, name=name))

    def pin(self, fifo: ObjectFifo) -> ObjectFifo:
        """Put the host's end of a fifo on the referee's shim column and channel."""
        self.fifos[fifo.name] = fifo
        column, channel = self.shims[fifo.name]
        end = fifo.prod if channel.startswith("MM2S") else fifo.cons
        end(channel=int(channel[-1]), tile=Tile(column, 0))
        return fifo

    def program(self, workers: list[Worker]) -> Program:
        """The design with the sequence of the description."""
        types = [tensor(arg["dtype"].replace("int", "i"), *arg["shape"]) for arg in self.description["args"]]
        return Program(NPU1, Runtime(self._sequence, types), workers, name=self.facts["design"])

    def _sequence(self, *arguments: Any) -> None:
        groups: dict[int, TaskGroup] = {}
        for order in self.description["sequence"]:
            group = groups.setdefault(order.get("group", 0), TaskGroup())
            if order["op"] == "finish_task_group":
                group.finish()
                continue
            argument = arguments[order["arg"]]
            tap = TensorAccessPattern(argument.type.shape, order["offset"], order["sizes"], order["strides"])
            fifo = self.fifos[order["fifo"]]
            transfer: Callable[..., None] = (
                self._host_end(fifo, order["op"]).fill if order["op"] == "fill" else self._host_end(fifo, "drain").drain
            )
            transfer(argument, tap, wait=order["wait"], group=group)
        if not any(order["op"] == "finish_task_group" for order in self.description["sequence"]):
            groups[0].finish()

    @staticmethod
    def _host_end(fifo: ObjectFifo, kind: str) -> Endpoint:
        return fifo.prod() if kind == "fill" else fifo.consumers[0]


def _add(first: Endpoint, second: Endpoint, out: Endpoint, kernel: Kernel) -> None:
    for _ in range_(4):
        a, b, c = first.acquire(1), second.acquire(1), out.acquire(1)
        kernel(a, b, c)
        for end in (first, second, out):
            end.release(1)


def single_add() -> Program:
    made = Referee("single_add")
    line = tensor("bf16", 1024)
    a, b, c = (made.host(name, line) for name in "ABC")
    kernel = Kernel("eltwise_add_bf16_vector", "add.o", [line, line, line])
    return made.program([Worker(_add, [a.cons(), b.cons(), c.prod(), kernel], tile=Tile(0, 2), stack_size=1024)])


def fused_add_add() -> Program:
    made = Referee("fused_add_add")
    line = tensor("bf16", 1024)
    a, b, c, d = (made.host(name, line) for name in "ABCD")
    t = ObjectFifo(line, name="T")
    kernel = Kernel("eltwise_add_bf16_vector", "add.o", [line, line, line])
    first = Worker(_add, [a.cons(), b.cons(), t.prod(), kernel], tile=Tile(0, 2), stack_size=1024)
    second = Worker(_add, [t.cons(), c.cons(), d.prod(), kernel], tile=Tile(0, 3), stack_size=1024)
    return made.program([first, second])


def gemv_288() -> Program:
    made = Referee("gemv_288")
    block, part, total = tensor("i16", 32, 32), tensor("i16", 32), tensor("i32", 32)
    outer, b, c = made.host("memA0", block), made.host("inB", part), made.host("outC0", total)
    inner = outer.cons(tile=Tile(0, 1)).forward(tile=Tile(0, 1), name="inA0")
    zero = Kernel("zero_i32", "mv_32x32.o", [total])
    product = Kernel("matvec_i16_i32", "mv_32x32.o", [block, part, total])

    def core(rows: Endpoint, column: Endpoint, out: Endpoint, zero: Kernel, product: Kernel) -> None:
        sums = out.acquire(1)
        zero(sums)
        for _ in range_(9):
            product(rows.acquire(1), column.acquire(1), sums)
            rows.release(1)
            column.release(1)
        out.release(1)

    ends = [inner.cons(from_stream=[(32, 2), (16, 64), (2, 1)]), b.cons(), c.prod(), zero, product]
    return made.program([Worker(core, ends, tile=Tile(0, 2), stack_size=1024)])


def _product(a: Endpoint, b: Endpoint, c: Endpoint, zero: Kernel, product: Kernel, tiles: int, depth: int) -> None:
    for _ in range_(tiles):
        sums = c.acquire(1)
        zero(sums)
        for _ in range_(depth):
            product(a.acquire(1), b.acquire(1), sums)
            a.release(1)
            b.release(1)
        c.release(1)


def gemm_256_1col() -> Program:
    made = Referee("gemm_256_1col")
    narrow, wide = tensor("i16", 32, 32), tensor("i32", 32, 32)
    blocks, rows = [(8, 128), (8, 4), (4, 32), (4, 1)], [(8, 128), (4, 4), (8, 16), (4, 1)]
    memory = Tile(0, 1)
    a = made.host("inA", narrow).cons(tile=memory).forward(tile=memory, name="memA", to_stream=blocks)
    b = made.host("inB", narrow).cons(tile=memory).forward(tile=memory, name="memB", to_stream=blocks)
    c = ObjectFifo(wide, name="memC")
    made.pin(c.cons().forward(tile=memory, name="outC", to_stream=rows))
    zero, product = Kernel("zero_i32", "mm.o", [wide]), Kernel("matmul_i16_i32", "mm.o", [narrow, narrow, wide])
    return made.program(
        [Worker(_product, [a.cons(), b.cons(), c.prod(), zero, product, 64, 8], tile=Tile(0, 2), stack_size=3328)]
    )


def gemm_512_4col() -> Program:
    made = Referee("gemm_512_4col")
    left, right, out = tensor("i16", 64, 64), tensor("i16", 64, 32), tensor("i32", 64, 32)
    zero, product = Kernel("zero_i32", "mm.o", [out]), Kernel("matmul_i16_i32", "mm.o", [left, right, out])
    a = [
        made.host(f"A_L3L2_{i}", left)
        .cons()
        .forward(tile=Tile(i, 1), name=f"A_L2L1_{i}", to_stream=[(16, 256), (16, 4), (4, 64), (4, 1)])
        for i in range(4)
    ]
    b, c = [], []
    for j, column in enumerate((1, 0, 2, 3)):
        memory = Tile(column, 1)
        stage = made.host(f"B_L3L2_{j}", right).cons()
        b.append(stage.forward(tile=memory, name=f"B_L2L1_{j}", to_stream=[(16, 128), (8, 4), (4, 32), (4, 1)]))
        whole = ObjectFifo(tensor("i32", 256, 32), name=f"C_L2L3_{j}", to_stream=[(16, 128), (4, 4), (8, 16), (4, 1)])
        made.pin(whole)
        c.append(
            whole.prod().join(
                [0, 2048, 4096, 6144], tile=memory, obj_types=[out] * 4, names=[f"C_L1L2_{j}_{i}" for i in range(4)]
            )
        )
    workers = [
        Worker(
            _product, [a[i].cons(), b[j].cons(), c[j][i].prod(), zero, product, 8 * 2, 8], tile=Tile(i, 2 + j), stack_size=3328
        )
        for i in range(4)
        for j in range(4)
    ]
    return made.program(workers)


BUILD: dict[str, Callable[[], Program]] = {
    "single_add": single_add,
    "fused_add_add": fused_add_add,
    "gemv_288": gemv_288,
    "gemm_256_1col": gemm_256_1col,
    "gemm_512_4col": gemm_512_4col,
}
