"""The worker's process: one loaded model, one request at a time, speech that somebody waits for first.

Requests: load, decode, draft, transcribe, cancel. Replies carry the request's id: loaded, decoded, drafted, progress,
transcribed, or failed with an error's name and a line for people.
"""

import contextlib
import io
import os
import queue
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, BinaryIO, Final

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from xdna_asr.decoding.agreement import settled_prefix
from xdna_asr.errors import AsrError
from xdna_asr.features import HOP, SAMPLE_RATE, log_mel
from xdna_asr.runtime.select import choose
from xdna_asr.store import ModelStore
from xdna_asr.types import F32, AudioLayout, DecoderOutput, DecoderRun, EncodedAudio, WhisperRuntime
from xdna_asr.window_decoder import Clip, Options, WindowDecoder
from xdna_dictate.audio.files import AudioFile, open_audio
from xdna_dictate.errors import DictateError, bus_name
from xdna_dictate.output.formats import writer
from xdna_dictate.paths import models_folder
from xdna_dictate.recognition import Recogniser, open_recogniser
from xdna_dictate.worker.messages import Message, read

PRIORITY: Final = {"load": 0, "decode": 1, "draft": 2, "transcribe": 3}
_FILE: Final = PRIORITY["transcribe"]


class _Superseded(Exception):
    """A draft is not needed any more: something more urgent waits."""


class _Inbox:
    """Requests by urgency, read by a thread of their own; the process ends when the daemon closes the pipe."""

    def __init__(self, stream: BinaryIO) -> None:
        self._queue: queue.PriorityQueue[tuple[int, int, Message]] = queue.PriorityQueue()
        self.cancelled: set[int] = set()
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: BinaryIO) -> None:
        count = 0
        while message := read(stream):
            if message.kind == "cancel":
                self.cancelled.add(message.fields["id"])
            else:
                count += 1
                self._queue.put((PRIORITY[message.kind], count, message))
        os._exit(0)

    def get(self) -> Message:
        """The most urgent request; waits for one."""
        return self._queue.get()[2]

    def more_urgent_than(self, kind: str) -> bool:
        """Whether a request waits that should not wait for one of `kind`."""
        with self._queue.mutex:
            return bool(self._queue.queue) and self._queue.queue[0][0] < PRIORITY[kind]


class _Interruptible:
    """A runtime whose decodes stop when something more urgent arrives."""

    def __init__(self, runtime: WhisperRuntime, inbox: _Inbox) -> None:
        self._runtime, self._inbox = runtime, inbox

    @property
    def n_mels(self) -> int:
        return self._runtime.n_mels

    def encode(self, mel: F32, layout: AudioLayout) -> EncodedAudio:
        self.check()
        return self._runtime.encode(mel, layout)

    def decoder(self, audio: EncodedAudio) -> DecoderRun:
        return _InterruptibleRun(self._runtime.decoder(audio), self)

    def check(self) -> None:
        if self._inbox.more_urgent_than("draft"):
            raise _Superseded


class _InterruptibleRun:
    def __init__(self, run: DecoderRun, runtime: _Interruptible) -> None:
        self._run, self._runtime = run, runtime

    def step(self, tokens: Any, wanted: Any = None) -> DecoderOutput:
        self._runtime.check()
        return self._run.step(tokens, wanted)


class Worker:
    """Carries out requests from `inbox` and writes replies to `out`."""

    def __init__(self, inbox: _Inbox, out: BinaryIO) -> None:
        self._inbox, self._out = inbox, out
        self._recogniser: Recogniser | None = None
        self._loading: dict[str, Any] = {}

    def serve(self) -> None:
        """Work until the process ends."""
        while True:
            self._handle(self._inbox.get())

    def _handle(self, message: Message) -> None:
        number = message.fields["id"]
        try:
            if number not in self._inbox.cancelled:
                self._open(message.fields["loading"])
                getattr(self, f"_{message.kind}")(number, message)
        except _Superseded:
            self._reply("failed", number, error="Superseded", message="")
        except (AsrError, DictateError) as error:
            self._reply("failed", number, error=bus_name(error), message=str(error))
        self._inbox.cancelled.discard(number)

    def _reply(self, kind: str, number: int, **fields: Any) -> None:
        self._out.write(Message(kind, {"id": number, **fields}).encode())
        self._out.flush()

    @property
    def _loaded(self) -> Recogniser:
        if self._recogniser is None:
            raise RuntimeError("no model was loaded")
        return self._recogniser

    def _open(self, wanted: dict[str, Any]) -> None:
        """Load what a request wants, if another model is loaded."""
        if self._recogniser is None or wanted != self._loading:
            choice = choose(wanted["backend"])
            self._recogniser = None
            self._recogniser = open_recogniser(
                ModelStore(models_folder()), wanted["model"], choice, precision=wanted["precision"], threads=wanted["threads"]
            )
            self._loading = wanted

    def _load(self, number: int, _message: Message) -> None:
        choice = self._loaded.choice
        self._reply("loaded", number, model=self._loaded.model, backend=choice.backend, detail=choice.detail)

    def _options(self, message: Message, **more: Any) -> Options:
        wanted = message.fields["options"]
        return Options(
            language=wanted.get("language") or None,
            languages=tuple(wanted.get("languages", ())),
            hotwords=tuple(wanted.get("hotwords", ())),
            **more,
        )

    def _clip(self, message: Message) -> Clip:
        samples, wanted = np.frombuffer(message.samples, np.float32), message.fields
        return Clip(
            log_mel(samples, self._loaded.runtime.n_mels)[: len(samples) // HOP], 0.0, wanted["certain"], wanted["open_end"]
        )

    def _decode(self, number: int, message: Message) -> None:
        decoder = self._loaded.decoder(self._options(message))
        decoded = decoder.decode(self._clip(message), message.fields["heard"], tuple(message.fields["prefix"]))
        segments = [asdict(segment) for segment in decoded.segments]
        self._reply("decoded", number, segments=segments, resume=decoded.resume, language=decoded.language)

    def _draft(self, number: int, message: Message) -> None:
        runtime, vocabulary = _Interruptible(self._loaded.runtime, self._inbox), self._loaded.vocabulary
        decoder = WindowDecoder(runtime, vocabulary, self._options(message, fallback=False))
        settled = tuple(message.fields["prefix"])
        decoded = decoder.decode(self._clip(message), message.fields["heard"], settled)
        agreed = settled_prefix(message.fields["earlier"], decoded.tokens, vocabulary)
        settled = max(settled, tuple(agreed), key=len)
        self._reply(
            "drafted",
            number,
            tokens=decoded.tokens,
            settled=settled,
            stable=vocabulary.decode(settled).strip(),
            text=vocabulary.decode(decoded.tokens).strip(),
            language=decoded.language,
        )

    def _transcribe(self, number: int, message: Message) -> None:
        wanted, recogniser = message.fields, self._loaded
        timed = wanted["format"] in ("srt", "vtt") or wanted["options"].get("timestamps", False)
        words = wanted["options"].get("words", False)
        transcriber = recogniser.transcriber(self._options(message, timestamps=timed, words=words))
        details = {"model": recogniser.model, "backend": recogniser.choice.backend}
        text = io.StringIO()
        form = writer(wanted["format"], text, wanted["name"], details, times=timed, words=words)
        with open_audio(wanted["path"], wanted["name"]) as audio, contextlib.closing(form):
            for segment in transcriber.transcribe(self._blocks(number, audio)):
                if segment.text:
                    form.segment(segment)
        self._reply("transcribed", number, text=text.getvalue())

    def _blocks(self, number: int, audio: AudioFile) -> Iterator[F32]:
        """The sound of a file, while speech that somebody waits for goes before it."""
        done = 0.0
        for block in audio.blocks:
            while self._inbox.more_urgent_than("transcribe"):
                self._handle(self._inbox.get())
            if number in self._inbox.cancelled:
                raise DictateError("cancelled")
            yield block
            done += len(block) / SAMPLE_RATE
            self._reply("progress", number, fraction=min(done / audio.seconds, 1.0) if audio.seconds else -1.0)


def main() -> None:
    """Serve on standard input and output; what libraries print goes to standard error."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    Worker(_Inbox(sys.stdin.buffer), out).serve()


if __name__ == "__main__":
    main()
