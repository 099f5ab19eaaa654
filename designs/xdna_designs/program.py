"""What a core does, as recorded from its Python function: the same constructs that IRON turns into MLIR."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from xdna_designs.taps import DesignError, TensorType

if TYPE_CHECKING:
    from xdna_designs.dataflow import Barrier, Buffer, Endpoint, Kernel


@dataclass(frozen=True)
class Load:
    """A value that a core reads from its buffer: an int argument or a loop's bound."""

    buffer: Buffer
    index: int


@dataclass(frozen=True)
class Element:
    """One object that an `acquire` gave."""

    endpoint: Endpoint
    acquired: int
    index: int

    @property
    def type(self) -> TensorType:
        """Its type."""
        return self.endpoint.type


Value: TypeAlias = "int | Load"
Argument: TypeAlias = "Element | Buffer | int | Load"


@dataclass(frozen=True)
class Acquire:
    """Hold `count` objects of an endpoint."""

    endpoint: Endpoint
    count: int
    id: int


@dataclass(frozen=True)
class Release:
    """Give the oldest `count` held objects on."""

    endpoint: Endpoint
    count: int


@dataclass(frozen=True)
class Call:
    """Run a kernel."""

    kernel: Kernel
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class WaitBarrier:
    """Wait until a barrier has exactly this value, and leave it."""

    barrier: Barrier
    value: int


@dataclass(frozen=True)
class ReleaseBarrier:
    """Add to a barrier's value."""

    barrier: Barrier
    value: int


@dataclass
class Loop:
    """`body`, `count` times."""

    count: Value
    body: list[Step] = field(default_factory=list)


Step: TypeAlias = "Acquire | Release | Call | WaitBarrier | ReleaseBarrier | Loop"


class Recorder:
    """Collects the steps of the core function that runs at the moment."""

    _stack: ClassVar[list[list[Step]]] = []
    ids = itertools.count(1)

    @classmethod
    def add(cls, step: Step) -> None:
        """Append a step. Raises DesignError outside a core function."""
        if not cls._stack:
            raise DesignError("acquire, release and kernel calls belong into a worker's function")
        cls._stack[-1].append(step)

    @classmethod
    def enter(cls, body: list[Step]) -> None:
        """Record into `body` until `leave`."""
        cls._stack.append(body)

    @classmethod
    def leave(cls) -> None:
        """Go back to the body outside."""
        cls._stack.pop()


def range_(count: int | Load) -> Iterator[None]:
    """A loop of the core; a Python range would be unrolled into program memory.

    It gives no counter: nested ones were wrong on a real device (atassis/xdna-engine), so kernels count in their core's memory.
    """
    loop = Loop(count)
    Recorder.add(loop)
    Recorder.enter(loop.body)
    yield None
    Recorder.leave()


def steps_of(body: list[Step]) -> Iterator[Step]:
    """All steps, loops before what is in them."""
    for step in body:
        yield step
        if isinstance(step, Loop):
            yield from steps_of(step.body)
