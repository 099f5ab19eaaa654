"""A core: runs the steps its worker recorded, with the real kernels on simulated local memory."""

import ctypes
from collections import deque
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npusim.kernels import Core as Registers
from npusim.kernels import KernelError, Kernels
from npusim.memory import SimulationError
from npusim.schedule import Agent, Lock, Scheduler, Steps, Waitable
from npusim.trace import Trace
from xdna_designs import cost
from xdna_designs.dataflow import Buffer, Endpoint, Worker
from xdna_designs.device import Device, Tile
from xdna_designs.kernels import parse_object
from xdna_designs.lowering import Configuration
from xdna_designs.program import Acquire, Argument, Call, Element, Load, Loop, Release, ReleaseBarrier, Step, Value, WaitBarrier
from xdna_designs.taps import TensorType

_NUMPY = {"bf16": np.uint16, "f32": np.float32, "i16": np.int16, "i32": np.int32, "u32": np.uint32}


class CascadeBeats(Waitable):
    """Beats on their way from one core to its neighbour."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def describe(self) -> str:
        return f"data from {self.name} over the cascade"


class End:
    """A worker's end of a fifo: which slots it holds."""

    def __init__(
        self, end: Endpoint, base: int, memory: NDArray[np.uint32], addresses: list[int], take: Lock, give: Lock
    ) -> None:
        self.name = end.fifo.name
        self.pointers = [base + address for address in addresses]
        self.memory = memory
        self.addresses = addresses
        self.take = take
        self.give = give
        self.next = 0
        self.held: deque[int] = deque()


class CoreAgent(Agent):
    """One worker on its tile."""

    def __init__(
        self,
        worker: Worker,
        configuration: Configuration,
        memories: dict[Tile, NDArray[np.uint32]],
        locks: dict[Tile, dict[int, Lock]],
        kernels: Kernels,
        scheduler: Scheduler,
        trace: Trace,
    ) -> None:
        self.tile = configuration.places[worker]
        super().__init__(f"core {self.tile} ({worker.name})")
        self.worker = worker
        self.registers = Registers()
        self._configuration = configuration
        self._memories = memories
        self._kernels = kernels
        self._scheduler = scheduler
        self._trace = trace
        self._device: Device = configuration.device
        self._ends = {end: self._open(end, locks) for end in worker.endpoints}
        self._barriers = {barrier: locks[place[0]][place[1]] for barrier, place in configuration.barriers.items()}
        self._slots: dict[int, list[int]] = {}
        self.beats_in: CascadeBeats | None = None
        self.beats_out: CascadeBeats | None = None
        self.cascade_in: Any = None
        self.busy = 0.0
        self._waits = 0
        self.equal_takes = False
        self.steps = self._run()

    def _open(self, end: Endpoint, locks: dict[Tile, dict[int, Lock]]) -> End:
        pool = self._configuration.pools[end][0]
        memory = self._memories[pool.tile]
        free, full = locks[pool.tile][pool.free], locks[pool.tile][pool.full]
        take, give = (free, full) if end.role == "producer" else (full, free)
        return End(end, memory.ctypes.data, memory, pool.addresses, take, give)

    def _run(self) -> Steps:
        while True:
            before = self._waits
            yield from self._steps(self.worker.body)
            if not self.worker.while_true:
                return
            if self._waits == before:
                raise SimulationError(f"{self.name} waits for nothing in a whole round and would spin for ever")

    def _steps(self, body: list[Step]) -> Steps:
        for step in body:
            kind = type(step)
            if kind is Call:
                yield from self._call(step)  # type: ignore[arg-type]
            elif kind is Acquire:
                yield from self._acquire(step)  # type: ignore[arg-type]
            elif kind is Release:
                self._release(step)  # type: ignore[arg-type]
            elif isinstance(step, Loop):
                for _ in range(self._number(step.count)):
                    yield from self._steps(step.body)
            elif isinstance(step, WaitBarrier):
                yield from self._wait_equal(self._barriers[step.barrier], step.value)
            elif isinstance(step, ReleaseBarrier):
                self._scheduler.release(self._barriers[step.barrier], step.value, self.time)

    def _take(self, lock: Lock, count: int) -> Steps:
        self._waits += 1
        while lock.value < count:
            yield lock
        for _ in range(count):
            stamp = lock.stamps.popleft()
            self.time = max(self.time, stamp)

    def _wait_equal(self, lock: Lock, value: int) -> Steps:
        self._waits += 1
        while lock.value != value:
            yield lock
        self.time = max(self.time, *lock.stamps)
        if self.equal_takes:
            lock.stamps.clear()

    def _acquire(self, step: Acquire) -> Steps:
        end = self._ends[step.endpoint]
        missing = step.count - len(end.held)
        if missing > 0:
            yield from self._take(end.take, missing)
            for _ in range(missing):
                end.held.append(end.next)
                end.next = (end.next + 1) % len(end.pointers)
        self._slots[step.id] = list(end.held)[: step.count]

    def _release(self, step: Release) -> None:
        end = self._ends[step.endpoint]
        for _ in range(step.count):
            if not end.held:
                raise KernelError(f"{self.name} releases {end.name} which it does not hold")
            end.held.popleft()
        self._scheduler.release(end.give, step.count, self.time)

    def _number(self, value: Value) -> int:
        if isinstance(value, Load):
            tile, address = self._configuration.buffers[value.buffer]
            return int(self._memories[tile].view(np.int32)[address // 4 + value.index])
        return value

    def _call(self, step: Call) -> Steps:
        while self.beats_in is not None and self.cascade_in.head == self.cascade_in.tail and self._reads_cascade(step):
            yield self.beats_in
        kernel = step.kernel
        ints = tuple(self._number(argument) for argument in step.arguments if not isinstance(argument, Element | Buffer))
        replacement = self._kernels.replacement(kernel)
        if replacement is not None:
            replacement(*(self._array(argument) for argument in step.arguments))
        else:
            function, enter = self._kernels.bound(kernel)
            assert enter is not None
            enter(ctypes.addressof(self.registers))
            function(*[self._pointer(argument) for argument in step.arguments])
            if self.registers.fault:
                raise KernelError(f"{kernel.name} on {self.name}: {self.registers.message.decode()}")
        begin = self.time
        spent = cost.cycles(kernel.name, _defines(kernel.object_file_name), ints, self._device)
        self.time += spent
        self.busy += spent
        self._trace.called(self.tile, kernel.name, begin, self.time)
        if self.beats_out is not None:
            self._scheduler.wake(self.beats_out)

    def _reads_cascade(self, step: Call) -> bool:
        return step.kernel.name.endswith("_cascade_in")

    def _pointer(self, argument: Argument) -> int:
        if isinstance(argument, Element):
            end = self._ends[argument.endpoint]
            return end.pointers[self._slots[argument.acquired][argument.index]]
        if isinstance(argument, Buffer):
            tile, address = self._configuration.buffers[argument]
            return int(self._memories[tile].ctypes.data) + address
        return self._number(argument)

    def _array(self, argument: Argument) -> Any:
        if isinstance(argument, Element):
            end = self._ends[argument.endpoint]
            return _view(end.memory, end.addresses[self._slots[argument.acquired][argument.index]], argument.type)
        if isinstance(argument, Buffer):
            tile, address = self._configuration.buffers[argument]
            return _view(self._memories[tile], address, argument.type)
        return self._number(argument)


@cache
def _defines(file_name: str) -> dict[str, int]:
    return dict(parse_object(file_name).defines)


def _view(memory: NDArray[np.uint32], address: int, type: TensorType) -> NDArray[Any]:
    return memory.view(np.uint8)[address : address + type.nbytes].view(_NUMPY[type.dtype]).reshape(type.shape)
