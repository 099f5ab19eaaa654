"""What happened in a run, for the report and the picture."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from xdna_designs.device import Tile


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

    def moved(self, lanes: Iterable[str], host_buffer: int | None, begin: float, end: float, words: int) -> None:
        """Words moved over a stream; `host_buffer` is the address of the one they came from or went to."""
        if host_buffer is not None:
            self.host_words[host_buffer] += words
        for lane in lanes:
            self.busy[lane] += end - begin
            if self.detailed:
                self.lanes[lane].append(Span(begin, end, f"{words} words"))
