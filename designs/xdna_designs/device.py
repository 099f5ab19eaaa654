"""The two generations of the array: geometry and what each kind of tile has.

Numbers from mlir-aie's AIETargetModel (lib/Dialect/AIE/IR/AIETargetModel.cpp), firmware limits from amd/xdna-driver
(npu1_regs.c, npu4_regs.c). The only place where npu1 and npu2 differ by a number.
"""

from dataclasses import dataclass
from typing import Final, Literal

from xdna_designs.taps import DesignError

Kind = Literal["shim", "mem", "core"]
Direction = Literal["S2MM", "MM2S"]

SHIM_ROW: Final = 0
MEM_ROW: Final = 1
FIRST_CORE_ROW: Final = 2
ROWS: Final = 6
CORE_ROWS: Final = ROWS - FIRST_CORE_ROW
PROGRAM_BUDGET: Final = 12288
"""Bytes of a core's program that an estimate may reach; the memory has 16384, and the linker does not notice more."""
QUEUE_DEPTH: Final = 4
MAX_REPEAT: Final = 256
MAX_ITERATION: Final = 64
MAX_LOCK_VALUE: Final = 63
MAX_HOST_BUFFERS: Final = 5
INSTRUCTION_HEAP_BYTES: Final = 64 << 20
HANG_SECONDS: Final = 2.0
DISPATCH_LIMIT_SECONDS: Final = 0.5


@dataclass(frozen=True)
class TileLimits:
    """Resources of one kind of tile; lengths, wraps and steps count 32-bit words."""

    memory: int
    banks: int
    s2mm: int
    mm2s: int
    bds: int
    locks: int
    dims: int
    length_bits: int
    wrap_bits: int
    step_bits: int

    def channels(self, direction: Direction) -> int:
        """DMA channels of one direction."""
        return self.s2mm if direction == "S2MM" else self.mm2s


LIMITS: Final[dict[Kind, TileLimits]] = {
    "shim": TileLimits(0, 0, 2, 2, 16, 16, 3, 32, 10, 20),
    "mem": TileLimits(512 << 10, 8, 6, 6, 48, 64, 4, 17, 10, 17),
    "core": TileLimits(64 << 10, 4, 2, 2, 16, 16, 3, 14, 8, 13),
}


@dataclass(frozen=True)
class Device:
    """One generation of the array. `code` is the generation in an instruction stream's header."""

    name: str
    generation: Literal["aie2", "aie2p"]
    columns: int
    contexts: int
    code: int

    @property
    def arch(self) -> int:
        """Value of __AIE_ARCH__."""
        return 20 if self.generation == "aie2" else 21

    def kind(self, tile: "Tile") -> Kind:
        """What a tile is. Raises DesignError outside the device."""
        if not (0 <= tile.column < self.columns and 0 <= tile.row < ROWS):
            raise DesignError(f"{self.name} has no tile {tile}: columns 0-{self.columns - 1}, rows 0-{ROWS - 1}")
        return "shim" if tile.row == SHIM_ROW else "mem" if tile.row == MEM_ROW else "core"


@dataclass(frozen=True, order=True)
class Tile:
    """A place in the array; row 0 is the shim, row 1 the MemTile, rows 2-5 are cores."""

    column: int
    row: int

    def __str__(self) -> str:
        return f"({self.column}, {self.row})"

    def is_neighbour(self, other: "Tile") -> bool:
        """Whether two cores reach each other's memory."""
        return abs(self.column - other.column) + abs(self.row - other.row) == 1


NPU1: Final = Device("npu1", "aie2", columns=4, contexts=6, code=3)
NPU2: Final = Device("npu2", "aie2p", columns=8, contexts=16, code=4)
DEVICES: Final = {device.name: device for device in (NPU1, NPU2)}
