"""DMA channels and the streams between them, word by word as the BDs say."""

from collections import deque
from functools import cache

import numpy as np
from numpy.typing import NDArray

from npusim.memory import DeviceMemory, SimulationError
from npusim.schedule import PAUSE, Agent, Lock, Scheduler, Steps, Tokens, Waitable
from npusim.trace import Trace
from xdna_designs import cost
from xdna_designs.device import QUEUE_DEPTH, Kind
from xdna_designs.routing import DmaPort
from xdna_designs.words import BufferDescriptor, QueuePush, decode_bd

_decoded = cache(decode_bd)


@cache
def _walk(dims: tuple[tuple[int, int], ...], length: int) -> NDArray[np.int64] | None:
    """Word offsets of a BD in order; None for a plain run."""
    if not dims or (len(dims) == 1 and dims[0][1] == 1):
        return None
    index = np.zeros(1, dtype=np.int64)
    for size, stride in dims:
        index = (np.arange(size, dtype=np.int64)[:, None] * stride + index).reshape(-1)
    return index[:length]


class Queue(Waitable):
    """Tasks of one channel."""

    def __init__(self, port: DmaPort) -> None:
        super().__init__()
        self.port = port
        self.tasks: deque[tuple[QueuePush, float]] = deque()

    def describe(self) -> str:
        return f"a task for {self.port}"


class Channel:
    """One direction of one DMA: runs BD chains on the tile's memory, or on device memory at the shim."""

    def __init__(
        self,
        port: DmaPort,
        kind: Kind,
        registers: dict[int, tuple[int, ...]],
        memory: NDArray[np.uint32] | DeviceMemory,
        locks: dict[int, Lock],
    ) -> None:
        self.port = port
        self.name = str(port)
        self.kind = kind
        self.registers = registers
        self.memory = memory
        self.locks = locks
        self.queue = Queue(port)
        self.tokens = Tokens(str(port))
        self.task: QueuePush | None = None
        self.runs = 0
        self.bd: BufferDescriptor | None = None
        self.bd_id = 0
        self.left = 0
        self.ready = 0.0
        self.moved = 0
        self.host_buffer = 0
        self._buffer: NDArray[np.uint32] | None = None
        self._base = 0
        self._walk: NDArray[np.int64] | None = None

    def start(self, scheduler: Scheduler) -> Steps:
        """Get the next BD going: wait for a task, then for the BD's lock."""
        while self.task is None:
            if not self.queue.tasks:
                yield self.queue
                continue
            self.task, pushed = self.queue.tasks.popleft()
            self.ready = max(self.ready, pushed)
            self.runs, self.bd_id = 0, self.task.bd
            scheduler.wake(self.queue)
        if self.bd_id not in self.registers:
            raise SimulationError(f"{self.port}: BD {self.bd_id} was never written")
        bd = _decoded(self.kind, self.registers[self.bd_id])
        if bd.acquire is not None:
            number, value = bd.acquire
            lock, need = self.locks[number], abs(value)
            while lock.value < need:
                yield lock
            for _ in range(need):
                self.ready = max(self.ready, lock.stamps.popleft())
        self.bd = bd
        self.left = bd.length
        self.ready += cost.value("bd_start")
        self._walk = _walk(bd.dims, bd.length)
        base = bd.base + 4 * bd.iteration[1] * (self.runs % bd.iteration[0]) * (bd.iteration[0] > 1)
        if isinstance(self.memory, DeviceMemory):
            span = bd.length if self._walk is None else int(self._walk[-1]) + 1
            self._buffer, self._base, self.host_buffer = self.memory.find(base, span, self.name)
        else:
            self._buffer, self._base = self.memory, base // 4

    def place(self, count: int) -> "slice | NDArray[np.int64]":
        """Where the next `count` words are in the buffer."""
        assert self.bd is not None
        done = self.bd.length - self.left
        if self._walk is None:
            return slice(self._base + done, self._base + done + count)
        return self._walk[done : done + count] + self._base

    def read(self, count: int) -> NDArray[np.uint32]:
        """The next words."""
        assert self._buffer is not None
        return self._buffer[self.place(count)]

    def write(self, words: NDArray[np.uint32]) -> None:
        """Store the next words."""
        assert self._buffer is not None
        self._buffer[self.place(len(words))] = words

    def advance(self, count: int, time: float, scheduler: Scheduler) -> None:
        """`count` words have moved by `time`; ends BDs and tasks."""
        self.left -= count
        self.moved += count
        self.ready = time
        if self.left:
            return
        bd, task = self.bd, self.task
        assert bd is not None
        assert task is not None
        self.bd = None
        if bd.release is not None:
            number, value = bd.release
            scheduler.release(self.locks[number], value, time)
        if bd.next is not None:
            self.bd_id = bd.next
            return
        self.runs += 1
        self.bd_id = task.bd
        if self.runs == task.repeat:
            self.task = None
            if task.token:
                self.tokens.stamps.append(time)
                scheduler.wake(self.tokens)

    def push(self, task: QueuePush, time: float, scheduler: Scheduler) -> None:
        """Queue a task; the caller has seen that there is room."""
        self.queue.tasks.append((task, time))
        scheduler.wake(self.queue)

    @property
    def has_room(self) -> bool:
        """Whether the task queue takes another task."""
        return len(self.queue.tasks) < QUEUE_DEPTH


class Stream(Agent):
    """Moves words from one MM2S channel to all its S2MM channels; a word moves only when every receiver can take it."""

    def __init__(self, name: str, source: Channel, sinks: list[Channel], ddr: "Ddr", scheduler: Scheduler, trace: Trace) -> None:
        super().__init__(f"stream {name}")
        self.source = source
        self.sinks = sinks
        self.starting: Channel | None = None
        self.steps = self._run(ddr, scheduler, trace)

    def waits_for(self) -> str:
        if self.starting is None:
            return "nothing"
        return f"{super().waits_for()}, needed by {self.starting.port}"

    def _run(self, ddr: "Ddr", scheduler: Scheduler, trace: Trace) -> Steps:
        source, sinks = self.source, self.sinks
        ends = [source, *sinks]
        names = [end.name for end in ends]
        shim = next((end for end in ends if end.kind == "shim"), None)
        while True:
            for end in ends:
                if end.bd is None:
                    self.starting = end
                    yield from end.start(scheduler)
            self.starting = None
            begin = self.time = max(self.time, *(end.ready for end in ends))
            if shim is not None:
                yield PAUSE
            count = min(end.left for end in ends)
            words = source.read(count)
            for sink in sinks:
                sink.write(words)
            finish = begin + count * cost.value("stream_word")
            if shim is not None:
                finish = max(finish, ddr.move(count * 4, begin))
            self.time = finish
            trace.moved(names, shim.host_buffer if shim else None, begin, finish, count)
            for end in ends:
                end.advance(count, finish, scheduler)


class Ddr:
    """Memory bandwidth that all shim channels share."""

    def __init__(self, clock: float) -> None:
        self._cycles_a_byte = clock / cost.value("ddr_bandwidth")
        self._free = 0.0

    def move(self, nbytes: int, begin: float) -> float:
        """When `nbytes` asked for at `begin` have moved, in cycles."""
        self._free = max(self._free, begin) + nbytes * self._cycles_a_byte
        return self._free
