"""Sound for a dictation that does not come from a microphone opened for it: a warm one, or a recording."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from xdna_dictate.audio.capture import Capture, Listener
from xdna_dictate.audio.sources import Source
from xdna_dictate.errors import ServiceError

F32 = NDArray[np.float32]
log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 5.0


class WarmMicrophone:
    """A microphone that stays open and remembers its last moment, so that a dictation begins before its start."""

    def __init__(self, name: str, open_source: Callable[[str], Awaitable[Source]], pre_roll: float) -> None:
        self.name, self.pre_roll, self._open_source = name, pre_roll, open_source
        self._capture: Capture | None = None
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Capture until `stop`, opening a lost microphone again."""
        while not self._stopped.is_set():
            self._capture = Capture(self.name, self._open_source, None, self.pre_roll)
            await self._capture.run()
            try:
                async with asyncio.timeout(_AGAIN_SECONDS):
                    await self._stopped.wait()
            except TimeoutError:
                log.info("warm microphone: trying again")

    def stop(self) -> None:
        """Close it."""
        self._stopped.set()
        if self._capture:
            self._capture.stop()

    def feed(self, listener: Listener) -> "WarmFeed | Capture":
        """Its sound for one dictation; a microphone of its own if the warm one is lost at the moment."""
        if self._capture and self._capture.flowing:
            return WarmFeed(self._capture, listener)
        return Capture(self.name, self._open_source, listener)


class WarmFeed:
    """A dictation's share of a warm microphone."""

    def __init__(self, capture: Capture, listener: Listener) -> None:
        self._capture, self._listener = capture, listener
        self._stopped = asyncio.Event()

    @property
    def only_zeros(self) -> bool:
        """See Feed."""
        return self._capture.only_zeros

    async def run(self) -> None:
        """See Feed."""
        self._capture.attach(self._listener)
        try:
            await self._stopped.wait()
        finally:
            if self._capture.listener is self._listener:
                self._capture.listener = None

    def stop(self) -> None:
        """See Feed."""
        self._stopped.set()


class _Hungry(Protocol):
    """A listener that says when it has room for more, and that is told the end."""

    room: asyncio.Event

    def samples(self, samples: F32) -> None: ...

    def lost(self, error: ServiceError) -> None: ...

    def stop(self) -> None: ...


class Replay:
    """A recording, as fast as it is recognised."""

    only_zeros = False

    def __init__(self, blocks: Iterator[F32], listener: _Hungry, at_end: Callable[[], None]) -> None:
        self._blocks, self._listener, self._at_end, self._stopped = blocks, listener, at_end, False

    async def run(self) -> None:
        """See Feed."""
        for block in self._blocks:
            await self._listener.room.wait()
            if self._stopped:
                return
            self._listener.samples(block)
            await asyncio.sleep(0)
        self._at_end()
        self._listener.stop()

    def stop(self) -> None:
        """See Feed."""
        self._stopped = True
