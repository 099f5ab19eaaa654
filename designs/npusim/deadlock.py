"""Why nobody can go on: who waits for whom, in words and as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass

from npusim.core import CascadeBeats, CoreAgent
from npusim.dma import Queue, Stream
from npusim.memory import SimulationError
from npusim.picture import wait_graph
from npusim.schedule import Agent, Lock, Waitable
from xdna_designs.device import Tile
from xdna_designs.lowering import Configuration


@dataclass(frozen=True)
class WaitFor:
    """One edge of the wait-for graph."""

    who: str
    what: str
    whom: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """The wait-for graph of a stuck array; `cycle` names agents that wait for each other, first and last the same."""

    edges: tuple[WaitFor, ...]
    cycle: tuple[str, ...]

    def __str__(self) -> str:
        by_name = {edge.who: edge for edge in self.edges}
        if self.cycle:
            lines = [
                "deadlock:",
                *(f"  {who} waits for {by_name[who].what}" for who in self.cycle[:-1]),
                f"  and so on with {self.cycle[0]}",
            ]
        else:
            lines = ["stuck: nobody will ever give what is waited for"]
        rest = [edge for edge in self.edges if edge.who not in self.cycle]
        lines += [f"  {edge.who} waits for {edge.what}" + (f" from {', '.join(edge.whom)}" if edge.whom else "") for edge in rest]
        return "\n".join(lines)

    def svg(self) -> str:
        """The graph as a picture."""
        return wait_graph([(edge.who, edge.what, edge.whom) for edge in self.edges], set(self.cycle))


class Deadlock(SimulationError):
    """Nobody can go on although the dispatch is not done."""

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True)
class Stuck:
    """What stands still."""

    configuration: Configuration
    locks: dict[Tile, dict[int, Lock]]
    cores: Sequence[CoreAgent]
    streams: Sequence[Stream]
    controller: Agent

    def report(self) -> Report:
        """Who waits for whom."""
        givers = self._givers()
        edges = []
        for agent in (self.controller, *self.cores, *self.streams):
            if agent.waiting is not None:
                whom = tuple(sorted(set(self._whom(agent.waiting, givers)) - {agent.name}))
                edges.append(WaitFor(agent.name, agent.waits_for(), whom))
        return Report(tuple(edges), _cycle({edge.who: edge.whom for edge in edges}, self.controller.name))

    def _givers(self) -> dict[Lock, list[str]]:
        """Who releases which lock: a fifo's producer side gives full buffers, its consumer side free ones.

        Where a core shares a pool with a DMA channel, the channel is the other side.
        """
        givers: dict[Lock, list[str]] = {}
        streams = {end.port: stream.name for stream in self.streams for end in (stream.source, *stream.sinks)}
        cores = {core.worker: core.name for core in self.cores}
        for end, pools in self.configuration.pools.items():
            port = self.configuration.ports.get(end)
            for pool in pools:
                free, full = self.locks[pool.tile][pool.free], self.locks[pool.tile][pool.full]
                if end.worker is not None:
                    givers.setdefault(full if end.role == "producer" else free, []).append(cores[end.worker])
                if port is not None:
                    givers.setdefault(full if port.direction == "S2MM" else free, []).append(streams.get(port, str(port)))
        return givers

    def _whom(self, waitable: Waitable, givers: dict[Lock, list[str]]) -> list[str]:
        if isinstance(waitable, Lock):
            return givers.get(waitable, [self.controller.name])
        if isinstance(waitable, Queue) and not waitable.tasks:
            return [self.controller.name]
        if isinstance(waitable, CascadeBeats):
            return [waitable.name]
        ends = {stream.name: (stream.source, *stream.sinks) for stream in self.streams}
        return [
            name for name, channels in ends.items() if any(waitable in (channel.queue, channel.tokens) for channel in channels)
        ]


def _cycle(graph: dict[str, tuple[str, ...]], start: str) -> tuple[str, ...]:
    """A cycle that can be reached, from the controller if possible."""
    for first in [start, *graph]:
        path: list[str] = []
        open_: list[tuple[str, int]] = [(first, 0)]
        seen: set[str] = set()
        while open_:
            name, depth = open_.pop()
            path = path[:depth]
            if name in path:
                return (*path[path.index(name) :], name)
            if name in seen or name not in graph:
                continue
            seen.add(name)
            path.append(name)
            open_ += [(other, depth + 1) for other in graph[name]]
    return ()
