"""Designs through AMD's own toolchain: a program as `aie.iron` calls, for two generations of that API.

The only file that imports aie. Generation A is mlir-aie of March 2026 (1.2), C is 1.4.4 and newer. Not compiled by us: tests
run this against a recorder that knows the exact signatures of both.
"""

import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, Protocol

import numpy as np

from xdna_designs.dataflow import (
    Barrier,
    Buffer,
    Endpoint,
    Finish,
    Kernel,
    Link,
    ObjectFifo,
    Program,
    SetBarrier,
    Transfer,
    Worker,
    WriteBuffer,
)
from xdna_designs.device import Tile
from xdna_designs.program import Acquire, Argument, Call, Element, Load, Loop, Release, ReleaseBarrier, Step, WaitBarrier
from xdna_designs.taps import DesignError, TensorAccessPattern, TensorType

Generation = Literal["A", "C"]
GENERATIONS: Final[tuple[Generation, ...]] = ("A", "C")
_DTYPES: Final = {"f32": np.float32, "i16": np.int16, "i32": np.int32, "u32": np.uint32}
_Walk = Sequence[tuple[int, int]]


def emit(program: Program, generation: Generation) -> Any:
    """The MLIR module of a program. Raises DesignError when mlir-aie is not installed, or is of another generation."""
    try:
        adapter: Adapter = _GenerationA() if generation == "A" else _GenerationC()
    except (ImportError, AttributeError) as error:
        raise DesignError(
            f"mlir-aie of generation {generation} is not installed ({error}); see docs/npu.md for its wheels"
        ) from error
    return _Emitter(program, adapter).run()


class Adapter(Protocol):
    """What differs between generations."""

    iron: Any
    device: Any
    range_: Callable[..., Iterable[Any]]

    def fifo(self, fifo: ObjectFifo, obj_type: Any) -> Any:
        """A fifo between a producer and consumers."""

    def place(self, tile: Any) -> dict[str, Any]:
        """The keyword that pins something to a tile; empty for None."""

    def walk(self, fifo: ObjectFifo) -> dict[str, Any]:
        """The keyword for a fifo's walk."""

    def handle(self, fifo: Any, end: Endpoint, tile: Any) -> Any:
        """A fifo's end."""

    def worker(self, worker: Worker, core_fn: Callable[..., None], arguments: list[Any], tile: Any) -> Any:
        """A worker."""

    def buffer(self, buffer: Buffer, obj_type: Any) -> Any:
        """A core's buffer."""

    def program(self, emitter: "_Emitter", workers: list[Any]) -> Any:
        """The whole, resolved to MLIR."""


class _Emitter:
    def __init__(self, program: Program, adapter: Adapter) -> None:
        self.source = program
        self.adapter = adapter
        self.iron = adapter.iron
        self._fifos: dict[ObjectFifo, Any] = {}
        self._handles: dict[Endpoint, Any] = {}
        self._kernels: dict[tuple[str, str], Any] = {}
        self.made: dict[Buffer | Barrier, Any] = {}

    def run(self) -> Any:
        workers = [self._worker(worker) for worker in self.source.workers]
        for flow in self.source.cascades:
            at = self.source.workers.index
            self.iron.CascadeFlow(workers[at(flow.source)], workers[at(flow.destination)])
        return self.adapter.program(self, workers)

    def type(self, kind: TensorType) -> Any:
        """IRON's spelling of a type."""
        if kind.dtype == "bf16":
            dtype: Any = importlib.import_module("ml_dtypes").bfloat16
        else:
            dtype = _DTYPES[kind.dtype]
        return np.ndarray.__class_getitem__((kind.shape, np.dtype[dtype]))

    def tile(self, tile: Tile | None) -> Any:
        """IRON's tile, or None."""
        return None if tile is None else self.adapter.device.Tile(tile.column, tile.row)

    def fifo(self, fifo: ObjectFifo) -> Any:
        """The fifo, made as itself or by the link it comes from."""
        if fifo not in self._fifos:
            producer = fifo.prod()
            joined = next((end.link for end in fifo.consumers if end.link and len(end.link.inputs) > 1), None)
            if joined is not None:
                whole = self.handle(joined.outputs[0])
                options = self.adapter.place(self.tile(joined.tile))
                self._keep(joined.inputs, whole.join(list(joined.offsets), **options, **self.parts(joined)))
            elif producer.link is not None and len(producer.link.inputs) == 1:
                self._after(producer.link)
            else:
                self._fifos[fifo] = self.adapter.fifo(fifo, self.type(fifo.type))
        return self._fifos[fifo]

    def _after(self, link: Link) -> None:
        source = self.handle(link.inputs[0])
        options = self.adapter.place(self.tile(link.tile))
        if len(link.outputs) > 1:
            self._keep(link.outputs, source.split(list(link.offsets), **options, **self.parts(link)))
            return
        fifo = link.outputs[0].fifo
        told = {"obj_type": self.type(fifo.type), "depth": fifo.depth, "name": fifo.name}
        self._fifos[fifo] = source.forward(**options, **told, **self.adapter.walk(fifo))

    def _keep(self, ends: list[Endpoint], made: list[Any]) -> None:
        for end, fifo in zip(ends, made, strict=True):
            self._fifos[end.fifo] = fifo

    def parts(self, link: Link) -> dict[str, Any]:
        """What split and join are told about their parts."""
        fifos = [part.fifo for part in link.parts]
        return {
            "depths": [fifo.depth for fifo in fifos],
            "obj_types": [self.type(fifo.type) for fifo in fifos],
            "names": [fifo.name for fifo in fifos],
        }

    def handle(self, end: Endpoint) -> Any:
        """One end of a fifo."""
        if end not in self._handles:
            self._handles[end] = self.adapter.handle(self.fifo(end.fifo), end, self.tile(end.tile if end.link is None else None))
        return self._handles[end]

    def _worker(self, worker: Worker) -> Any:
        originals = [argument for argument in worker.fn_args if isinstance(argument, Endpoint | Buffer | Barrier | Kernel)]
        arguments = [self._argument(original) for original in originals]

        def core(*given: Any) -> None:
            _Replay(dict(zip(originals, given, strict=True)), self.adapter.range_).steps(worker.body)

        return self.adapter.worker(worker, core, arguments, self.tile(worker.tile))

    def _argument(self, original: Any) -> Any:
        if isinstance(original, Endpoint):
            return self.handle(original)
        if isinstance(original, Kernel):
            key = (original.object_file_name, original.name)
            if key not in self._kernels:
                types = [self.type(kind) if isinstance(kind, TensorType) else np.int32 for kind in original.arg_types]
                self._kernels[key] = self.iron.Kernel(original.name, original.object_file_name, types)
            return self._kernels[key]
        if original not in self.made:
            is_buffer = isinstance(original, Buffer)
            self.made[original] = (
                self.adapter.buffer(original, self.type(original.type)) if is_buffer else self.iron.WorkerRuntimeBarrier()
            )
        return self.made[original]


class _Replay:
    """Says a worker's steps again, to IRON, inside its core function."""

    def __init__(self, given: dict[Any, Any], range_: Callable[..., Iterable[Any]]) -> None:
        self._given = given
        self._range = range_
        self._held: dict[int, Any] = {}
        self._counts: dict[int, int] = {}

    def steps(self, body: list[Step]) -> None:
        for step in body:
            match step:
                case Acquire(endpoint, count, number):
                    self._held[number] = self._given[endpoint].acquire(count)
                    self._counts[number] = count
                case Release(endpoint, count):
                    self._given[endpoint].release(count)
                case Call(kernel, arguments):
                    self._given[kernel](*(self._value(argument) for argument in arguments))
                case WaitBarrier(barrier, value):
                    self._given[barrier].wait_for_value(value)
                case ReleaseBarrier(barrier, value):
                    self._given[barrier].release_with_value(value)
                case Loop():
                    for _ in self._range(self._value(step.count)):
                        self.steps(step.body)

    def _value(self, argument: Argument) -> Any:
        match argument:
            case Element(_, number, index):
                return self._held[number] if self._counts[number] == 1 else self._held[number][index]
            case Load(buffer, index):
                return self._given[buffer][index]
            case Buffer():
                return self._given[argument]
            case _:
                return argument


def _pattern(taplib: Any, tap: TensorAccessPattern) -> Any:
    """Always four dimensions: generation A takes the first of four for the repetition."""
    missing = 4 - len(tap.sizes)
    return taplib.TensorAccessPattern(
        tap.tensor_dims, tap.offset, [1] * missing + list(tap.sizes), [0] * missing + list(tap.strides)
    )


class _GenerationA:
    """mlir-aie of March 2026."""

    def __init__(self) -> None:
        self.iron = importlib.import_module("aie.iron")
        self.device = importlib.import_module("aie.iron.device")
        self.range_ = importlib.import_module("aie.iron.controlflow").range_
        self._placer = importlib.import_module("aie.iron.placers").SequentialPlacer
        self._taplib = importlib.import_module("aie.helpers.taplib")

    def fifo(self, fifo: ObjectFifo, obj_type: Any) -> Any:
        return self.iron.ObjectFifo(obj_type, depth=fifo.depth, name=fifo.name, **self.walk(fifo))

    def place(self, tile: Any) -> dict[str, Any]:
        return {} if tile is None else {"placement": tile}

    def walk(self, fifo: ObjectFifo) -> dict[str, Any]:
        return {"dims_to_stream": _pairs(fifo.to_stream)}

    def handle(self, fifo: Any, end: Endpoint, tile: Any) -> Any:
        del tile  # the shim tile is named by fill and drain
        if end.role == "producer":
            return fifo.prod(depth=end.depth)
        return fifo.cons(depth=end.depth, dims_from_stream=_pairs(end.from_stream))

    def worker(self, worker: Worker, core_fn: Callable[..., None], arguments: list[Any], tile: Any) -> Any:
        return self.iron.Worker(
            core_fn, arguments, while_true=worker.while_true, stack_size=worker.stack_size, **self.place(tile)
        )

    def buffer(self, buffer: Buffer, obj_type: Any) -> Any:
        value = buffer.initial_value
        return self.iron.Buffer(type=obj_type, initial_value=value, name=buffer.name, use_write_rtp=buffer.use_write_rtp)

    def program(self, emitter: _Emitter, workers: list[Any]) -> Any:
        source = emitter.source
        runtime = self.iron.Runtime()
        groups: dict[Any, Any] = {}
        with runtime.sequence(*(emitter.type(kind) for kind in source.runtime.types)) as given:
            buffers = [given] if len(source.runtime.types) == 1 else list(given)
            runtime.start(*workers)
            for order in source.runtime.orders:
                match order:
                    case Transfer():
                        if order.group not in groups:
                            groups[order.group] = runtime.task_group()
                        self._transfer(emitter, runtime, order, buffers, groups[order.group])
                    case Finish(group):
                        runtime.finish_task_group(groups.pop(group))
                    case WriteBuffer(buffer, index, value):
                        runtime.inline_ops(_write(index, value), [emitter.made[buffer]])
                    case SetBarrier(barrier, value):
                        runtime.set_barrier(emitter.made[barrier], value)
        device = getattr(self.device, source.device.name.upper())()
        return self.iron.Program(device, runtime).resolve_program(self._placer())

    def _transfer(self, emitter: _Emitter, runtime: Any, order: Transfer, buffers: list[Any], group: Any) -> None:
        end, tap = emitter.handle(order.endpoint), _pattern(self._taplib, order.tap)
        place = self.place(emitter.tile(order.endpoint.tile))
        move = runtime.fill if order.kind == "fill" else runtime.drain
        move(end, buffers[order.argument.index], tap, task_group=group, wait=order.wait, **place)


class _GenerationC:
    """mlir-aie 1.4.4 and newer."""

    def __init__(self) -> None:
        self.iron = importlib.import_module("aie.iron")
        self.device = importlib.import_module("aie.iron.device")
        self.range_ = importlib.import_module("aie.iron.controlflow").range_
        self._taplib = importlib.import_module("aie.helpers.taplib")
        self._group = self.iron.TaskGroup

    def _tap(self, walk: _Walk | None, count: int) -> Any:
        if walk is None:
            return None
        return self._taplib.TensorAccessPattern([count], 0, [size for size, _ in walk], [stride for _, stride in walk])

    def fifo(self, fifo: ObjectFifo, obj_type: Any) -> Any:
        return self.iron.ObjectFifo(obj_type, depth=fifo.depth, name=fifo.name, via_DMA=fifo.via_dma, **self.walk(fifo))

    def place(self, tile: Any) -> dict[str, Any]:
        return {} if tile is None else {"tile": tile}

    def walk(self, fifo: ObjectFifo) -> dict[str, Any]:
        return {"to_stream": self._tap(fifo.to_stream, _walked(fifo))}

    def handle(self, fifo: Any, end: Endpoint, tile: Any) -> Any:
        if end.role == "producer":
            return fifo.prod(depth=end.depth, channel=end.channel, tile=tile)
        return fifo.cons(depth=end.depth, from_stream=self._tap(end.from_stream, end.type.count), channel=end.channel, tile=tile)

    def worker(self, worker: Worker, core_fn: Callable[..., None], arguments: list[Any], tile: Any) -> Any:
        return self.iron.Worker(
            core_fn, arguments, while_true=worker.while_true, stack_size=worker.stack_size, **self.place(tile)
        )

    def buffer(self, buffer: Buffer, obj_type: Any) -> Any:
        value = buffer.initial_value
        return self.iron.Buffer(type=obj_type, initial_value=value, name=buffer.name, use_write_rtp=buffer.use_write_rtp)

    def program(self, emitter: _Emitter, workers: list[Any]) -> Any:
        source = emitter.source
        count = len(source.runtime.types)
        ends = list(dict.fromkeys(order.endpoint for order in source.runtime.orders if isinstance(order, Transfer)))

        def sequence(*given: Any) -> None:
            handles = dict(zip(ends, given[count:], strict=True))
            groups: dict[Any, Any] = {}
            for order in source.runtime.orders:
                match order:
                    case Transfer():
                        if order.group not in groups:
                            groups[order.group] = self._group()
                        handle = handles[order.endpoint]
                        move = handle.fill if order.kind == "fill" else handle.drain
                        pattern = _pattern(self._taplib, order.tap)
                        move(given[order.argument.index], tap=pattern, wait=order.wait, group=groups[order.group])
                    case Finish(group):
                        groups.pop(group).finish()
                    case WriteBuffer(buffer, index, value):
                        emitter.made[buffer][index] = value
                    case SetBarrier(barrier, value):
                        emitter.made[barrier].set(value)

        types = [emitter.type(kind) for kind in source.runtime.types]
        runtime = self.iron.Runtime(sequence, [*types, *(emitter.handle(end) for end in ends)])
        device = getattr(self.device, source.device.name.upper())()
        return self.iron.Program(device, runtime, workers=workers).resolve_program()


def _pairs(walk: _Walk | None) -> list[tuple[int, int]] | None:
    return None if walk is None else [(size, stride) for size, stride in walk]


def _walked(fifo: ObjectFifo) -> int:
    """Elements that one walk visits: a part, where the fifo is joined from parts."""
    return int(np.prod([size for size, _ in fifo.to_stream])) if fifo.to_stream else fifo.type.count


def _write(index: int, value: int) -> Callable[..., None]:
    def write(*buffers: Any) -> None:
        buffers[0][index] = value

    return write
