"""Cooperative agents on a virtual clock: cores, DMA streams and the controller."""

import heapq
import random
from collections import deque
from collections.abc import Generator
from typing import Any

from xdna_designs.device import Tile


class Waitable:
    """Something an agent can wait for."""

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        self.waiters: list[Agent] = []

    def describe(self) -> str:
        """What it is, for a report."""
        return "something"


PAUSE = Waitable()
"""Yielded by an agent whose next action is at its `time`, so that whoever is earlier goes first."""


class Lock(Waitable):
    """A counting lock. Every unit carries the time of its release."""

    __slots__ = ("id", "name", "stamps", "tile")

    def __init__(self, tile: Tile, id: int, value: int, name: str) -> None:
        super().__init__()
        self.tile = tile
        self.id = id
        self.name = name
        self.stamps: deque[float] = deque([0.0] * value)

    @property
    def value(self) -> int:
        """Its count."""
        return len(self.stamps)

    def describe(self) -> str:
        return f"{self.name} (lock {self.id} of tile {self.tile})"


class Tokens(Waitable):
    """Task-completion tokens of one channel."""

    __slots__ = ("name", "stamps")

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.stamps: deque[float] = deque()

    def describe(self) -> str:
        return f"the end of a task of {self.name}"


Steps = Generator[Waitable, None, None]


class Agent:
    """One thing that acts by itself."""

    __slots__ = ("name", "steps", "time", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.time = 0.0
        self.waiting: Waitable | None = None
        self.steps: Steps | None = None

    def waits_for(self) -> str:
        """Why it does not go on, in words."""
        return self.waiting.describe() if self.waiting else "nothing"


class Scheduler:
    """Runs agents until none can go on: by time, or in random order when given a seed."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = None if seed is None else random.Random(seed)
        self._ready: list[Any] = []
        self._count = 0

    def ready(self, agent: Agent) -> None:
        """Let an agent go on."""
        agent.waiting = None
        if self._random is not None:
            self._ready.append(agent)
            return
        self._count += 1
        heapq.heappush(self._ready, (agent.time, self._count, agent))

    def wake(self, waitable: Waitable) -> None:
        """Let everybody go on who waits for this."""
        if waitable.waiters:
            waiters, waitable.waiters = waitable.waiters, []
            for agent in waiters:
                self.ready(agent)

    def release(self, lock: Lock, count: int, time: float) -> None:
        """Add units to a lock."""
        for _ in range(count):
            lock.stamps.append(time)
        self.wake(lock)

    def run(self) -> None:
        """Until nobody can go on."""
        while self._ready:
            agent = self._next()
            assert agent.steps is not None
            waitable = next(agent.steps, None)
            if waitable is PAUSE:
                self.ready(agent)
            elif waitable is not None:
                agent.waiting = waitable
                waitable.waiters.append(agent)

    def _next(self) -> Agent:
        chosen: Agent
        if self._random is None:
            chosen = heapq.heappop(self._ready)[2]
        else:
            index = self._random.randrange(len(self._ready))
            self._ready[index], self._ready[-1] = self._ready[-1], self._ready[index]
            chosen = self._ready.pop()
        return chosen
