"""What happened in a run, for the report and the picture."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from xdna_designs.device import Tile

if TYPE_CHECKING:
    from npusim.dma import Channel


@dataclass
class Span:
    """A stretch of work, in cycles."""

    begin: float
    end: float
    label: str


@dataclass
class Trace:
    """Spans by lane when `detailed`, totals always."""

    detailed: bool = False
    lanes: dict[str, list[Span]] = field(default_factory=lambda: defaultdict(list))
    busy: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    host_words: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Words moved from or to each host buffer, by its address."""
    kernel_cycles: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    kernel_calls: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def called(self, tile: Tile, kernel: str, begin: float, end: float) -> None:
        """A kernel ran."""
        lane = f"core {tile}"
        self.busy[lane] += end - begin
        self.kernel_cycles[kernel] += end - begin
        self.kernel_calls[kernel] += 1
        if self.detailed:
            self.lanes[lane].append(Span(begin, end, kernel))

    def moved(self, ends: "list[Channel]", begin: float, end: float, words: int, shim: "Channel | None") -> None:
        """Words moved over a stream."""
        if shim is not None:
            self.host_words[shim.host_buffer] += words
        for channel in ends:
            self.busy[channel.name] += end - begin
            if self.detailed:
                self.lanes[channel.name].append(Span(begin, end, f"{words} words"))
