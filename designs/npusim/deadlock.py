"""Why nobody can go on: who waits for whom, in words and as a picture."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npusim.core import CascadeBeats
from npusim.dma import Queue, Stream
from npusim.memory import SimulationError
from npusim.picture import wait_graph
from npusim.schedule import Agent, Lock, Tokens, Waitable

if TYPE_CHECKING:
    from npusim.array import Array


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


def report(array: "Array", controller: Agent) -> Report:
    """The wait-for graph of an array that stopped."""
    givers = _givers(array)
    edges = []
    for agent in [controller, *array.agents]:
        if agent.waiting is not None:
            whom = tuple(sorted(set(_whom(agent.waiting, array, givers, controller)) - {agent.name}))
            edges.append(WaitFor(agent.name, agent.waits_for(), whom))
    return Report(tuple(edges), _cycle({edge.who: edge.whom for edge in edges}, controller.name))


def _givers(array: "Array") -> dict[Lock, list[str]]:
    """Who releases which lock."""
    givers: dict[Lock, list[str]] = {}
    configuration = array.configuration
    streams = {end.port: stream.name for stream in array.streams for end in (stream.source, *stream.sinks)}
    for end, pools in configuration.pools.items():
        core = next((core.name for core in array.cores if core.worker is end.worker), None) if end.worker else None
        port = configuration.ports.get(end)
        for pool in pools:
            released = [pool.full] if (end.role == "producer" and core) or (port and port.direction == "S2MM") else []
            released += [pool.free] if (end.role == "consumer" and core) or (port and port.direction == "MM2S") else []
            if core and port:
                # A core and its DMA share the pool: each gives what the other takes.
                mine = pool.full if end.role == "producer" else pool.free
                theirs = pool.free if end.role == "producer" else pool.full
                givers.setdefault(array.locks[pool.tile][mine], []).append(core)
                givers.setdefault(array.locks[pool.tile][theirs], []).append(streams.get(port, str(port)))
                continue
            for number in released:
                givers.setdefault(array.locks[pool.tile][number], []).append(core or streams.get(port, str(port)))  # type: ignore[arg-type]
    return givers


def _whom(waitable: Waitable, array: "Array", givers: dict[Lock, list[str]], controller: Agent) -> list[str]:
    if isinstance(waitable, Lock):
        return givers.get(waitable, [controller.name])
    if isinstance(waitable, Queue):
        full = bool(waitable.tasks)
        return [stream.name for stream in array.streams if _uses(stream, waitable)] if full else [controller.name]
    if isinstance(waitable, Tokens):
        return [s.name for s in array.streams if any(end.tokens is waitable for end in (s.source, *s.sinks))]
    if isinstance(waitable, CascadeBeats):
        return [waitable.name]
    return []


def _uses(stream: Stream, queue: Queue) -> bool:
    return any(end.queue is queue for end in (stream.source, *stream.sinks))


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
