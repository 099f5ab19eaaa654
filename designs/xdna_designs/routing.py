"""Stream switches: circuit-switched ways from one DMA channel to one or more others, within the ports each tile has."""

import heapq
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from xdna_designs.device import MEM_ROW, ROWS, SHIM_ROW, Device, Direction, Tile
from xdna_designs.taps import DesignError

_WAYS: Final = {"North": (0, 1), "South": (0, -1), "East": (1, 0), "West": (-1, 0)}
_OPPOSITE: Final = {"North": "South", "South": "North", "East": "West", "West": "East"}
_PORTS: Final = {"North": 6, "South": 4, "East": 4, "West": 4}
SHIM_SOURCE: Final = {0: "South3", 1: "South7"}
SHIM_SINK: Final = {0: "South2", 1: "South3"}


@dataclass(frozen=True, order=True)
class DmaPort:
    """One DMA channel of one tile."""

    tile: Tile
    direction: Direction
    channel: int

    def __str__(self) -> str:
        return f"{self.direction}{self.channel} of tile {self.tile}"


@dataclass(frozen=True)
class Flow:
    """A stream from one MM2S channel to its S2MM channels."""

    name: str
    source: DmaPort
    sinks: tuple[DmaPort, ...]


@dataclass(frozen=True)
class Connection:
    """One setting of a tile's switch: what a master port carries."""

    slave: str
    master: str


def local_port(port: DmaPort) -> str:
    """The switch port of a DMA channel."""
    if port.tile.row == SHIM_ROW:
        return (SHIM_SOURCE if port.direction == "MM2S" else SHIM_SINK)[port.channel]
    return f"DMA{port.channel}"


def _step(tile: Tile, way: str, device: Device) -> Tile | None:
    column, row = tile.column + _WAYS[way][0], tile.row + _WAYS[way][1]
    if not (0 <= column < device.columns and 0 <= row < ROWS) or (tile.row == MEM_ROW and way in ("East", "West")):
        return None
    return Tile(column, row)


def route(flows: Iterable[Flow], device: Device) -> dict[Tile, list[Connection]]:
    """Switch settings for all flows. Raises DesignError naming the flow and the tile with no free port."""
    used: dict[tuple[Tile, str], int] = defaultdict(int)
    settings: dict[Tile, list[Connection]] = defaultdict(list)
    for flow in flows:
        arrivals = {flow.source.tile: local_port(flow.source)}
        for sink in flow.sinks:
            path = _cheapest(flow, sink.tile, arrivals, used, device)
            for tile, way in path:
                index = used[tile, way]
                used[tile, way] += 1
                settings[tile].append(Connection(arrivals[tile], f"{way}{index}"))
                following = _step(tile, way, device)
                assert following is not None
                arrivals[following] = f"{_OPPOSITE[way]}{index}"
            settings[sink.tile].append(Connection(arrivals[sink.tile], local_port(sink)))
    return dict(settings)


def _cheapest(
    flow: Flow, goal: Tile, arrivals: dict[Tile, str], used: dict[tuple[Tile, str], int], device: Device
) -> list[tuple[Tile, str]]:
    """Steps from the nearest tile the flow already reaches; crowded switches cost more."""
    heap: list[tuple[float, Tile, tuple[tuple[Tile, str], ...]]] = [(0.0, tile, ()) for tile in sorted(arrivals)]
    heapq.heapify(heap)
    seen: set[Tile] = set()
    while heap:
        cost, tile, path = heapq.heappop(heap)
        if tile == goal:
            return list(path)
        if tile in seen:
            continue
        seen.add(tile)
        for way, ports in _PORTS.items():
            following = _step(tile, way, device)
            taken = used[tile, way]
            if following is None or following in seen or following in arrivals or taken >= ports:
                continue
            heapq.heappush(heap, (cost + 1 + taken / ports, following, (*path, (tile, way))))
    raise DesignError(f"{flow.name}: no free switch ports on any way from tile {flow.source.tile} to tile {goal}")


def trace(settings: dict[Tile, list[Connection]], port: DmaPort, device: Device) -> list[DmaPort]:
    """Where a stream that leaves `port` ends, read back from the switch settings."""
    ends: list[DmaPort] = []
    open_ = [(port.tile, local_port(port))]
    while open_:
        tile, slave = open_.pop()
        for connection in settings.get(tile, ()):
            if connection.slave != slave:
                continue
            sink = _sink(tile, connection.master)
            if sink is not None:
                ends.append(sink)
                continue
            way = connection.master.rstrip("0123456789")
            following = _step(tile, way, device)
            assert following is not None
            open_.append((following, _OPPOSITE[way] + connection.master[len(way) :]))
    return sorted(ends)


def _sink(tile: Tile, master: str) -> DmaPort | None:
    if master.startswith("DMA"):
        return DmaPort(tile, "S2MM", int(master[3:]))
    if tile.row == SHIM_ROW and master.startswith("South"):
        return DmaPort(tile, "S2MM", next(channel for channel, name in SHIM_SINK.items() if name == master))
    return None
