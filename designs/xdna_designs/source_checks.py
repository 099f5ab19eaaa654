"""The static checks that look at sources: kernels, and the modules of designs."""

import inspect
import re
from pathlib import Path
from typing import Final

import numpy as np

from xdna_designs.dataflow import Kernel, Worker
from xdna_designs.device import PROGRAM_BUDGET
from xdna_designs.kernels import parse_object
from xdna_designs.lowering import Configuration
from xdna_designs.program import Call, Loop, Step, steps_of
from xdna_designs.taps import Problems

_CALL_BYTES: Final = 64
_LOCK_BYTES: Final = 32
_LOOP_BYTES: Final = 32
_STATEMENT_BYTES: Final = 32
_START_BYTES: Final = 1024
_FOREIGN_BYTES: Final = 512
_MAX_STEPS: Final = 400
_MAX_LOCAL_BYTES: Final = 48


def kernels_set_rounding(configuration: Configuration) -> Problems:
    """14: every function of a kernel sets conv_even first, itself or in the template it hands on to; integers alone need not."""
    for path in sorted(_sources(configuration)):
        text = _without_comments(path.read_text("utf-8"))
        for name, body in _functions(text):
            called = re.search(r"\{ (\w+)<", body)
            if called:
                body = text[text.index(f"void {called[1]}(") :]  # noqa: PLW2901
            helpers = re.findall(r"^[\w:]+ (\w+)\(", text, re.MULTILINE)
            computes = "aie::" in body or any(f"{helper}(" in body.split("{", 1)[-1] for helper in helpers)
            if computes and "set_rounding(aie::rounding_mode::conv_even)" not in body:
                yield f"{path.name}: {name} does not set the rounding mode, which may be anything"


def blocks_divide(configuration: Configuration) -> Problems:
    """15: tile sizes are whole blocks of the matrix unit, rows whole vectors."""
    r, s, t = (4, 8, 4) if configuration.device.generation == "aie2" else (8, 8, 8)
    for worker in configuration.program.workers:
        for kernel in kernels_of(worker):
            defines = dict(parse_object(kernel.object_file_name).defines)
            grains = {
                "DIM_M": 2 * r,
                "DIM_K": s,
                "DIM_N": 2 * t,
                "DIM_D": 16,
                "DIM_C": 16,
                "DIM_S": 16,
                "DIM_H": 16,
                "DIM_COLUMNS": 16,
            }
            for name, grain in grains.items():
                if defines.get(name, grain) % grain:
                    yield f"{kernel.object_file_name}: {name} must be a multiple of {grain}"


def programs_fit(configuration: Configuration) -> Problems:
    """16: estimated program size, and nothing in a kernel that the core has no code for."""
    for worker, tile in configuration.places.items():
        steps = sum(1 for _ in steps_of(worker.body))
        if steps > _MAX_STEPS:
            yield f"{worker.name}: {steps} steps written out; use range_ instead of range"
        size = program_bytes(worker)
        if size > PROGRAM_BUDGET:
            yield f"tile {tile}: an estimated {size} bytes of program, the budget is {PROGRAM_BUDGET}"
    for path in sorted(_sources(configuration)):
        text = _without_comments(path.read_text("utf-8"))
        for what in (
            r"\bdouble\b",
            r"\bnew\b",
            r"\bmalloc\b",
            r"\bthrow\b",
            r"std::(exp|log|sqrt|sin|pow)\b",
            r"\b(expf|sqrtf|tanhf)\b",
        ):
            found = re.search(what, text)
            if found:
                yield f"{path.name}: {found[0]} has no place in a core's program"
        for declared in re.finditer(r"^\s+(?:float|bfloat16) (\w+)\[(\w+)\];", text, re.MULTILINE):
            if not declared[2].isdigit() or int(declared[2]) * 4 > _MAX_LOCAL_BYTES:
                yield f"{path.name}: {declared[1]} is a large array on a stack of 4 KB"
        for declared in re.finditer(r"for \([^{]*\{[^}]*?\n\s+float (\w+) = (?!aie::reduce_)", text):
            yield f"{path.name}: {declared[1]} is a scalar float in a loop; the core has no unit for it"


def program_bytes(worker: Worker) -> int:
    """A rough size of a core's program: steps, unrolled as the compiler does, and two bundles a statement of its kernels.

    Two bundles are fitted to nothing; the compiler's figures will replace them.
    """
    unrolled = sum(_step_bytes(step) for step in steps_of(worker.body)) * _unroll(worker)
    return _START_BYTES + unrolled + sum(_object_bytes(name) for name in {k.object_file_name for k in kernels_of(worker)})


def devices_differ_in_one_table(configuration: Configuration) -> Problems:
    """20: a design's source names no device and counts no columns; device.py does."""
    files = {inspect.getsourcefile(worker.core_fn) for worker in configuration.program.workers}
    for name in sorted(filter(None, files)):
        found = re.search(r"\bNPU[12]\b|\bcolumns? [=!]= \d|for \w+ in range\([48]\)", Path(name).read_text("utf-8"))
        if found:
            yield f"{Path(name).name}: {found[0]} belongs into device.py, the one table of what npu1 and npu2 have"


def kernels_of(worker: Worker) -> set[Kernel]:
    """The kernels a worker calls."""
    return {step.kernel for step in steps_of(worker.body) if isinstance(step, Call)}


def stack_of(kernel: Kernel) -> int:
    """Bytes of stack a kernel's contract allows it; 0 when its source is not ours."""
    wanted = parse_object(kernel.object_file_name)
    return wanted.stack if wanted.path.exists() else 0


def _step_bytes(step: Step) -> int:
    return _CALL_BYTES if isinstance(step, Call) else _LOOP_BYTES if isinstance(step, Loop) else _LOCK_BYTES


def _unroll(worker: Worker) -> int:
    return int(np.lcm.reduce([end.depth for end in worker.endpoints] or [1]))


def _object_bytes(file_name: str) -> int:
    """Statements of a kernel's source, helpers and all; loops and branches end in braces and are not counted."""
    path = parse_object(file_name).path
    if not path.exists():
        return _FOREIGN_BYTES
    text = _without_comments(path.read_text("utf-8"))
    return _STATEMENT_BYTES * text.count(";")


def _sources(configuration: Configuration) -> set[Path]:
    found = {
        parse_object(kernel.object_file_name).path for worker in configuration.program.workers for kernel in kernels_of(worker)
    }
    return {path for path in found if path.exists()}


def _functions(text: str) -> list[tuple[str, str]]:
    """The extern "C" functions of a kernel source, each with its text."""
    exported = text[text.index('extern "C"') :]
    starts = list(re.finditer(r"\bvoid (\w+)\(", exported))
    ends = [*(match.start() for match in starts[1:]), len(exported)]
    return [(match[1], exported[match.start() : end]) for match, end in zip(starts, ends, strict=True)]


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text)
