"""The dataflow interface: fifos, workers, kernels and the host's sequence, named and shaped like `aie.iron`.

A design is written once against these classes. `iron.py` hands it to the real compiler; `lowering` places it and writes the
array's configuration, which `npusim` runs. Tensors are `tensor("bf16", 64, 64)`; walks are `TensorAccessPattern`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from xdna_designs.device import Device, Tile
from xdna_designs.program import (
    Acquire,
    Argument,
    Call,
    Element,
    Load,
    Recorder,
    Release,
    ReleaseBarrier,
    Step,
    WaitBarrier,
    range_,
    steps_of,
)
from xdna_designs.taps import DesignError, TensorAccessPattern, TensorType, linear, tensor

__all__ = [
    "Barrier",
    "Buffer",
    "CascadeFlow",
    "DesignError",
    "Kernel",
    "ObjectFifo",
    "Program",
    "Runtime",
    "TaskGroup",
    "TensorAccessPattern",
    "Tile",
    "Worker",
    "linear",
    "range_",
    "tensor",
]

DEFAULT_STACK: Final = 4096
_order = itertools.count()
Walk = Sequence[tuple[int, int]]
Role = Literal["producer", "consumer"]


class Kernel:
    """A function of an object file. `arg_types`: tensor types, or int for an int32."""

    def __init__(self, name: str, object_file_name: str, arg_types: Sequence[TensorType | type[int]]) -> None:
        self.name = name
        self.object_file_name = object_file_name
        self.arg_types = tuple(arg_types)

    def __call__(self, *arguments: Any) -> None:
        if len(arguments) != len(self.arg_types):
            raise DesignError(f"{self.name} takes {len(self.arg_types)} arguments, not {len(arguments)}")
        for position, (argument, wanted) in enumerate(zip(arguments, self.arg_types, strict=True)):
            self._check(position, argument, wanted)
        Recorder.add(Call(self, tuple(arguments)))

    def _check(self, position: int, argument: Argument, wanted: TensorType | type[int]) -> None:
        if isinstance(wanted, TensorType):
            given = argument.type if isinstance(argument, Element | Buffer) else None
            if given is None or given.dtype != wanted.dtype or given.count != wanted.count:
                raise DesignError(f"argument {position} of {self.name} is {wanted}, not {given or argument}")
        elif not isinstance(argument, int | Load):
            raise DesignError(f"argument {position} of {self.name} is an int")


class Buffer:
    """Memory of one core that stays between calls and dispatches. With `use_write_rtp` the sequence may write it."""

    def __init__(
        self,
        type: TensorType,
        initial_value: Any = None,
        name: str | None = None,
        tile: Tile | None = None,
        use_write_rtp: bool = False,
    ) -> None:
        self.order = next(_order)
        self.type = type
        self.initial_value = initial_value
        self.name = name or f"buffer{self.order}"
        self.tile = tile
        self.use_write_rtp = use_write_rtp
        self.worker: Worker | None = None

    def __getitem__(self, index: int) -> Load:
        if self.type.dtype not in ("i32", "u32"):
            raise DesignError(f"only int32 can be read from {self.name} as a number")
        return Load(self, index)

    def __setitem__(self, index: int, value: int) -> None:
        Sequencer.add(WriteBuffer(self, index, value))


class Barrier:
    """IRON's WorkerRuntimeBarrier: a lock, 0 at first, that the sequence sets and a worker waits for.

    Waiting leaves the value as it is (UG1583), so a worker must move it on before the next dispatch; `wait_once` does.
    """

    def __init__(self) -> None:
        self.order = next(_order)
        self.worker: Worker | None = None

    def wait_for_value(self, value: int) -> None:
        """In a worker: wait until it is exactly `value`."""
        Recorder.add(WaitBarrier(self, value))

    def release_with_value(self, value: int) -> None:
        """In a worker: add `value`."""
        Recorder.add(ReleaseBarrier(self, value))

    def wait_once(self) -> None:
        """In a worker: let one dispatch through.

        Adding 2 blocks the next one whether waiting leaves the value or takes it: sources differ.
        """
        self.wait_for_value(1)
        self.release_with_value(2)

    def open(self) -> None:
        """In the sequence, after the parameters are written: let the worker begin."""
        self.set(1)

    def set(self, value: int) -> None:
        """In the sequence."""
        Sequencer.add(SetBarrier(self, value))


class ObjectFifo:
    """A channel of objects from one producer to one or more consumers, `depth` objects at each end."""

    def __init__(
        self,
        obj_type: TensorType,
        *,
        depth: int = 2,
        name: str | None = None,
        to_stream: Walk | None = None,
        via_dma: bool = False,
    ) -> None:
        self.order = next(_order)
        self.type = obj_type
        self.depth = depth
        self.name = name or f"fifo{self.order}"
        self.to_stream = to_stream
        self.via_dma = via_dma
        self.producer: Endpoint | None = None
        self.consumers: list[Endpoint] = []

    def prod(self, depth: int | None = None, *, channel: int | None = None, tile: Tile | None = None) -> Endpoint:
        """The writing end; there is one."""
        if self.producer is None:
            self.producer = Endpoint(self, "producer", depth or self.depth, channel, tile, None)
        return self.producer

    def cons(
        self, depth: int | None = None, *, from_stream: Walk | None = None, channel: int | None = None, tile: Tile | None = None
    ) -> Endpoint:
        """A new reading end; several make a broadcast."""
        end = Endpoint(self, "consumer", depth or self.depth, channel, tile, from_stream)
        self.consumers.append(end)
        return end


class Endpoint:
    """One end of a fifo: a worker's, a link's or the host's."""

    def __init__(
        self, fifo: ObjectFifo, role: Role, depth: int, channel: int | None, tile: Tile | None, from_stream: Walk | None
    ) -> None:
        self.fifo = fifo
        self.role = role
        self.depth = depth
        self.channel = channel
        self.tile = tile
        self.from_stream = from_stream
        self.worker: Worker | None = None
        self.link: Link | None = None

    @property
    def type(self) -> TensorType:
        """Type of one object."""
        return self.fifo.type

    def __str__(self) -> str:
        return f"{self.role} of {self.fifo.name}"

    def acquire(self, count: int) -> Any:
        """In a worker: one element for 1, else a list of elements."""
        step = Acquire(self, count, next(Recorder.ids))
        Recorder.add(step)
        held = [Element(self, step.id, index) for index in range(count)]
        return held[0] if count == 1 else held

    def release(self, count: int) -> None:
        """In a worker."""
        Recorder.add(Release(self, count))

    def forward(
        self,
        *,
        tile: Tile | None = None,
        obj_type: TensorType | None = None,
        depth: int | None = None,
        name: str | None = None,
        to_stream: Walk | None = None,
    ) -> ObjectFifo:
        """Through a MemTile, object for object, into a new fifo."""
        out = ObjectFifo(
            obj_type or self.type, depth=depth or self.depth, name=name or f"{self.fifo.name}_fwd", to_stream=to_stream
        )
        _link([self], [out.prod(tile=tile)], [0], tile)
        return out

    def split(
        self,
        offsets: Sequence[int],
        *,
        tile: Tile | None = None,
        obj_types: Sequence[TensorType],
        names: Sequence[str] | None = None,
        depths: Sequence[int] | None = None,
        to_stream: Sequence[Walk] | None = None,
    ) -> list[ObjectFifo]:
        """Through a MemTile, each object cut at `offsets` (elements) into parts for as many new fifos."""
        fifos = _parts(self.fifo, obj_types, names, depths, to_stream)
        _link([self], [fifo.prod(tile=tile) for fifo in fifos], list(offsets), tile)
        return fifos

    def join(
        self,
        offsets: Sequence[int],
        *,
        tile: Tile | None = None,
        obj_types: Sequence[TensorType],
        names: Sequence[str] | None = None,
        depths: Sequence[int] | None = None,
    ) -> list[ObjectFifo]:
        """The fifos whose objects, at `offsets`, make one object of this one in a MemTile."""
        fifos = _parts(self.fifo, obj_types, names, depths, None)
        _link([fifo.cons(tile=tile) for fifo in fifos], [self], list(offsets), tile)
        return fifos

    def fill(
        self, source: HostBuffer, tap: TensorAccessPattern | None = None, *, wait: bool = False, group: TaskGroup | None = None
    ) -> None:
        """In the sequence: read `source` along `tap` into this fifo."""
        Sequencer.add(Transfer("fill", self, source, tap or linear(source.type.count), wait, group or Sequencer.default_group()))

    def drain(
        self, dest: HostBuffer, tap: TensorAccessPattern | None = None, *, wait: bool = False, group: TaskGroup | None = None
    ) -> None:
        """In the sequence: write this fifo's objects to `dest` along `tap`."""
        Sequencer.add(Transfer("drain", self, dest, tap or linear(dest.type.count), wait, group or Sequencer.default_group()))


def _parts(
    parent: ObjectFifo,
    types: Sequence[TensorType],
    names: Sequence[str] | None,
    depths: Sequence[int] | None,
    to_stream: Sequence[Walk] | None,
) -> list[ObjectFifo]:
    return [
        ObjectFifo(
            type,
            depth=depths[index] if depths else parent.depth,
            name=names[index] if names else f"{parent.name}_{index}",
            to_stream=to_stream[index] if to_stream else None,
        )
        for index, type in enumerate(types)
    ]


@dataclass(eq=False)
class Link:
    """A MemTile between fifos: one to one, one to many (split) or many to one (join)."""

    inputs: list[Endpoint]
    outputs: list[Endpoint]
    offsets: list[int]
    tile: Tile | None
    order: int = field(default_factory=lambda: next(_order))

    @property
    def whole(self) -> Endpoint:
        """The end with the larger object."""
        return self.inputs[0] if len(self.inputs) == 1 else self.outputs[0]

    @property
    def parts(self) -> list[Endpoint]:
        """The ends with the smaller objects."""
        return self.outputs if len(self.inputs) == 1 else self.inputs


def _link(inputs: list[Endpoint], outputs: list[Endpoint], offsets: list[int], tile: Tile | None) -> None:
    for end in (*inputs, *outputs):
        if end.link is not None:
            raise DesignError(f"the {end} is already part of a link: two links cannot share one fifo end")
    link = Link(inputs, outputs, offsets, tile)
    for end in (*inputs, *outputs):
        end.link = link


class Worker:
    """A core and what it does for ever: `core_fn(*fn_args)`."""

    def __init__(
        self,
        core_fn: Callable[..., None],
        fn_args: Sequence[Any] = (),
        *,
        tile: Tile | None = None,
        stack_size: int = DEFAULT_STACK,
        while_true: bool = True,
        name: str | None = None,
    ) -> None:
        self.order = next(_order)
        self.core_fn = core_fn
        self.fn_args = list(fn_args)
        self.tile = tile
        self.stack_size = stack_size
        self.while_true = while_true
        self.name = name or f"core{self.order}"
        self.body: list[Step] = []
        for argument in self.fn_args:
            if isinstance(argument, Endpoint):
                if argument.worker is not None and argument.worker is not self:
                    raise DesignError(f"the {argument} belongs to two workers")
                argument.worker = self
            elif isinstance(argument, Buffer | Barrier):
                argument.worker = argument.worker or self
        Recorder.enter(self.body)
        try:
            core_fn(*self.fn_args)
        finally:
            Recorder.leave()
        for step in steps_of(self.body):
            if isinstance(step, Call) and step.kernel not in self.fn_args:
                raise DesignError(f"{self.name} calls {step.kernel.name}, which is not among its fn_args")

    @property
    def buffers(self) -> list[Buffer]:
        """Its buffers."""
        return [argument for argument in self.fn_args if isinstance(argument, Buffer)]

    @property
    def barriers(self) -> list[Barrier]:
        """Its barriers."""
        return [argument for argument in self.fn_args if isinstance(argument, Barrier)]

    @property
    def endpoints(self) -> list[Endpoint]:
        """Its ends of fifos."""
        return [argument for argument in self.fn_args if isinstance(argument, Endpoint)]


@dataclass(frozen=True, eq=False)
class CascadeFlow:
    """512 bits a beat from one core to its southern or eastern neighbour.

    A kernel that reads it has a name in `_cascade_in`: the simulator calls it when its sender has sent.
    """

    source: Worker
    destination: Worker


class TaskGroup:
    """Transfers that are waited for, and whose BDs are given back, together."""

    def finish(self) -> None:
        """In the sequence: wait for the group's waited transfers, then free all of it."""
        Sequencer.add(Finish(self))


@dataclass(frozen=True)
class HostBuffer:
    """A host buffer, as the sequence sees it."""

    index: int
    type: TensorType


@dataclass(frozen=True, eq=False)
class Transfer:
    """A fill or a drain."""

    kind: Literal["fill", "drain"]
    endpoint: Endpoint
    argument: HostBuffer
    tap: TensorAccessPattern
    wait: bool
    group: TaskGroup


@dataclass(frozen=True)
class Finish:
    """The end of a task group."""

    group: TaskGroup


@dataclass(frozen=True)
class WriteBuffer:
    """An int32 written into a core's buffer."""

    buffer: Buffer
    index: int
    value: int


@dataclass(frozen=True)
class SetBarrier:
    """A barrier set to a value."""

    barrier: Barrier
    value: int


Order = Transfer | Finish | WriteBuffer | SetBarrier


class Sequencer:
    """Collects the orders of the sequence function that runs at the moment."""

    _orders: list[Order] | None = None
    _group: TaskGroup | None = None

    @classmethod
    def add(cls, order: Order) -> None:
        """Append an order. Raises DesignError outside a sequence."""
        if cls._orders is None:
            raise DesignError("fill, drain, finish and writes belong into the sequence")
        cls._orders.append(order)

    @classmethod
    def default_group(cls) -> TaskGroup:
        """The group of transfers that name none; finished at the sequence's end."""
        cls._group = cls._group or TaskGroup()
        return cls._group

    @classmethod
    def record(cls, function: Callable[..., None], arguments: Sequence[HostBuffer]) -> list[Order]:
        """The orders of one sequence."""
        cls._orders, cls._group = [], None
        try:
            function(*arguments)
            if cls._group is not None:
                cls._orders.append(Finish(cls._group))
            return cls._orders
        finally:
            cls._orders = None


class Runtime:
    """The host's side of one dispatch: `sequence_fn` over host buffers of `fn_args` types.

    `partial`: those of which a dispatch may write a part only, such as caches.
    """

    def __init__(self, sequence_fn: Callable[..., None], fn_args: Sequence[TensorType], *, partial: Sequence[int] = ()) -> None:
        self.partial = frozenset(partial)
        self.sequence_fn = sequence_fn
        self.types = tuple(fn_args)
        self.orders = Sequencer.record(sequence_fn, [HostBuffer(index, type) for index, type in enumerate(fn_args)])


class Program:
    """One configuration of the array and one sequence for it."""

    def __init__(
        self,
        device: Device,
        runtime: Runtime,
        workers: Sequence[Worker],
        cascades: Sequence[CascadeFlow] = (),
        name: str = "main",
    ) -> None:
        self.device = device
        self.runtime = runtime
        self.workers = list(workers)
        self.cascades = list(cascades)
        self.name = name
        self.fifos = self._reachable()

    def _reachable(self) -> list[ObjectFifo]:
        """Fifos of the workers and of the sequence, and what is linked to them, in the order they were made."""
        found: dict[ObjectFifo, None] = {}
        ends = [end for worker in self.workers for end in worker.endpoints]
        ends += [order.endpoint for order in self.runtime.orders if isinstance(order, Transfer)]
        while ends:
            fifo = ends.pop().fifo
            if fifo in found:
                continue
            found[fifo] = None
            for end in ([fifo.producer] if fifo.producer else []) + fifo.consumers:
                if end.link is not None:
                    ends += end.link.inputs + end.link.outputs
        return sorted(found, key=lambda fifo: fifo.order)

    @property
    def links(self) -> list[Link]:
        """Links in the order they were made."""
        found = {end.link: None for fifo in self.fifos for end in [*fifo.consumers, *filter(None, [fifo.producer])] if end.link}
        return sorted(found, key=lambda link: link.order)
