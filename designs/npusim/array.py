"""The array: loads a configuration, runs instruction streams, keeps its state between them.

Everything it does it reads from register words: BDs, locks, queues and switches of the configuration, and the operations of
the instruction stream. Only what a core computes comes from the program, through the kernels compiled for this machine.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from npusim.core import CascadeBeats, CoreAgent
from npusim.deadlock import Deadlock, Stuck
from npusim.dma import Channel, Ddr, Stream
from npusim.kernels import POISON, Cascade, Kernels
from npusim.memory import DeviceMemory, SimulationError
from npusim.schedule import Agent, Lock, Scheduler, Steps
from npusim.trace import Trace
from xdna_designs import cost
from xdna_designs.device import LIMITS, SHIM_ROW, Direction, Tile
from xdna_designs.instructions import BlockWrite, MaskedWrite, Operation, Patch, Wait, Words, Write, decode
from xdna_designs.lowering import Configuration
from xdna_designs.routing import DmaPort, trace
from xdna_designs.words import BD_BASE, BD_BYTES, BD_WORDS, DMA_BASE, LOCK_BASE, LOCK_BYTES, decode_push, place_of

_DIRECTIONS: Final[tuple[Direction, ...]] = ("S2MM", "MM2S")


class NotQuiescent(SimulationError):
    """A dispatch ended and left something behind: the next one would start from another state."""


@dataclass(frozen=True)
class Run:
    """What one dispatch did. `cycles` is predicted."""

    cycles: float
    words: int
    trace: Trace
    host_bytes: dict[int, int]
    """Bytes moved, by the address of the host buffer."""


class Array:
    """One configured array with its memories.

    `seed` makes the schedule random. `perturbation` is the relative error of exp2 and tanh. `equal_takes` makes waiting for a
    barrier take its value, as one emulator has it, instead of leaving it (UG1583); designs must work with both.
    """

    def __init__(
        self,
        configuration: Configuration,
        kernels: Kernels | None = None,
        *,
        memory: DeviceMemory | None = None,
        seed: int | None = None,
        perturbation: float = 0.0,
        detailed: bool = False,
        equal_takes: bool = False,
    ) -> None:
        self.configuration = configuration
        self.device = configuration.device
        self.memory = memory or DeviceMemory()
        self.scheduler = Scheduler(seed)
        self.trace = Trace(detailed)
        self.tiles: dict[Tile, NDArray[np.uint32]] = {}
        self.locks: dict[Tile, dict[int, Lock]] = {}
        self.registers: dict[Tile, dict[int, tuple[int, ...]]] = {}
        self.channels: dict[DmaPort, Channel] = {}
        self._load(kernels or Kernels(self.device.arch), perturbation)
        for core in self.cores:
            core.equal_takes = equal_takes

    # Configuration

    def _load(self, kernels: Kernels, perturbation: float) -> None:
        names = self._lock_names()
        for tile, settings in self.configuration.tiles.items():
            kind = self.device.kind(tile)
            self.locks[tile] = {n: Lock(tile, n, value, names.get((tile, n), "a lock")) for n, value in settings.locks.items()}
            self.registers[tile] = dict(settings.bds)
            if kind != "shim":
                self.tiles[tile] = _memory(LIMITS[kind].memory)
        self._write_initial_values()
        self._connect()
        self.cores = [
            CoreAgent(worker, self.configuration, self.tiles, self.locks, kernels, self.scheduler, self.trace)
            for worker in self.configuration.program.workers
        ]
        for core in self.cores:
            core.registers.perturbation = perturbation
            self.scheduler.ready(core)
        self._cascade()
        for tile, settings in self.configuration.tiles.items():
            for direction, channel, task in settings.queues:
                self.channels[DmaPort(tile, direction, channel)].push(task, 0.0, self.scheduler)

    def _lock_names(self) -> dict[tuple[Tile, int], str]:
        names = {}
        for pools in self.configuration.pools.values():
            for pool in pools:
                names[pool.tile, pool.free] = f"a free buffer of {pool.name}"
                names[pool.tile, pool.full] = f"an object of {pool.name}"
        for tile, lock in self.configuration.barriers.values():
            names[tile, lock] = "a barrier"
        return names

    def _write_initial_values(self) -> None:
        for buffer, (tile, address) in self.configuration.buffers.items():
            if buffer.initial_value is not None:
                data = np.ascontiguousarray(buffer.initial_value).tobytes()
                self.tiles[tile].view(np.uint8)[address : address + len(data)] = np.frombuffer(data, dtype=np.uint8)

    def _connect(self) -> None:
        settings = {tile: entry.switch for tile, entry in self.configuration.tiles.items()}
        ddr = Ddr(cost.clock(self.device))
        self.streams = []
        for tile in list(settings):
            kind = self.device.kind(tile)
            for index in range(LIMITS[kind].mm2s):
                source = DmaPort(tile, "MM2S", index)
                sinks = trace(settings, source, self.device)
                if sinks:
                    ends = [self._channel(port) for port in (source, *sinks)]
                    name = " + ".join(flow.name for flow in self.configuration.flows if flow.source == source)
                    stream = Stream(name, ends[0], ends[1:], ddr, self.scheduler, self.trace)
                    self.streams.append(stream)
                    self.scheduler.ready(stream)

    def _channel(self, port: DmaPort) -> Channel:
        kind = self.device.kind(port.tile)
        memory = self.memory if kind == "shim" else self.tiles[port.tile]
        registers = self.registers.setdefault(port.tile, {})
        self.channels[port] = Channel(port, kind, registers, memory, self.locks.setdefault(port.tile, {}))
        return self.channels[port]

    def _cascade(self) -> None:
        by_worker = {core.worker: core for core in self.cores}
        self._cascades = []
        for flow in self.configuration.program.cascades:
            beats, source, destination = Cascade(), by_worker[flow.source], by_worker[flow.destination]
            self._cascades.append(beats)
            source.registers.cascade_out = destination.registers.cascade_in = ctypes.addressof(beats)
            source.beats_out = destination.beats_in = CascadeBeats(source.name)
            destination.cascade_in = beats

    # Dispatch

    def run(self, words: Words, arguments: Sequence[int]) -> Run:
        """One dispatch over host buffers at `arguments` (device addresses).

        Raises Deadlock, NotQuiescent, KernelError or SimulationError.
        """
        before = dict(self.trace.host_words)
        start = max((agent.time for agent in self.agents), default=0.0)
        controller = Controller(self, list(decode(words)), arguments, start)
        self.scheduler.ready(controller)
        self.scheduler.run()
        if not controller.done:
            raise Deadlock(Stuck(self.configuration, self.locks, self.cores, self.streams, controller).report())
        self._check_quiescence()
        moved = {address: 4 * (count - before.get(address, 0)) for address, count in self.trace.host_words.items()}
        return Run(controller.time - start, len(words), self.trace, moved)

    @property
    def agents(self) -> list[Agent]:
        """Everything that acts."""
        return [*self.cores, *self.streams]

    def _check_quiescence(self) -> None:
        for channel in self.channels.values():
            partly = channel.bd is not None and (channel.left != channel.bd.length or channel.port.direction == "MM2S")
            if channel.bd is not None and partly:
                raise NotQuiescent(
                    f"{channel.port}: {channel.left} of {channel.bd.length} words of BD {channel.bd_id} have not moved"
                )
            if channel.kind == "shim" and (channel.task or channel.queue.tasks):
                raise NotQuiescent(f"{channel.port}: tasks are left in its queue; the last drain must be waited for")
        for end, pools in self.configuration.pools.items():
            for pool in pools:
                count = self.locks[pool.tile][pool.full].value
                if count:
                    raise NotQuiescent(f"{end.fifo.name}: {count} objects were produced and never consumed on tile {pool.tile}")


class Controller(Agent):
    """The array's controller: carries out one instruction stream."""

    def __init__(self, array: Array, operations: list[Operation], arguments: Sequence[int], time: float) -> None:
        super().__init__("controller")
        self.time = time
        self.done = False
        self._array = array
        self._arguments = arguments
        self.steps = self._run(operations)

    def _run(self, operations: list[Operation]) -> Steps:
        for operation in operations:
            self.time += cost.value("instruction_word") * 6
            match operation:
                case BlockWrite(address, values):
                    self._write_bd(address, values)
                case Patch(address, argument, offset):
                    self._patch(address, argument, offset)
                case Write(address, value):
                    yield from self._write(address, value)
                case MaskedWrite():
                    pass
                case Wait(port):
                    yield from self._wait(port)
        self.done = True

    def _write_bd(self, address: int, values: tuple[int, ...]) -> None:
        tile, offset = place_of(address)
        kind = self._array.device.kind(tile)
        if len(values) != BD_WORDS[kind] or (offset - BD_BASE[kind]) % BD_BYTES:
            raise SimulationError(f"a block of {len(values)} words at {offset:#x} of tile {tile} is no BD")
        bd = (offset - BD_BASE[kind]) // BD_BYTES
        for channel in self._array.channels.values():
            busy = (channel.task is not None and channel.task.bd == bd) or any(task.bd == bd for task, _ in channel.queue.tasks)
            if channel.port.tile == tile and kind == "shim" and busy:
                raise SimulationError(f"BD {bd} of shim tile {tile} is rewritten while {channel.port} still uses it")
        self._array.registers[tile][bd] = values

    def _patch(self, address: int, argument: int, offset: int) -> None:
        if argument >= len(self._arguments):
            raise SimulationError(f"the stream wants host argument {argument}, the dispatch has {len(self._arguments)}")
        tile, register = place_of(address)
        bd = (register - BD_BASE["shim"]) // BD_BYTES
        words = list(self._array.registers[tile][bd])
        target = self._arguments[argument] + offset
        words[1], words[2] = target & 0xFFFFFFFF, words[2] & 0xFFFF0000 | target >> 32
        self._array.registers[tile][bd] = tuple(words)

    def _write(self, address: int, value: int) -> Steps:
        tile, offset = place_of(address)
        kind = self._array.device.kind(tile)
        if kind == "core" and offset < LIMITS["core"].memory:
            self._array.tiles[tile][offset // 4] = value
        elif kind == "core" and LOCK_BASE[kind] <= offset < LOCK_BASE[kind] + LOCK_BYTES * LIMITS[kind].locks:
            lock = self._array.locks[tile][(offset - LOCK_BASE[kind]) // LOCK_BYTES]
            lock.stamps.clear()
            self._array.scheduler.release(lock, value, self.time)
        elif kind == "shim" and DMA_BASE[kind] <= offset < DMA_BASE[kind] + 0x20:
            yield from self._push(tile, offset - DMA_BASE[kind], value)
        else:
            raise SimulationError(f"a write to {offset:#x} of tile {tile}, where nothing is")

    def _push(self, tile: Tile, offset: int, value: int) -> Steps:
        index = offset // 8
        direction = _DIRECTIONS[index // LIMITS["shim"].s2mm]
        port = DmaPort(tile, direction, index % LIMITS["shim"].s2mm)
        channel = self._array.channels.get(port)
        if channel is None:
            raise SimulationError(f"a task for {port}, which is connected to nothing")
        while not channel.has_room:
            yield channel.queue
        channel.push(decode_push(value), self.time, self._array.scheduler)

    def _wait(self, port: DmaPort) -> Steps:
        channel = self._array.channels.get(port)
        if channel is None or port.tile.row != SHIM_ROW:
            raise SimulationError(f"a wait for {port}, which is connected to nothing")
        while not channel.tokens.stamps:
            yield channel.tokens
        self.time = max(self.time, channel.tokens.stamps.popleft())


def _memory(nbytes: int) -> NDArray[np.uint32]:
    """Poisoned local memory whose address is as aligned as the chip's."""
    raw = np.full(nbytes // 4 + 16, POISON, dtype=np.uint32)
    skip = -raw.ctypes.data % 64 // 4
    return raw[skip : skip + nbytes // 4]
