"""Register formats: buffer descriptors, task queues and addresses, to 32-bit words and back.

Field positions as in mlir-aie's register database (AM025); lengths, sizes and strides count words, addresses count bytes.
"""

from dataclasses import dataclass, field
from typing import Final

from xdna_designs.device import Direction, Kind, Tile

BD_BASE: Final[dict[Kind, int]] = {"shim": 0x1D000, "mem": 0xA0000, "core": 0x1D000}
BD_BYTES: Final = 0x20
BD_WORDS: Final[dict[Kind, int]] = {"shim": 8, "mem": 8, "core": 6}
DMA_BASE: Final[dict[Kind, int]] = {"shim": 0x1D200, "mem": 0xA0600, "core": 0x1DE00}
LOCK_BASE: Final[dict[Kind, int]] = {"shim": 0x14000, "mem": 0xC0000, "core": 0x1F000}
LOCK_BYTES: Final = 16
MEM_WINDOW: Final = 0x80000
MEM_LOCK_WINDOW: Final = 64
TOKEN_CONTROLLER: Final = 15
CONTROLLER_MASK: Final = 0x1F00

_Field = tuple[int, int, int]  # word, lowest bit, bits
_MEM_FIELDS: Final[dict[str, _Field]] = {
    "length": (0, 0, 17), "next": (1, 20, 6), "use_next": (1, 19, 1), "base": (1, 0, 19), "wrap0": (2, 17, 10),
    "step0": (2, 0, 17), "wrap1": (3, 17, 10), "step1": (3, 0, 17), "wrap2": (4, 17, 10), "step2": (4, 0, 17),
    "step3": (5, 0, 17), "iter_wrap": (6, 17, 6), "iter_step": (6, 0, 17), "valid": (7, 31, 1), "rel_value": (7, 24, 7),
    "rel_lock": (7, 16, 8), "acq_enable": (7, 15, 1), "acq_value": (7, 8, 7), "acq_lock": (7, 0, 8),
}  # fmt: skip
_CORE_FIELDS: Final[dict[str, _Field]] = {
    "length": (0, 0, 14), "base": (0, 14, 14), "step0": (2, 0, 13), "step1": (2, 13, 13), "step2": (3, 0, 13),
    "wrap0": (3, 13, 8), "wrap1": (3, 21, 8), "iter_step": (4, 0, 13), "iter_wrap": (4, 13, 6), "next": (5, 27, 4),
    "use_next": (5, 26, 1), "valid": (5, 25, 1), "rel_value": (5, 18, 7), "rel_lock": (5, 13, 4),
    "acq_enable": (5, 12, 1), "acq_value": (5, 5, 7), "acq_lock": (5, 0, 4),
}  # fmt: skip
_SHIM_FIELDS: Final[dict[str, _Field]] = {
    "length": (0, 0, 32), "base_low": (1, 0, 32), "base_high": (2, 0, 16), "wrap0": (3, 20, 10), "step0": (3, 0, 20),
    "burst": (4, 30, 2), "wrap1": (4, 20, 10), "step1": (4, 0, 20), "cache": (5, 24, 4), "step2": (5, 0, 20),
    "iter_wrap": (6, 20, 6), "iter_step": (6, 0, 20), "next": (7, 27, 4), "use_next": (7, 26, 1), "valid": (7, 25, 1),
    "rel_value": (7, 18, 7), "rel_lock": (7, 13, 4), "acq_enable": (7, 12, 1), "acq_value": (7, 5, 7),
    "acq_lock": (7, 0, 4),
}  # fmt: skip
_FIELDS: Final[dict[Kind, dict[str, _Field]]] = {"mem": _MEM_FIELDS, "core": _CORE_FIELDS, "shim": _SHIM_FIELDS}
_SHIM_BURST: Final = 2
_SHIM_CACHE: Final = 2


@dataclass(frozen=True)
class BufferDescriptor:
    """One BD. `dims`: (size, stride) innermost first; empty means `length` words in a row. Locks are the tile's own, or None."""

    length: int
    base: int
    dims: tuple[tuple[int, int], ...] = ()
    iteration: tuple[int, int] = (1, 1)
    acquire: tuple[int, int] | None = None
    release: tuple[int, int] | None = None
    next: int | None = None
    others: dict[str, int] = field(default_factory=dict, compare=False)

    def encode(self, kind: Kind) -> tuple[int, ...]:
        """Its words. Raises OverflowError naming a field that is too small."""
        words = [0] * BD_WORDS[kind]
        for name, value in self._values(kind).items():
            if name not in _FIELDS[kind]:
                if value:
                    raise OverflowError(f"a {kind} BD has no {name}")
                continue
            word, low, bits = _FIELDS[kind][name]
            if not 0 <= value < 1 << bits:
                raise OverflowError(f"{name} = {value} needs more than {bits} bits in a {kind} BD")
            words[word] |= value << low
        return tuple(words)

    def _values(self, kind: Kind) -> dict[str, int]:
        values = {"length": self.length, "valid": 1, "iter_wrap": self.iteration[0] - 1, "iter_step": self.iteration[1] - 1}
        if kind == "shim":
            values |= {
                "base_low": self.base & 0xFFFFFFFF,
                "base_high": self.base >> 32,
                "burst": _SHIM_BURST,
                "cache": _SHIM_CACHE,
            }
        else:
            values["base"] = (self.base + (MEM_WINDOW if kind == "mem" else 0)) // 4
        for index, (size, stride) in enumerate(self.dims):
            values[f"step{index}"] = stride - 1
            if index < len(self.dims) - 1:
                values[f"wrap{index}"] = size
        window = MEM_LOCK_WINDOW if kind == "mem" else 0
        if self.acquire is not None:
            values |= {"acq_enable": 1, "acq_lock": self.acquire[0] + window, "acq_value": self.acquire[1] & 0x7F}
        if self.release is not None:
            values |= {"rel_lock": self.release[0] + window, "rel_value": self.release[1]}
        if self.next is not None:
            values |= {"use_next": 1, "next": self.next}
        return values


def decode_bd(kind: Kind, words: tuple[int, ...]) -> BufferDescriptor:
    """The BD in register words."""
    values = {name: words[word] >> low & (1 << bits) - 1 for name, (word, low, bits) in _FIELDS[kind].items()}
    window = MEM_LOCK_WINDOW if kind == "mem" else 0
    if kind == "shim":
        base = values["base_low"] | values["base_high"] << 32
    else:
        base = values["base"] * 4 - (MEM_WINDOW if kind == "mem" else 0)
    dims, left = [], values["length"]
    for index in range(4):
        step = values.get(f"step{index}")
        if step is None:
            break
        wrap = values.get(f"wrap{index}", 0)
        dims.append((wrap or left, step + 1))
        left = -(-left // (wrap or left))
        if not wrap:
            break
    signed = values["acq_value"] - 128 if values["acq_value"] >= 64 else values["acq_value"]
    return BufferDescriptor(
        values["length"],
        base,
        tuple(dims),
        (values["iter_wrap"] + 1, values["iter_step"] + 1),
        (values["acq_lock"] - window, signed) if values["acq_enable"] else None,
        (values["rel_lock"] - window, values["rel_value"]) if values["rel_value"] else None,
        values["next"] if values["use_next"] else None,
    )


@dataclass(frozen=True)
class QueuePush:
    """A task for a DMA channel: a BD to start from, how often, and whether the end sends a token."""

    bd: int
    repeat: int = 1
    token: bool = False

    def encode(self) -> int:
        """The queue register's word."""
        return int(self.token) << 31 | (self.repeat - 1) << 16 | self.bd


def decode_push(word: int) -> QueuePush:
    """A task from the queue register's word."""
    return QueuePush(word & 0x3F, (word >> 16 & 0xFF) + 1, bool(word >> 31))


def address_of(tile: Tile, offset: int) -> int:
    """An address as instruction streams and configurations write it."""
    return tile.column << 25 | tile.row << 20 | offset


def place_of(address: int) -> tuple[Tile, int]:
    """Tile and offset of an address."""
    return Tile(address >> 25, address >> 20 & 0x1F), address & 0xFFFFF


def queue_register(kind: Kind, direction: Direction, channel: int, s2mm_channels: int) -> int:
    """Offset of a channel's task queue; its control register lies 4 bytes before."""
    index = channel + (s2mm_channels if direction == "MM2S" else 0)
    return DMA_BASE[kind] + 8 * index + 4
