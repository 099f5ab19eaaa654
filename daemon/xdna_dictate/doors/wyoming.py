"""The Wyoming protocol, for Home Assistant and its relatives: describe, transcribe, audio in, transcript out."""

import asyncio
import logging
import wave
from typing import Any

from wyoming.asr import Transcribe, Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import AsrModel, AsrProgram, Attribution, Describe, Info
from wyoming.server import AsyncEventHandler, AsyncServer

from xdna_asr.errors import AsrError
from xdna_asr.registry import english_only
from xdna_dictate import __version__
from xdna_dictate.doors import LARGEST, path_of, private_file
from xdna_dictate.errors import DictateError, bus_name
from xdna_dictate.jobs import Jobs

log = logging.getLogger(__name__)


async def serve(host: str, port: int, jobs: Jobs) -> None:
    """Serve for ever."""
    server = AsyncServer.from_uri(f"tcp://{host}:{port}")
    await server.start(lambda reader, writer: _Handler(reader, writer, jobs))
    log.info("Wyoming on tcp://%s:%d", host, port)
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop()


class _Handler(AsyncEventHandler):
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, jobs: Jobs) -> None:
        super().__init__(reader, writer)
        self._jobs = jobs
        self._language: str | None = None
        self._file: Any = None
        self._wave: wave.Wave_write | None = None

    async def handle_event(self, event: Event) -> bool:
        if Describe.is_type(event.type):
            await self.write_event(self._info().event())
        elif Transcribe.is_type(event.type):
            self._language = Transcribe.from_event(event).language
        elif AudioStart.is_type(event.type):
            self._begin(AudioStart.from_event(event))
        elif AudioChunk.is_type(event.type) and self._wave:
            chunk = AudioChunk.from_event(event)
            if self._file.tell() + len(chunk.audio) <= LARGEST:
                self._wave.writeframesraw(chunk.audio)
        elif AudioStop.is_type(event.type) and self._wave:
            await self._finish()
        return True

    async def disconnect(self) -> None:
        if self._file:
            self._file.close()

    def _begin(self, start: AudioStart) -> None:
        if self._file:
            self._file.close()
        self._file = private_file()
        self._wave = wave.open(self._file, "wb")  # noqa: SIM115  closed by `_finish`
        self._wave.setframerate(start.rate)
        self._wave.setsampwidth(start.width)
        self._wave.setnchannels(start.channels)

    async def _finish(self) -> None:
        if self._wave:
            self._wave.close()
        try:
            options = {"language": self._language} if self._language else {}
            text = await self._jobs.transcribe(path_of(self._file), "audio", "text", options)
            await self.write_event(Transcript(text=" ".join(text.split())).event())
        except (AsrError, DictateError) as error:
            await self.write_event(Error(text=str(error), code=bus_name(error)).event())
        finally:
            self._file.close()
            self._file = self._wave = None

    def _info(self) -> Info:
        model = self._jobs.model
        origin = Attribution(name="xdna-dictate", url="")
        languages = ["en"] if english_only(model) else ["*"]
        known = AsrModel(name=model, attribution=origin, installed=True, description=model, version=None, languages=languages)
        program = AsrProgram(
            name="xdna-dictate",
            attribution=origin,
            installed=True,
            description="Private dictation on this computer",
            version=__version__,
            models=[known],
        )
        return Info(asr=[program])
