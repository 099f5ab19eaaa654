"""One dictation while it runs: sound in, windows to the recogniser, text out, and the state machine in the middle."""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from xdna_asr.errors import AsrError
from xdna_asr.features import SAMPLE_RATE
from xdna_asr.vad import WINDOW, SileroModel
from xdna_asr.windows import Window
from xdna_dictate.audio.segmenter import HANGOVER_SECONDS, Segmenter
from xdna_dictate.errors import DictateError, Failed, NoMicrophone, ServiceError
from xdna_dictate.kept import KeptSound
from xdna_dictate.output.postprocess import PostProcessor, joiner
from xdna_dictate.session import Action, Mode, Reason, Session, State
from xdna_dictate.worker.client import Loading, Recognition, Superseded
from xdna_dictate.worker.messages import Message

F32 = NDArray[np.float32]
log = logging.getLogger(__name__)

DRAFT_SECONDS: Final = 0.5
"""New sound that is worth a new draft."""
SETTLING_SECONDS: Final = 10.0
"""Windows longer than this may yet be cut; nothing in them is settled before."""
CLOSE_SECONDS: Final = 4.0
_LEVELS_PER_SECOND: Final = 20


class Feed(Protocol):
    """Where a dictation's sound comes from."""

    @property
    def only_zeros(self) -> bool:
        """Whether every sample was exactly zero."""
        ...

    async def run(self) -> None:
        """Deliver sound until it ends or `stop` is called."""
        ...

    def stop(self) -> None:
        """Let `run` return once what was heard is delivered."""
        ...


class Publisher(Protocol):
    """Who is told what happens."""

    def partial(self, dictation: "Dictation", stable: str, unstable: str) -> None: ...

    def text(self, dictation: "Dictation", text: str, delta: str, info: dict[str, Any]) -> None: ...

    def speech(self, dictation: "Dictation", *, started: bool) -> None: ...

    def failed(self, dictation: "Dictation", error: Exception) -> None: ...

    def state_changed(self, dictation: "Dictation") -> None: ...

    def finished(self, dictation: "Dictation") -> None: ...

    def level(self, rms_dbfs: float, peak_dbfs: float) -> None: ...


@dataclass(frozen=True)
class Wishes:
    """How one dictation is to be recognised and told."""

    loading: Loading
    options: dict[str, Any]
    post: PostProcessor
    limit: float
    partials: bool = True
    insert: bool = True
    owner: str = ""
    """The bus name of who started it."""
    bound: bool = False
    """Whether it is cancelled when its owner leaves the bus."""


@dataclass
class _Draft:
    """What is known of the window that is being spoken."""

    earlier: list[list[int]] = field(default_factory=list)
    """Tokens of each draft."""
    settled: list[int] = field(default_factory=list)
    settled_end: int = 0
    stable: str = ""
    end: int = 0
    running: bool = False


class Dictation:
    """Owns everything of one dictation; `ended` is done when it is over."""

    def __init__(
        self,
        name: str,
        session: Session,
        wishes: Wishes,
        kept: KeptSound,
        recognition: Recognition,
        voice_activity: SileroModel,
        publisher: Publisher,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
    ) -> None:
        self.name, self.session, self.wishes, self.kept = name, session, wishes, kept
        self._recognition, self._publisher, self._spawn = recognition, publisher, spawn
        self._segmenter = Segmenter(voice_activity)
        self._loop = asyncio.get_running_loop()
        self._feed: Feed | None = None
        self._feeding: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._results: dict[Window, Message] = {}
        self._asked: Window | None = None
        self._draft = _Draft()
        self._language: str | None = wishes.options.get("language") or None
        self._level = (0, 0.0, 0.0)
        self._speech_end = self._loop.time()
        self.text, self.segments, self.revision = "", 0, 0
        self.error: Exception | None = None
        self._broken = False
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.room = asyncio.Event()
        self.room.set()

    def begin(self, feed: Feed) -> None:
        """Let sound come from `feed`."""
        self._feed = feed
        self._feeding = self._spawn(self._take(feed))
        self._act([])

    async def _take(self, feed: Feed) -> None:
        try:
            await feed.run()
        except Exception:
            self.lost(Failed("the microphone's sound could not be processed; the service's log says more"))
            raise

    @property
    def heard_everything(self) -> bool:
        """Whether all sound that came was recognised."""
        return self._segmenter.finished and not self._broken and self._segmenter.window() is None

    # What the feed says.

    def samples(self, samples: F32) -> None:
        """Take sound (mono, 16 kHz)."""
        if self.session.ended or self._segmenter.finished:
            return
        now = self._loop.time()
        if self.session.state is State.STARTING:
            self._act(self.session.samples_flow(now))
        self.kept.append(samples)
        self._measure(samples)
        heard = self._segmenter.push(samples)
        if heard.started:
            self._publisher.speech(self, started=True)
            self._act(self.session.speech_started(now))
        if heard.ended:
            self._speech_end = now - HANGOVER_SECONDS
            self._publisher.speech(self, started=False)
            self._act(self.session.speech_ended(self._speech_end))
        if actions := self.session.voice(now, voiced=self._segmenter.voiced):
            self._act(actions)
        self._advance()

    def lost(self, error: ServiceError) -> None:
        """No more sound will come."""
        if not self.session.ended:
            self._say_failed(error)
            self._act(self.session.microphone_lost(self._loop.time()))

    # What the user says.

    def stop(self) -> None:
        """End it and recognise what was heard."""
        if not self._segmenter.finished and self._segmenter.speaking:
            self._speech_end = self._loop.time()
        self._act(self.session.stop(self._loop.time()))

    def cancel(self) -> None:
        """End it and forget what was heard."""
        self._act(self.session.cancel(self._loop.time()))

    # The state machine.

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            if action is Action.CLOSE:
                self._spawn(self._close())
            elif action is Action.DISCARD and self._feeding:
                self._feeding.cancel()
            elif action is Action.END:
                self._end()
        if not self.session.ended:
            self._publisher.state_changed(self)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
        deadline = self.session.deadline
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        starting = self.session.state is State.STARTING
        actions = self.session.tick(self._loop.time())
        if starting and actions:
            self._say_failed(NoMicrophone("the microphone was opened but delivers nothing; see xdna-dictate doctor"))
        self._act(actions)

    async def _close(self) -> None:
        if self._feed and self._feeding:
            self._feed.stop()
            _, late = await asyncio.wait((self._feeding,), timeout=CLOSE_SECONDS)
            if late:
                self._feeding.cancel()
        if self._segmenter.speaking:
            self._publisher.speech(self, started=False)
        self._segmenter.finish()
        self._advance()

    def _end(self) -> None:
        reason = self.session.reason
        if self._feed and self._feed.only_zeros and reason is Reason.NO_SPEECH and self._segmenter.samples:
            self._say_failed(NoMicrophone("the microphone delivered nothing but digital silence; is it muted?"))
        try:
            self._publisher.finished(self)
        finally:
            self.ended.set_result(None)

    def _say_failed(self, error: Exception) -> None:
        self.error = error
        log.warning("%s: %s", self.name, error)
        self._publisher.failed(self, error)

    # Recognition.

    def _advance(self) -> None:
        """Ask for the next thing worth decoding, take what was decoded."""
        if self.session.ended:
            return
        if self._broken:
            if self._segmenter.finished:
                self._act(self.session.failed(self._loop.time()))
            return
        while window := self._segmenter.window():
            if window not in self._results:
                self._ask(window)
                break
            self._accept(window, self._results[window])
        else:
            if self._segmenter.finished:
                self._act(self.session.drained(self._loop.time(), text=bool(self.text)))
            elif (paused := self._segmenter.paused()) and paused not in self._results:
                self._ask(paused)
            elif self.wishes.partials:
                self._ask_draft()
        (self.room.clear if self._asked else self.room.set)()

    def _ask(self, window: Window) -> None:
        if self._asked is None:
            self._asked = window
            self._spawn(self._decode(window))

    def _request(self, window: Window) -> dict[str, Any]:
        settled = self._draft.settled if window.end >= self._draft.settled_end else []
        return {
            "options": self.wishes.options,
            "certain": window.certain,
            "open_end": window.open_end,
            "heard": self._language,
            "prefix": settled,
        }

    async def _decode(self, window: Window) -> None:
        sound = self._segmenter.sound(window).tobytes()
        try:
            self._results[window] = await self._recognition.ask(
                self.wishes.loading, "decode", self.wishes.limit, sound, **self._request(window)
            )
        except (AsrError, DictateError) as error:
            self._give_up(error)
        except Exception:
            self._give_up(Failed("recognition failed; the service's log says more, the sound is kept: xdna-dictate recover"))
            raise
        finally:
            self._asked = None
        try:
            self._advance()
        except Exception:
            self._give_up(Failed("the text could not be dealt with; the service's log says more, the sound is kept"))
            raise

    def _give_up(self, error: Exception) -> None:
        """Recognise no more; what is said until Stop is still recorded, for another try."""
        if not self.session.ended and not self._broken:
            self._broken = True
            self._say_failed(error)
            if self._segmenter.finished:
                self._act(self.session.failed(self._loop.time()))

    def fail(self, error: Exception) -> None:
        """End it at once with `error`; what was heard is kept."""
        if not self.session.ended:
            self._broken = True
            self._say_failed(error)
            self._act(self.session.failed(self._loop.time()))

    def _accept(self, window: Window, reply: Message) -> None:
        self._segmenter.advance(window, reply.fields["resume"])
        self._results.clear()
        self._draft = _Draft()
        if self.session.mode is Mode.CONTINUOUS:
            self.kept.trim(self._segmenter.unread)
        offset = window.begin * WINDOW / SAMPLE_RATE
        for segment in reply.fields["segments"]:
            if segment["text"]:
                self._write(segment, offset)
        if reply.fields["segments"] and window.certain:
            self._language = self._language or reply.fields["language"]

    def _write(self, segment: dict[str, Any], offset: float) -> None:
        language, loaded = segment["language"], self._recognition.loaded
        text = self.wishes.post.process(segment["text"], language, self.text)
        delta = joiner(self.text, text, language) + text
        self.text += delta
        info = {
            "raw": segment["text"],
            "language": language,
            "confidence": math.exp(min(segment["average_logprob"], 0.0)),
            "start": segment["start"] + offset,
            "end": segment["end"] + offset,
            "latency-ms": max(round((self._loop.time() - self._speech_end) * 1000), 0),
            "model": self.wishes.loading.model,
            "backend": loaded.backend if loaded else "",
        }
        self._publisher.text(self, text, delta, info)
        self.segments += 1

    # Text so far.

    def _ask_draft(self) -> None:
        window = self._segmenter.growing()
        fresh = window and (window.end - self._draft.end) * WINDOW >= DRAFT_SECONDS * SAMPLE_RATE
        if window and fresh and window.certain and not self._draft.running and not self._asked:
            self._draft.running = True
            self._spawn(self._decode_draft(window, self._draft))

    async def _decode_draft(self, window: Window, draft: _Draft) -> None:
        sound, settling = (
            self._segmenter.sound(window).tobytes(),
            (window.end - window.begin) * WINDOW < SETTLING_SECONDS * SAMPLE_RATE,
        )
        try:
            reply = await self._recognition.ask(
                self.wishes.loading, "draft", self.wishes.limit, sound, **self._request(window), earlier=draft.earlier
            )
        except (Superseded, AsrError, DictateError):
            return
        finally:
            draft.running = False
        # What is settled now would come too late for a final decode that is already under way.
        if draft is not self._draft or self._asked or self._segmenter.finished or self.session.ended:
            return
        draft.end = window.end
        draft.earlier.append(reply.fields["tokens"])
        if settling:
            draft.settled, draft.stable, draft.settled_end = reply.fields["settled"], reply.fields["stable"], window.end
        self._tell_partial(draft, reply.fields["text"], reply.fields["language"])

    def _tell_partial(self, draft: _Draft, text: str, language: str) -> None:
        held_back = self.wishes.post.held_back(language)
        words = draft.stable.split(" ")
        settled = " ".join(words[: len(words) - held_back])
        stable = self.wishes.post.process(settled, language, self.text)
        rest = text.removeprefix(settled).strip()
        self.revision += 1
        before = self.text + joiner(self.text, stable, language) + stable
        self._publisher.partial(self, before, joiner(before, rest, language) + rest)

    def _measure(self, samples: F32) -> None:
        """Tell the loudness, some twenty times a second."""
        count, squares, peak = self._level
        count, squares = count + len(samples), squares + float(samples @ samples)
        peak = max(peak, float(np.abs(samples).max(initial=0)))
        if count * _LEVELS_PER_SECOND < SAMPLE_RATE:
            self._level = (count, squares, peak)
            return
        self._level = (0, 0.0, 0.0)
        self._publisher.level(_decibel(math.sqrt(squares / count)), _decibel(peak))


def _decibel(amplitude: float) -> float:
    """Relative to full scale, at least -100."""
    return max(20 * math.log10(max(amplitude, 1e-5)), -100.0)
