"""Instruction streams: the words that the array's controller runs for one dispatch, written and read.

The same overlay serves every length and every step: only these words change, and they are made on the host.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xdna_designs.dataflow import Finish, Order, Runtime, SetBarrier, TaskGroup, Transfer, WriteBuffer
from xdna_designs.device import LIMITS, MAX_ITERATION, MAX_REPEAT, ROWS, Device, Direction, Tile
from xdna_designs.lowering import Configuration
from xdna_designs.routing import DmaPort
from xdna_designs.taps import ITEM_BYTES, WORD, DesignError, merged, to_words
from xdna_designs.words import (
    BD_BASE,
    BD_BYTES,
    CONTROLLER_MASK,
    LOCK_BASE,
    LOCK_BYTES,
    TOKEN_CONTROLLER,
    BufferDescriptor,
    QueuePush,
    address_of,
    queue_register,
)

Words = NDArray[np.uint32]
_HEADER: Final = 4
_WRITE, _BLOCK, _MASKED, _WAIT, _PATCH = 0x00, 0x01, 0x03, 0x80, 0x81


@dataclass(frozen=True)
class Write:
    """A register gets a value."""

    address: int
    value: int


@dataclass(frozen=True)
class BlockWrite:
    """Consecutive registers get values."""

    address: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class MaskedWrite:
    """Some bits of a register get values."""

    address: int
    value: int
    mask: int


@dataclass(frozen=True)
class Patch:
    """A BD's address becomes that of a host argument plus an offset in bytes."""

    address: int
    argument: int
    offset: int


@dataclass(frozen=True)
class Wait:
    """Wait for a channel's token."""

    port: DmaPort


Operation = Write | BlockWrite | MaskedWrite | Patch | Wait


def encode(operations: list[Operation], device: Device) -> Words:
    """The stream of some operations, with its header."""
    words = [word for operation in operations for word in _words_of(operation)]
    header = [device.code << 16 | ROWS << 24 | 1 << 8, device.columns | 1 << 8, len(operations), WORD * (_HEADER + len(words))]
    return np.array(header + words, dtype=np.uint32)


def _words_of(operation: Operation) -> list[int]:
    match operation:
        case Write(address, value):
            return [_WRITE, 0, address, 0, value, 24]
        case BlockWrite(address, values):
            return [_BLOCK, 0, address, WORD * (4 + len(values)), *values]
        case MaskedWrite(address, value, mask):
            return [_MASKED, 0, address, 0, value, mask, 28]
        case Patch(address, argument, offset):
            return [_PATCH, 48, 0, 0, 0, 0, address, 0, argument, 0, offset, 0]
        case Wait(port):
            place = int(port.direction == "MM2S") | port.tile.row << 8 | port.tile.column << 16
            return [_WAIT, 16, place, 1 << 8 | 1 << 16 | port.channel << 24]


def decode(words: Words) -> Iterator[Operation]:
    """The operations of a stream. Raises ValueError where it is malformed."""
    values = [int(word) for word in words]
    if len(values) < _HEADER or values[3] != WORD * len(values):
        raise ValueError("not an instruction stream: its header does not give its length")
    place = _HEADER
    for _ in range(values[2]):
        rest = values[place : place + 12]
        match rest[0]:
            case 0x00:
                yield Write(rest[2], rest[4])
                place += 6
            case 0x01:
                count = rest[3] // WORD
                yield BlockWrite(rest[2], tuple(values[place + 4 : place + count]))
                place += count
            case 0x03:
                yield MaskedWrite(rest[2], rest[4], rest[5])
                place += 7
            case 0x80:
                direction: Direction = "MM2S" if rest[2] & 1 else "S2MM"
                yield Wait(DmaPort(Tile(rest[2] >> 16 & 0xFF, rest[2] >> 8 & 0xFF), direction, rest[3] >> 24))
                place += 4
            case 0x81:
                yield Patch(rest[6], rest[8], rest[10])
                place += 12
            case code:
                raise ValueError(f"unknown operation {code:#x} at word {place}")
    if place != len(values):
        raise ValueError(f"{len(values) - place} words after the last operation")


def stream(configuration: Configuration, runtime: Runtime | None = None) -> Words:
    """The instruction stream of a sequence (default: the program's own) for a configured array."""
    return encode(operations_of(configuration, (runtime or configuration.program.runtime).orders), configuration.device)


def operations_of(configuration: Configuration, orders: Iterable[Order]) -> list[Operation]:
    """What the controller does for a sequence. Raises DesignError where a transfer does not fit a BD."""
    sequence = _Sequence(configuration)
    for order in orders:
        sequence.add(order)
    if sequence.open:
        raise DesignError(f"a task group with {len(next(iter(sequence.open.values())))} transfers is never finished")
    return sequence.operations


class _Sequence:
    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.operations: list[Operation] = []
        self.open: dict[TaskGroup, list[tuple[Transfer, DmaPort, int]]] = {}
        self.busy: dict[Tile, set[int]] = defaultdict(set)

    def add(self, order: Order) -> None:
        match order:
            case Transfer():
                self._transfer(order)
            case Finish(group):
                self._finish(group)
            case WriteBuffer(buffer, index, value):
                tile, address = self.configuration.buffers[buffer]
                self.operations.append(Write(address_of(tile, address + WORD * index), value & 0xFFFFFFFF))
            case SetBarrier(barrier, value):
                tile, lock = self.configuration.barriers[barrier]
                self.operations.append(Write(address_of(tile, LOCK_BASE["core"] + LOCK_BYTES * lock), value))

    def _transfer(self, order: Transfer) -> None:
        port = self.configuration.ports[order.endpoint]
        bd = next((number for number in range(LIMITS["shim"].bds) if number not in self.busy[port.tile]), None)
        if bd is None:
            name, limit = order.endpoint.fifo.name, LIMITS["shim"].bds
            raise DesignError(f"{name}: shim tile {port.tile} has {limit} BDs, all in flight; finish a task group")
        self.busy[port.tile].add(bd)
        self.open.setdefault(order.group, []).append((order, port, bd))
        descriptor, repeat = shim_descriptor(order)
        register = BD_BASE["shim"] + BD_BYTES * bd
        queue = queue_register("shim", port.direction, port.channel, LIMITS["shim"].s2mm)
        try:
            self.operations.append(BlockWrite(address_of(port.tile, register), descriptor.encode("shim")))
        except OverflowError as error:
            raise DesignError(f"{order.endpoint.fifo.name}: shim tile {port.tile}: {error}") from error
        self.operations.append(Patch(address_of(port.tile, register + WORD), order.argument.index, descriptor.base))
        if order.wait:
            self.operations.append(MaskedWrite(address_of(port.tile, queue - WORD), TOKEN_CONTROLLER << 8, CONTROLLER_MASK))
        self.operations.append(Write(address_of(port.tile, queue), QueuePush(bd, repeat, order.wait).encode()))

    def _finish(self, group: TaskGroup) -> None:
        for order, port, _ in self.open.get(group, []):
            if order.wait:
                self.operations.append(Wait(port))
        for _, port, bd in self.open.pop(group, []):
            self.busy[port.tile].discard(bd)


def shim_descriptor(order: Transfer) -> tuple[BufferDescriptor, int]:
    """The shim BD of a fill or drain and how often it runs. The first of four dimensions is the repetition."""
    tap, dtype, name = order.tap, order.argument.type.dtype, order.endpoint.fifo.name
    sizes = (1,) * (4 - len(tap.sizes)) + tap.sizes
    strides = (0,) * (4 - len(tap.strides)) + tap.strides
    if len(sizes) > 4:
        raise DesignError(f"{name}: a transfer has at most 4 dimensions, not {len(sizes)}")
    item = ITEM_BYTES[dtype]
    if tap.offset * item % WORD:
        raise DesignError(f"{name}: offset {tap.offset} of {dtype} is not on a 32-bit word")
    repeat, repeat_stride = sizes[0], strides[0]
    if repeat > (MAX_ITERATION if repeat_stride else MAX_REPEAT):
        raise DesignError(f"{name}: {repeat} repetitions, a task has at most {MAX_ITERATION if repeat_stride else MAX_REPEAT}")
    inner = merged(sizes[1:], strides[1:])
    where = f"the transfer of {name}"
    if len(inner[0]) == 1 and inner[1][0] == 1:
        to_words(inner[0], inner[1], dtype, where)
        dims: tuple[tuple[int, int], ...] = ()
        length = inner[0][0] * item // WORD
    else:
        words = to_words(sizes[1:], strides[1:], dtype, where)
        for size, stride in words:
            if size > 1 and stride < 1:
                raise DesignError(f"{where}: a stride of {stride} words; inside a BD strides are 1 or more")
        dims = tuple((size, max(stride, 1)) for size, stride in words)
        length = int(np.prod([size for size, _ in dims]))
    iteration = (1, 1)
    if repeat > 1 and repeat_stride:
        if repeat_stride * item % WORD or repeat_stride < 0:
            raise DesignError(f"{where}: a repeat stride of {repeat_stride} {dtype} is no positive number of 32-bit words")
        iteration = (repeat, repeat_stride * item // WORD)
    return BufferDescriptor(length, tap.offset * item, dims, iteration), repeat
