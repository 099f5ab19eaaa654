"""Twenty designs that must be refused, each for its own reason, with the tile or fifo, the resource and the limit named."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import counts_columns
import numpy as np
import pytest
from simulation import Simulation

from npusim.kernels import Kernels
from npusim.memory import SimulationError
from xdna_designs import kernels as objects
from xdna_designs.catalog import CATALOG, examples
from xdna_designs.checks import problems, verify
from xdna_designs.dataflow import (
    Barrier,
    Buffer,
    CascadeFlow,
    DesignError,
    Endpoint,
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
from xdna_designs.device import DEVICES, NPU2, Device
from xdna_designs.kernels import kernel_object

LINE = tensor("bf16", 64)
COPY = Kernel("copy", "copy.o", [LINE, LINE])


def one_by_one(inp: Endpoint, out: Endpoint, copy: Kernel) -> None:
    copy(inp.acquire(1), out.acquire(1))
    inp.release(1)
    out.release(1)


class Design:
    """Host -> core -> host; tests bend one part of it."""

    def __init__(
        self,
        line: Any = LINE,
        *,
        depth: int = 2,
        out: Any = None,
        core: Any = one_by_one,
        args: tuple[Any, ...] = (),
        **worker: Any,
    ) -> None:
        self.inp, self.out = ObjectFifo(line, name="in", depth=depth), ObjectFifo(out or line, name="out")
        self.copy = Kernel("copy", "copy.o", [line, out or line])
        self.workers = [Worker(core, [self.inp.cons(), self.out.prod(), self.copy, *args], name="w", **worker)]
        self.whole = tensor(line.dtype, line.count * 4)
        self.device: Device = NPU2

    def sequence(self, a: Any, b: Any) -> None:
        self.inp.prod().fill(a)
        self.out.cons().drain(b, wait=True)

    def program(self, sequence: Callable[..., None] | None = None, types: Any = None) -> Program:
        return Program(self.device, Runtime(sequence or self.sequence, types or [self.whole, self.whole]), self.workers)


def too_much_memory() -> Program:
    return Design(tensor("bf16", 9000)).program()


def too_many_channels() -> Program:
    fifos = [ObjectFifo(LINE, name=f"in{index}") for index in range(3)]

    def core(*ends: Any) -> None:
        for end in ends:
            end.acquire(1)
            end.release(1)

    def sequence(a: Any) -> None:
        for fifo in fifos:
            fifo.prod().fill(a)

    return Program(NPU2, Runtime(sequence, [LINE]), [Worker(core, [fifo.cons() for fifo in fifos], tile=Tile(3, 4))])


def too_many_descriptors() -> Program:
    return Design(depth=15).program()


def too_long_a_queue() -> Program:
    design = Design()

    def sequence(a: Any, b: Any) -> None:
        for _ in range(5):
            design.inp.prod().fill(a)
        design.out.cons().drain(b, wait=True)

    return design.program(sequence, [LINE, tensor("bf16", 320)])


def too_many_locks() -> Program:
    barriers = [Barrier() for _ in range(13)]

    def core(inp: Endpoint, out: Endpoint, copy: Kernel, *rest: Barrier) -> None:
        for barrier in rest:
            barrier.wait_once()
        one_by_one(inp, out, copy)

    return Design(core=core, args=tuple(barriers)).program()


def too_high_a_lock() -> Program:
    design = Design(tile=Tile(0, 2))
    small = ObjectFifo(LINE, name="many", depth=64)

    def source(out: Endpoint) -> None:
        out.acquire(1)
        out.release(1)

    def sink(inp: Endpoint) -> None:
        inp.acquire(1)
        inp.release(1)

    more = [Worker(source, [small.prod()], tile=Tile(1, 2)), Worker(sink, [small.cons()], tile=Tile(1, 3))]
    return Program(NPU2, design.program().runtime, [*design.workers, *more])


def too_long_a_step() -> Program:
    design = Design()

    def sequence(a: Any, b: Any) -> None:
        design.inp.prod().fill(a, TensorAccessPattern((1 << 24,), 0, (1, 1, 4, 64), (0, 0, 1 << 22, 1)))
        design.out.cons().drain(b, wait=True)

    return design.program(sequence, [tensor("bf16", 1 << 24), tensor("bf16", 256)])


def half_a_word() -> Program:
    design = Design()

    def sequence(a: Any, b: Any) -> None:
        design.inp.prod().fill(a, TensorAccessPattern((1024,), 0, (1, 1, 64, 1), (0, 0, 2, 1)))
        design.out.cons().drain(b, wait=True)

    return design.program(sequence, [tensor("bf16", 1024), LINE])


def written_twice() -> Program:
    design = Design()

    def sequence(a: Any, b: Any) -> None:
        design.inp.prod().fill(a)
        design.out.cons().drain(b, TensorAccessPattern((256,), 0, (4, 1, 1, 64), (32, 0, 0, 1)), wait=True)

    return design.program(sequence)


def parts_with_a_hole() -> Program:
    whole, half = tensor("bf16", 128), tensor("bf16", 56)
    inp, out = ObjectFifo(whole, name="whole"), ObjectFifo(half, name="out")
    first, second = inp.cons().split([0, 64], obj_types=[half, half], names=["left", "right"])

    def core(a: Endpoint, b: Endpoint, out: Endpoint) -> None:
        for end in (a, b, out):
            end.acquire(1)
            end.release(1)

    def sequence(a: Any, b: Any) -> None:
        inp.prod().fill(a)
        out.cons().drain(b, wait=True)

    return Program(NPU2, Runtime(sequence, [whole, half]), [Worker(core, [first.cons(), second.cons(), out.prod()])])


def unbalanced() -> Program:
    def core(inp: Endpoint, out: Endpoint, copy: Kernel) -> None:
        for _ in range_(4):
            copy(inp.acquire(1), out.acquire(1))
            out.release(1)
        inp.release(1)

    return Design(core=core).program()


def holds_more_than_the_depth() -> Program:
    def core(inp: Endpoint, out: Endpoint, copy: Kernel) -> None:
        copy(inp.acquire(3)[2], out.acquire(1))
        inp.release(3)
        out.release(1)

    return Design(core=core).program()


def half_an_object_walked() -> Program:
    design = Design()
    end = design.workers[0].endpoints[0]
    end.from_stream = [(4, 16), (8, 1)]
    return design.program()


def half_an_object_sent() -> Program:
    design = Design()

    def sequence(a: Any, b: Any) -> None:
        design.inp.prod().fill(a, linear(256, 0, 96))
        design.out.cons().drain(b, wait=True)

    return design.program(sequence)


def fewer_sent_than_taken() -> Program:
    def core(inp: Endpoint, out: Endpoint, copy: Kernel) -> None:
        for _ in range_(2):
            inp.acquire(1)
            inp.release(1)
        copy(inp.acquire(1), out.acquire(1))
        inp.release(1)
        out.release(1)

    return Design(core=core).program()


def cascade_upwards() -> Program:
    design = Design(tile=Tile(0, 2))
    idle = Worker(lambda: None, [], tile=Tile(0, 3), name="above")
    program = design.program()
    return Program(NPU2, program.runtime, [*design.workers, idle], [CascadeFlow(design.workers[0], idle)])


def too_many_host_buffers() -> Program:
    design = Design()

    def sequence(a: Any, b: Any, *rest: Any) -> None:
        design.sequence(a, b)

    return design.program(sequence, [design.whole] * 6)


def wrong_kernel_arguments() -> Program:
    line = tensor("f32", 64)
    wrong = Kernel("cast", kernel_object("cast"), [line, line])

    def core(inp: Endpoint, out: Endpoint, copy: Kernel, wrong: Kernel) -> None:
        wrong(inp.acquire(1), out.acquire(1))
        inp.release(1)
        out.release(1)

    return Design(line, core=core, args=(wrong,)).program()


def nothing_waited_for() -> Program:
    design = Design()

    def sequence(a: Any, b: Any) -> None:
        design.inp.prod().fill(a)
        design.out.cons().drain(b)

    return design.program(sequence)


def group_never_finished() -> Program:
    design = Design()

    def sequence(a: Any, b: Any) -> None:
        design.inp.prod().fill(a, group=TaskGroup())
        design.out.cons().drain(b, wait=True)

    return design.program(sequence)


def blocks_that_do_not_divide() -> Program:
    row = tensor("bf16", 72)
    kernel = Kernel("softmax", kernel_object("softmax", DIM_COLUMNS=72), [row, row, int])

    def core(inp: Endpoint, out: Endpoint, copy: Kernel, softmax: Kernel) -> None:
        softmax(inp.acquire(1), out.acquire(1), 72)
        inp.release(1)
        out.release(1)

    return Design(row, core=core, args=(kernel,)).program()


def a_python_loop() -> Program:
    def core(inp: Endpoint, out: Endpoint, copy: Kernel) -> None:
        for _ in range(200):
            one_by_one(inp, out, copy)

    return Design(core=core).program()


def uneven_receivers() -> Program:
    inp, outs = ObjectFifo(LINE, name="in"), [ObjectFifo(LINE, name=f"out{index}") for index in range(2)]

    def core(inp: Endpoint, out: Endpoint, copy: Kernel, count: int) -> None:
        for _ in range_(count):
            one_by_one(inp, out, copy)

    def sequence(a: Any, b: Any, c: Any) -> None:
        inp.prod().fill(a)
        for out, result in zip(outs, (b, c), strict=True):
            out.cons().drain(result, wait=True)

    workers = [Worker(core, [inp.cons(), out.prod(), COPY, 4 - 2 * index]) for index, out in enumerate(outs)]
    return Program(NPU2, Runtime(sequence, [tensor("bf16", 256)] * 3), workers)


def too_long_a_dispatch() -> Program:
    design = Design()
    big = tensor("bf16", 1 << 27)

    def sequence(a: Any, b: Any) -> None:
        design.inp.prod().fill(a, TensorAccessPattern((1 << 27,), 0, (128, 1, 1, 1 << 27), (0, 0, 0, 1)))
        design.out.cons().drain(b, wait=True)

    return design.program(sequence, [big, LINE])


def unguarded_parameters() -> Program:
    params = Buffer(tensor("i32", 8), initial_value=np.zeros(8, np.int32), name="params", use_write_rtp=True)

    def core(inp: Endpoint, out: Endpoint, copy: Kernel, params: Buffer) -> None:
        for _ in range_(params[0]):
            one_by_one(inp, out, copy)

    design = Design(core=core, args=(params,))

    def sequence(a: Any, b: Any) -> None:
        params[0] = 4
        design.sequence(a, b)

    return design.program(sequence)


def a_column_that_is_not_there() -> Program:
    return Design(tile=Tile(8, 2)).program()


def counted_columns() -> Program:
    design = Design(tile=Tile(0, 3))
    return Program(NPU2, design.program().runtime, [*design.workers, *counts_columns.workers()])


REFUSED: dict[str, tuple[Callable[[], Program], str]] = {
    "1": (too_much_memory, r"tile \(0, 2\) has 65536 bytes of memory, stack and buffers need \d+"),
    "2": (too_many_channels, r"in2: tile \(3, 4\) has 2 S2MM channels"),
    "3 descriptors": (too_many_descriptors, r"tile \(0, 2\) has 16 BDs for its channels, 17 are needed"),
    "3 queue": (too_long_a_queue, r"shim tile \(0, 0\): 5 tasks on the queue at 0x1d214 before a wait, the limit is 4"),
    "4 count": (too_many_locks, r"a barrier of w: tile \(0, 2\) has 16 locks"),
    "4 value": (too_high_a_lock, r"tile \(1, 2\): lock 0 starts at 64, the limit is 63"),
    "5": (too_long_a_step, r"in: shim tile \(0, 0\): step1 = \d+ needs more than 20 bits"),
    "6 grain": (half_a_word, r"the transfer of in: an innermost run of 1 bf16 is no whole number of 32-bit words"),
    "6 overlap": (written_twice, r"host buffer 1: 96 elements are written twice"),
    "7": (parts_with_a_hole, r"whole: parts at \[0, 64\] do not fill 128 elements exactly once"),
    "8 balance": (unbalanced, r"w: each turn of a loop leaves 1 objects of in more"),
    "8 depth": (holds_more_than_the_depth, r"w: holds 3 objects of in, its depth is 2"),
    "9": (half_an_object_walked, r"in on tile \(0, 2\): its walk visits 32 elements, an object has 64"),
    "10 object": (half_an_object_sent, r"in: a fill of 96 elements is no whole number of bf16\[64\] objects"),
    "10 rounds": (fewer_sent_than_taken, r"w: the sequence sends in for 1.33333 rounds, out for 4 rounds"),
    "11": (
        cascade_upwards,
        r"the cascade from tile \(0, 2\) to tile \(0, 3\): it goes to the southern or eastern neighbour only",
    ),
    "12 buffers": (too_many_host_buffers, r"6 host buffers, an xclbin kernel takes 5"),
    "12 kernel": (wrong_kernel_arguments, r"cast: declared with 2 arguments, cast.cc has 3"),
    "13 wait": (nothing_waited_for, r"out: the last 1 drains are not waited for"),
    "13 group": (group_never_finished, r"a task group with 1 transfers is never finished"),
    "15": (blocks_that_do_not_divide, r"softmax.DIM_COLUMNS=72.o: DIM_COLUMNS must be a multiple of 16"),
    "16": (a_python_loop, r"w: 1000 steps written out; use range_ instead of range"),
    "17": (uneven_receivers, r"in: its receivers take \['2', '4'\] objects a round"),
    "18": (too_long_a_dispatch, r"a predicted 0.73 s a dispatch, the limit is 0.5 s"),
    "19": (unguarded_parameters, r"w: reads params without waiting for a barrier first"),
    "20 column": (a_column_that_is_not_there, r"npu2 has no tile \(8, 2\): columns 0-7"),
    "20 table": (counted_columns, r"for column in range\(8\) belongs into device.py"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    build, wanted = REFUSED[name]
    try:
        found = problems(build())
    except DesignError as error:
        found = [str(error)]
    assert any(re.search(wanted, problem) for problem in found), found


def test_14_kernels_that_do_not_set_rounding_or_use_what_a_core_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = examples("layer_norm", NPU2)[0]
    assert problems(program) == []
    copy = tmp_path / "kernels"
    shutil.copytree(objects.sources(), copy)
    monkeypatch.setattr(objects, "sources", lambda: copy)
    path = copy / "layer_norm.cc"
    good = path.read_text()
    line = "  aie::set_rounding(aie::rounding_mode::conv_even);\n"
    for old, new, wanted in (
        (line, "", "layer_norm does not set the rounding mode"),
        (line, line + "  double x = 0;\n", "double has no place in a core's program"),
        (line, line + "  float rows[DIM_D];\n", "rows is a large array on a stack of 4 KB"),
        (line, line + "  for (unsigned i = 0; i < 4; ++i) {\n    float x = i * 0.5F;\n  }\n", "x is a scalar float in a loop"),
        ("Stack: 512 B", "Stack: 8192 B", "a stack of 4096 bytes, its kernels need 8192"),
    ):
        path.write_text(good.replace(old, new))
        assert any(wanted in problem for problem in problems(program)), wanted


def test_every_number_of_the_list_has_its_design() -> None:
    assert {name.split()[0] for name in REFUSED} | {"14"} == {str(number) for number in range(1, 21)}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CATALOG)
def test_shipped_designs_pass_all(name: str, device: str) -> None:
    for program in examples(name, DEVICES[device]):
        verify(program)


def test_a_bd_rewritten_while_it_runs_is_caught_by_the_simulator() -> None:
    """A group that frees what nobody waited for is a race on the chip."""
    design = Design()

    def sequence(a: Any, b: Any) -> None:
        group = TaskGroup()
        design.inp.prod().fill(a, group=group)
        group.finish()
        design.inp.prod().fill(a)
        design.out.cons().drain(b, wait=True)

    program = design.program(sequence, [tensor("bf16", 256), tensor("bf16", 512)])

    def copy(a: Any, b: Any) -> None:
        b[:] = a

    with pytest.raises(SimulationError, match=r"BD 0 of shim tile \(0, 0\) is rewritten"):
        Simulation(program, Kernels(21, {"copy": copy})).run([np.zeros(256, np.uint16), np.zeros(512, np.uint16)])
