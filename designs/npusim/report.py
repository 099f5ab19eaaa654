"""What a run cost, predicted: as a table, as JSON, and as a picture of every tile and channel over time."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from npusim.array import Array, Run
from npusim.picture import timeline
from xdna_designs import cost
from xdna_designs.device import CORE_ROWS


@dataclass(frozen=True)
class Report:
    """One dispatch in figures of the cost model; none of them was measured."""

    design: str
    device: str
    predicted_us: float
    dispatches: int
    context_switches: int
    reconfigurations: int
    instruction_words: int
    bytes: dict[str, int]
    bandwidth_floor_us: float
    kernel_us: dict[str, float]
    kernel_calls: dict[str, int]
    busy: dict[str, float]
    """Share of the dispatch that each core and channel works; the rest it waits."""
    array_utilisation: float

    def json(self) -> str:
        """For machines."""
        return json.dumps({"predicted": True, **asdict(self)}, indent=1)

    def table(self) -> str:
        """For people."""
        total = sum(self.bytes.values())
        lines = [
            f"{self.design} on {self.device}: predicted, not measured",
            f"  time                {self.predicted_us:10.1f} us, {cost.value('dispatch') * 1e6:.0f} of them to submit and wait",
            f"  floor by bandwidth  {self.bandwidth_floor_us:10.1f} us for {total} bytes",
            f"  {self.dispatches} dispatch, {self.context_switches} context switches, {self.reconfigurations} reconfigurations",
            f"  instruction words   {self.instruction_words:10d}",
            f"  array utilisation   {self.array_utilisation:10.1%}",
        ]
        lines += [f"  {name:<18}  {count:10d} bytes" for name, count in self.bytes.items()]
        lines += [
            f"  {name:<18}  {us:10.1f} us on all cores, {self.kernel_calls[name]} calls" for name, us in self.kernel_us.items()
        ]
        return "\n".join(lines)


def report(array: Array, run: Run, buffers: Mapping[int, str]) -> Report:
    """The report of the array's only run. `buffers`: what is at which address."""
    microsecond = 1e6 / cost.clock(array.device)
    kinds: dict[str, int] = {}
    for address, count in run.host_bytes.items():
        name = buffers.get(address, "other")
        kinds[name] = kinds.get(name, 0) + count
    kernels = {name: cycles * microsecond for name, cycles in run.trace.kernel_cycles.items()}
    cores = array.device.columns * CORE_ROWS
    return Report(
        design=array.configuration.program.name,
        device=array.device.name,
        predicted_us=run.cycles * microsecond + cost.value("dispatch") * 1e6,
        dispatches=1,
        context_switches=0,
        reconfigurations=0,
        instruction_words=run.words,
        bytes=kinds,
        bandwidth_floor_us=sum(kinds.values()) / cost.value("ddr_bandwidth") * 1e6,
        kernel_us=kernels,
        kernel_calls=dict(run.trace.kernel_calls),
        busy={lane: cycles / run.cycles for lane, cycles in sorted(run.trace.busy.items())},
        array_utilisation=sum(run.trace.kernel_cycles.values()) / (run.cycles * cores),
    )


def picture(array: Array, title: str, columns: int | None = None) -> str:
    """The timeline of a detailed run: shims, MemTiles, then cores; of the first `columns` columns, or of all."""

    def place(lane: str) -> tuple[int, int, str]:
        column, row = (int(part) for part in lane[lane.index("(") + 1 : lane.index(")")].split(","))
        return min(row, 2) + lane.startswith("core"), column, lane

    lanes = sorted(array.trace.lanes, key=place)
    shown = {lane: array.trace.lanes[lane] for lane in lanes if columns is None or place(lane)[1] < columns}
    return timeline(f"{title}: predicted, not measured", shown, 1e6 / cost.clock(array.device))
