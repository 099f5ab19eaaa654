"""Where samples come from: PortAudio, or `parec` of PulseAudio and PipeWire."""

import asyncio
import contextlib
import logging
import shutil
import threading
from dataclasses import dataclass
from typing import Any, Final, Protocol

from xdna_dictate.audio import pulse
from xdna_dictate.children import kill
from xdna_dictate.errors import MicrophoneBusy, NoMicrophone

log = logging.getLogger(__name__)

BLOCK_SECONDS: Final = 0.032
"""One step of the voice activity detector."""
LATENCY_SECONDS: Final = 0.1
"""PortAudio's shortest wakes its thread so often that listening takes twice the processor time; this starts 30 ms later."""
OPEN_SECONDS: Final = 8.0
CLOSE_SECONDS: Final = 2.0
_SERVERS: Final = ("default", "pulse", "pipewire")
_SERVER_RATE: Final = 48_000
_QUEUE_BLOCKS: Final = 1000
"""30 s; a loop that is busy for longer is broken."""


_portaudio: Final = threading.Lock()
"""PortAudio starts, opens and closes from one thread at a time."""
_open_streams: Final[set[Any]] = set()


class Source(Protocol):
    """An open microphone that delivers interleaved 16-bit samples."""

    rate: int
    channels: int

    async def read(self) -> bytes:
        """The next block, waiting for it; empty when no more will come."""
        ...

    async def close(self) -> None:
        """Let go of the device; never takes longer than CLOSE_SECONDS."""
        ...


async def open_microphone(name: str) -> Source:
    """The microphone called `name`, the desktop's default for "". Raises NoMicrophone or MicrophoneBusy."""
    if name and await pulse.has_source(name):
        return await Parec.open(name)
    try:
        return await PortAudio.open(name)
    except (NoMicrophone, MicrophoneBusy) as refusal:
        if name or shutil.which("parec") is None:
            raise
        log.info("PortAudio: %s; trying parec", refusal)
        try:
            return await Parec.open(name)
        except NoMicrophone:
            raise refusal from None


@dataclass
class PortAudio:
    """A stream of PortAudio at the device's own rate."""

    rate: int
    channels: int
    _blocks: "asyncio.Queue[bytes]"
    _stream: Any = None

    @classmethod
    async def open(cls, name: str) -> "PortAudio":
        """The device called `name`, the default one for ""."""
        loop, blocks = asyncio.get_running_loop(), asyncio.Queue[bytes](_QUEUE_BLOCKS)

        def deliver(block: bytes) -> None:
            with contextlib.suppress(asyncio.QueueFull):
                blocks.put_nowait(block)

        def hand_over(block: bytes) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(deliver, block)

        opening = asyncio.ensure_future(asyncio.to_thread(_open_portaudio, name, hand_over))
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                stream, rate, channels = await asyncio.shield(opening)
        except (TimeoutError, asyncio.CancelledError) as error:
            opening.add_done_callback(_close_late)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise NoMicrophone(f"the microphone could not be opened within {OPEN_SECONDS:g} s") from error
        return cls(rate, channels, blocks, stream)

    async def read(self) -> bytes:
        return await self._blocks.get()

    async def close(self) -> None:
        # stop() waits for a device that may never answer; abort() returns at once, nearly always.
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.to_thread(_abort, self._stream)
        except TimeoutError:
            log.warning("the microphone did not close in time; left to itself")


def _abort(stream: Any) -> None:
    stream.abort(ignore_errors=True)
    with _portaudio:
        stream.close(ignore_errors=True)
        _open_streams.discard(stream)


def _close_late(opening: "asyncio.Future[tuple[Any, int, int]]") -> None:
    """Let go of a device that opened after nobody waited for it any more."""
    if not opening.cancelled() and opening.exception() is None:
        threading.Thread(target=_abort, args=(opening.result()[0],), daemon=True).start()


def _open_portaudio(name: str, hand_over: Any) -> tuple[Any, int, int]:
    """A running stream, its rate and channels; runs in a thread."""
    if not _portaudio.acquire(timeout=OPEN_SECONDS):
        raise NoMicrophone("PortAudio does not answer; log in again, or restart the sound server")
    try:
        return _opened(name, hand_over)
    finally:
        _portaudio.release()


def _opened(name: str, hand_over: Any) -> tuple[Any, int, int]:
    try:
        import sounddevice
    except OSError as error:
        raise NoMicrophone("PortAudio is missing; install the package libportaudio2 (Debian, Ubuntu) or portaudio") from error
    try:
        if not _open_streams:
            # PortAudio lists devices once; what was plugged in since is seen after it starts anew.
            sounddevice._terminate()
            sounddevice._initialize()
        device = sounddevice.query_devices(name or None, "input")
        channels = 1 if device["name"] in _SERVERS else min(int(device["max_input_channels"]), 2)
        rate = _rate(sounddevice, device, channels)

        def callback(data: Any, _frames: int, _time: Any, _status: Any) -> None:
            hand_over(bytes(data))

        stream = sounddevice.RawInputStream(
            samplerate=rate,
            blocksize=round(rate * BLOCK_SECONDS),
            device=device["index"],
            channels=channels,
            dtype="int16",
            latency=LATENCY_SECONDS,
            callback=callback,
            finished_callback=lambda: hand_over(b""),
        )
        stream.start()
        _open_streams.add(stream)
    except (sounddevice.PortAudioError, ValueError) as error:
        reason = str(error).splitlines()[0]
        if "unavailable" in reason.lower():
            raise MicrophoneBusy(f"another program keeps the microphone for itself ({reason})") from error
        called = f"no microphone is called {name!r}" if name else "no microphone was found"
        raise NoMicrophone(f"{called} ({reason}); see xdna-dictate doctor") from error
    return stream, rate, channels


def _rate(sounddevice: Any, device: Any, channels: int) -> int:
    """The rate at which a device records without being resampled by anybody else.

    Sound servers say 44.1 kHz whatever the hardware does, which is nearly always 48 kHz, and resample badly.
    """
    if device["name"] in _SERVERS:
        with contextlib.suppress(sounddevice.PortAudioError):
            sounddevice.check_input_settings(device["index"], channels, "int16", None, _SERVER_RATE)
            return _SERVER_RATE
    return int(device["default_samplerate"])


@dataclass
class Parec:
    """`parec` of the sound server."""

    _process: asyncio.subprocess.Process
    _stdout: asyncio.StreamReader
    _first: bytes
    rate: int = _SERVER_RATE
    channels: int = 1

    @classmethod
    async def open(cls, name: str) -> "Parec":
        """The source called `name`, the server's default for ""."""
        device = ["--device", name] if name else []
        process = await asyncio.create_subprocess_exec(
            "parec",
            *device,
            f"--rate={_SERVER_RATE}",
            "--channels=1",
            "--format=s16le",
            "--raw",
            f"--latency-msec={round(BLOCK_SECONDS * 1000)}",
            "--client-name=xdna-dictate",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        stdout, first = process.stdout, b""
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                first = await stdout.read(4096) if stdout else b""
        except TimeoutError:
            pass
        finally:
            if not first and process.returncode is None:
                kill(process)
        if stdout is None or not first:
            await process.wait()
            raise NoMicrophone(f"parec could not open {name or 'the default microphone'}; see xdna-dictate doctor")
        return cls(process, stdout, first)

    async def read(self) -> bytes:
        first, self._first = self._first, b""
        block = first or await self._stdout.read(4096)
        return block + await self._stdout.readexactly(1) if len(block) % 2 else block

    async def close(self) -> None:
        if self._process.returncode is None:
            kill(self._process)
        async with asyncio.timeout(CLOSE_SECONDS):
            await self._process.wait()
