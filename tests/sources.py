"""Microphones that do what a test says, in place of real ones."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import numpy as np
import soxr

from xdna_asr.types import F32
from xdna_dictate.audio.sources import Source
from xdna_dictate.errors import NoMicrophone, ServiceError


class Microphone:
    """Plays `samples` (mono, 16 kHz) at its own rate and channels, `speed` times real time, then what `after` says.

    `late` seconds pass before the first block; at the end: "gone", "stuck", "silence" (faint noise), "zeros".
    """

    def __init__(
        self,
        samples: F32,
        *,
        rate: int = 16_000,
        channels: int = 1,
        block: float = 0.02,
        late: float = 0.0,
        speed: float = 1.0,
        after: str = "silence",
        blocked: float = 0.0,
    ) -> None:
        self.rate, self.channels, self.after = rate, channels, after
        self._late, self._pace, self._blocked = late, block / speed, blocked
        mono = samples if rate == 16_000 else np.asarray(soxr.resample(samples, 16_000, rate), np.float32)
        data = np.repeat((np.clip(mono, -1, 1) * 32_767).astype(np.int16), channels)
        self._size = round(block * rate) * channels
        self._blocks: Iterator[bytes] = iter([data[i : i + self._size].tobytes() for i in range(0, len(data), self._size)])
        self._rng = np.random.default_rng(0)
        self._due = 0.0
        self.spoken = asyncio.Event()
        self.closed = False

    async def read(self) -> bytes:
        now = asyncio.get_running_loop().time()
        self._due = (self._due or now) + (self._late or self._pace)
        self._late = 0.0
        await asyncio.sleep(max(self._due - now, 0.0))
        block = next(self._blocks, None)
        if block is not None:
            return block
        self.spoken.set()
        if self.after == "gone":
            return b""
        if self.after == "stuck":
            await asyncio.Event().wait()
        if self.after == "zeros":
            return bytes(2 * self._size)
        return bytes(self._rng.integers(-20, 21, self._size, dtype=np.int16).tobytes())

    async def close(self) -> None:
        self.closed = True
        if self._blocked:
            await asyncio.sleep(self._blocked)


def opening(*script: Source | ServiceError) -> Callable[[str], Awaitable[Source]]:
    """Opens what `script` says, one after the other; the last one again and again."""
    waiting: list[Any] = list(script)

    async def open_source(_name: str) -> Source:
        await asyncio.sleep(0)
        found = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if isinstance(found, ServiceError):
            raise found
        return found  # type: ignore[no-any-return]

    return open_source


NONE = NoMicrophone("there is no microphone")


def numbered(count: int) -> F32:
    """Samples that can be told apart, all different from silence."""
    return np.asarray((np.arange(1, count + 1) % 30_000 + 1) / 32_767, np.float32)
