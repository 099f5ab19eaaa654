"""One microphone while it is open: watches it, opens it again when it fails, makes 16 kHz mono of what it delivers."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import soxr
from numpy.typing import NDArray

from xdna_asr.features import SAMPLE_RATE
from xdna_dictate.audio import pulse
from xdna_dictate.audio.channels import mix
from xdna_dictate.audio.sources import Source
from xdna_dictate.errors import NoMicrophone, ServiceError

F32 = NDArray[np.float32]
log = logging.getLogger(__name__)

FIRST_SECONDS: Final = 5.0
"""Wait for the first block; Bluetooth headsets take up to three seconds."""
STALL_SECONDS: Final = 1.0
"""A gap between blocks that means trouble; a busy sound server makes up for shorter ones."""
REOPEN_SECONDS: Final = 3.0
"""How long a lost microphone is tried again."""
ZERO_SECONDS: Final = 3.0
"""Exact zeros for so long come from a dead stream or a muted microphone."""
DEFICIT_SECONDS: Final = 2.0
"""Sound that is missing against the clock."""
_LEFT_OVER_SECONDS: Final = 0.002
"""After `stop`: what does not arrive within this was not heard before it."""
_BACKLOG_SECONDS: Final = 0.001
"""A block that is there at once has waited: this program was late, not the microphone."""
_WAITS: Final = (0.05, 0.1, 0.2, 0.4)


class Listener(Protocol):
    """Who wants the samples."""

    def samples(self, samples: F32) -> None:
        """Mono, 16 kHz."""
        ...

    def lost(self, error: ServiceError) -> None:
        """No more samples will come."""
        ...


class Resampler:
    """Interleaved 16-bit blocks of a device -> mono at 16 kHz."""

    def __init__(self, rate: int, channels: int) -> None:
        self._channels = channels
        self._stream = None if rate == SAMPLE_RATE else soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32")

    def push(self, block: bytes) -> F32:
        """The samples that `block` completes."""
        frames = np.frombuffer(block, np.int16).reshape(-1, self._channels) * np.float32(1 / 32_768)
        return self._resampled(mix(frames), last=False)

    def finish(self) -> F32:
        """What the filter still holds."""
        return self._resampled(np.zeros(0, np.float32), last=True) if self._stream else np.zeros(0, np.float32)

    def _resampled(self, mono: F32, *, last: bool) -> F32:
        return mono if self._stream is None else np.asarray(self._stream.resample_chunk(mono, last=last), np.float32)


@dataclass
class _Health:
    """What a stream delivered, against the clock."""

    began: float
    seconds: float = 0.0
    zeros: float = 0.0
    sounded: bool = False

    def count(self, block: bytes, seconds: float) -> None:
        """Take note of a block."""
        self.seconds += seconds
        silent = block.count(0) == len(block)
        self.zeros, self.sounded = (self.zeros + seconds if silent else 0.0), self.sounded or not silent

    def deficit(self, now: float) -> float:
        """Seconds that should have come by now and did not."""
        return now - self.began - self.seconds


class Capture:
    """Delivers one microphone's sound to a listener until `stop`."""

    def __init__(
        self, name: str, open_source: Callable[[str], Awaitable[Source]], listener: Listener | None, pre_roll: float = 0.0
    ) -> None:
        self.name, self.listener = name, listener
        self._open_source = open_source
        self._ring: deque[F32] = deque()
        self._ring_size = round(pre_roll * SAMPLE_RATE)
        self._stopping = asyncio.Event()
        self._waiting: asyncio.Timeout | None = None
        self._tried_silence = False
        self.flowing = False
        self.only_zeros = True

    def attach(self, listener: Listener) -> None:
        """Send what comes to `listener`, first what came just before."""
        self.listener, self.only_zeros = listener, True
        past = np.concatenate(self._ring)[-self._ring_size :] if self._ring and self._ring_size else np.zeros(0, np.float32)
        self._ring.clear()
        if len(past):
            listener.samples(past)

    def stop(self) -> None:
        """Let go of the microphone once what it has delivered is passed on."""
        self._stopping.set()
        if self._waiting:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Capture until `stop`, or until the microphone is lost for good, which the listener is told."""
        try:
            source = await self._open_source(self.name)
            while True:
                reason = await self._drain(source)
                if self._stopping.is_set():
                    return
                log.warning("microphone: %s; opening it again", reason)
                source = await self._reopen()
        except ServiceError as error:
            if self.listener:
                self.listener.lost(error)

    async def _reopen(self) -> Source:
        loop = asyncio.get_running_loop()
        until = loop.time() + REOPEN_SECONDS
        for attempt in range(1_000):
            try:
                return await self._open_source(self.name)
            except ServiceError as error:
                if loop.time() > until or self._stopping.is_set():
                    raise NoMicrophone(f"the microphone was lost while it was used ({error})") from error
                await asyncio.sleep(_WAITS[min(attempt, len(_WAITS) - 1)])
        raise NoMicrophone("the microphone was lost while it was used")

    async def _drain(self, source: Source) -> str:
        """Pass on what `source` delivers until it fails, or until `stop`; returns why it failed."""
        loop, resampler = asyncio.get_running_loop(), Resampler(source.rate, source.channels)
        health: _Health | None = None
        try:
            while True:
                asked = loop.time()
                limit = _LEFT_OVER_SECONDS if self._stopping.is_set() else STALL_SECONDS if health else FIRST_SECONDS
                try:
                    async with asyncio.timeout(limit) as self._waiting:
                        block = await source.read()
                except TimeoutError:
                    if self._stopping.is_set() and limit != _LEFT_OVER_SECONDS:
                        continue
                    return f"no sound for {limit:g} s"
                finally:
                    self._waiting = None
                if not block:
                    return "the device has gone"
                health = health or _Health(loop.time())
                health.count(block, len(block) / (2 * source.channels * source.rate))
                self.flowing = True
                self._pass_on(resampler.push(block), zeros=not health.sounded)
                caught_up = loop.time() - asked > _BACKLOG_SECONDS
                if caught_up and (complaint := await self._complaint(health, loop.time())):
                    return complaint
        finally:
            self.flowing = False
            self._pass_on(resampler.finish(), zeros=True)
            await source.close()

    async def _complaint(self, health: _Health, now: float) -> str | None:
        """Why the stream should be opened anew."""
        if health.deficit(now) > DEFICIT_SECONDS:
            return f"{health.deficit(now):.1f} s of sound are missing"
        if health.zeros > ZERO_SECONDS:
            health.zeros = 0.0
            if (not health.sounded and not self._tried_silence) or await pulse.only_null():
                self._tried_silence = True
                return "only digital silence"
        return None

    def _pass_on(self, samples: F32, *, zeros: bool) -> None:
        self.only_zeros = self.only_zeros and zeros
        if not len(samples):
            return
        if self.listener:
            self.listener.samples(samples)
            return
        self._ring.append(samples)
        while len(self._ring) > 1 and sum(map(len, self._ring)) - len(self._ring[0]) >= self._ring_size:
            self._ring.popleft()
