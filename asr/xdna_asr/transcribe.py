"""From samples to text: voice activity finds windows, Whisper decodes them, guards judge what it wrote."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from xdna_asr.context import FRAMES_PER_POSITION, continue_with_silence, full_window, sparse_tail
from xdna_asr.decoding import guards
from xdna_asr.decoding.alignment import token_times
from xdna_asr.decoding.attention import MAX_TOKENS, Hypothesis, decode, detect_language
from xdna_asr.decoding.rules import Rules
from xdna_asr.decoding.segments import Piece, complete_pieces, pieces
from xdna_asr.features import FRAMES_PER_SECOND, HOP, MelStream, silent_mel
from xdna_asr.text.vocabulary import Vocabulary
from xdna_asr.types import F32, EncodedAudio, Segment, WhisperRuntime, Word
from xdna_asr.vad import WINDOW as STEP_SAMPLES
from xdna_asr.vad import SpeechDetector
from xdna_asr.windows import STEPS_PER_SECOND, Window, Windower

Context = Literal["sparse", "full"]

LEAD_SECONDS: Final = 1.0
"""Silence put before every window: without it Whisper leaves out first words that begin at once."""
TIMED_SECONDS: Final = 10.0
"""In windows longer than this Whisper skips sentences unless it also writes times."""
DOUBTFUL_LOGPROB: Final = -0.6
DOUBTFUL_NO_SPEECH: Final = 0.3
"""Text of a window in which voice activity is doubtful must be likelier than these."""
BLOCK: Final = 8_000
_TOKENS_PER_SECOND: Final = 16
_SPARE_TOKENS: Final = 16


@dataclass(frozen=True)
class Options:
    """How to transcribe."""

    language: str | None = None
    """Code of the spoken language; None: heard from the first window that surely holds
    speech, English if the model knows no other."""
    task: Literal["transcribe", "translate"] = "transcribe"
    timestamps: bool = False
    """Part the text into timed sentences as the model hears them; without, one segment a window."""
    words: bool = False
    """Times of every word."""
    prompt: str = ""
    """Names and spellings that may occur."""
    context: Context = "sparse"
    temperatures: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)
    """Sampled at in turn while the guards object to the likeliest text."""
    seed: int = 0


@dataclass(frozen=True)
class _Clip:
    """One window on its way to text: its mel frames after LEAD_SECONDS of silence."""

    mel: F32
    start: float
    seconds: float
    timed: bool

    @classmethod
    def cut(cls, mel: MelStream, window: Window, *, timed: bool) -> "_Clip":
        begin, end = (step * STEP_SAMPLES // HOP for step in (window.begin, window.end))
        frames = mel.frames(begin, min(end, mel.available))
        lead = np.full((round(LEAD_SECONDS * FRAMES_PER_SECOND), frames.shape[1]), silent_mel(frames), np.float32)
        seconds = len(frames) / FRAMES_PER_SECOND
        timed = timed or window.open_end or seconds > TIMED_SECONDS
        return cls(np.concatenate([lead, frames]), begin / FRAMES_PER_SECOND, seconds, timed)

    def time(self, seconds: float) -> float:
        """A time that the model wrote, within the clip, as a time of the signal."""
        return self.start + min(max(seconds - LEAD_SECONDS, 0.0), self.seconds)


def _even(blocks: Iterable[F32]) -> Iterator[F32]:
    """The same signal in blocks of BLOCK samples, so that the windows do not depend on how it arrived."""
    pending = np.zeros(0, np.float32)
    for block in blocks:
        pending = np.concatenate([pending, block])
        whole = len(pending) // BLOCK * BLOCK
        yield from np.split(pending[:whole], range(BLOCK, whole, BLOCK)) if whole else ()
        pending = pending[whole:]
    yield pending


class Transcriber:
    """Transcribes signals with one Whisper model, one at a time."""

    def __init__(self, runtime: WhisperRuntime, vocabulary: Vocabulary, detector: SpeechDetector, options: Options) -> None:
        self._runtime, self._vocabulary, self._detector, self._options = runtime, vocabulary, detector, options
        self._language = options.language or (None if vocabulary.multilingual else "en")
        if self._language:
            vocabulary.prompt(self._language, timestamps=False, task=options.task)
        self._previous = vocabulary.encode(" " + options.prompt.strip()) if options.prompt.strip() else []

    def transcribe(self, blocks: Iterable[F32]) -> Iterator[Segment]:
        """Segments of the signal in `blocks` (mono, 16 kHz), each as soon as it is final; nothing for silence."""
        mel, windower = MelStream(self._runtime.n_mels), Windower()
        language, self._rng = self._language, np.random.default_rng(self._options.seed)
        self._detector.reset()
        for window in self._windows(blocks, mel, windower):
            clip = _Clip.cut(mel, window, timed=self._options.timestamps)
            encoded = {self._options.context: self._encode(clip, self._options.context)}
            heard = language or self._heard_language(encoded[self._options.context])
            segments, resume = self._decode(clip, window, heard, encoded)
            if segments and window.certain:
                language = heard
            yield from segments
            windower.advance(resume)

    def _windows(self, blocks: Iterable[F32], mel: MelStream, windower: Windower) -> Iterator[Window]:
        """Windows as they become complete; the caller advances `windower` past each."""
        for block in _even(blocks):
            mel.push(block)
            windower.push(self._detector.push(block).tolist())
            while window := windower.next(finished=False):
                yield window
            mel.forget(windower.first * STEP_SAMPLES // HOP)
        mel.finish()
        windower.push(self._detector.push(np.zeros(STEP_SAMPLES - 1, np.float32)).tolist())
        while window := windower.next(finished=True):
            yield window

    def _heard_language(self, audio: EncodedAudio) -> str:
        probabilities = detect_language(self._runtime, audio, self._vocabulary)
        return max(probabilities, key=lambda code: probabilities[code])

    def _decode(
        self, clip: _Clip, window: Window, language: str, encoded: dict[Context, EncodedAudio]
    ) -> tuple[list[Segment], int]:
        """Segments of one window, and the VAD step at which to go on."""
        best, audio = self._best(clip, language, encoded)
        if not self._is_speech(best, window):
            return [], window.end
        found = pieces(best.tokens, self._vocabulary)
        resume = window.end
        if clip.timed and (window.open_end or not best.ended):
            found, complete = complete_pieces(found, best.tokens, self._vocabulary)
            if found and complete is not None:
                resume = window.begin + int((clip.time(complete) - clip.start) * STEPS_PER_SECOND)
        if not self._options.timestamps and found:
            found = [Piece(found[0].begin, found[-1].end, found[0].start_time, found[-1].end_time, found[-1].closed)]
        times = token_times(best.alignment, audio.layout.clip) if self._options.words else None
        return [self._segment(piece, best, clip, times, language) for piece in found], resume

    def _encode(self, clip: _Clip, context: Context) -> EncodedAudio:
        layout = (sparse_tail if context == "sparse" else full_window)(len(clip.mel))
        return self._runtime.encode(continue_with_silence(clip.mel, layout, silent_mel(clip.mel)), layout)

    def _best(self, clip: _Clip, language: str, encoded: dict[Context, EncodedAudio]) -> tuple[Hypothesis, EncodedAudio]:
        """The first decode that no guard objects to, else the likeliest of those that do not repeat themselves."""
        prompt = self._vocabulary.prompt(language, timestamps=clip.timed, task=self._options.task, previous=self._previous)
        lead = round(LEAD_SECONDS * FRAMES_PER_SECOND / FRAMES_PER_POSITION)
        rules = Rules(self._vocabulary, clip.timed, lead)
        limit = min(MAX_TOKENS, _SPARE_TOKENS + round(_TOKENS_PER_SECOND * clip.seconds))
        tried: list[tuple[Hypothesis, EncodedAudio]] = []
        for context, temperature in self._attempts():
            if context not in encoded:
                encoded[context] = self._encode(clip, context)
            run = self._runtime.decoder(encoded[context])
            hypothesis = decode(run, rules, prompt, temperature=temperature, max_tokens=limit, rng=self._rng)
            tried.append((hypothesis, encoded[context]))
            if self._acceptable(hypothesis, context):
                return tried[-1]
        return max(tried, key=lambda pair: (not self._repeats(pair[0]), pair[0].average_logprob))

    def _attempts(self) -> Iterator[tuple[Context, float]]:
        yield self._options.context, 0.0
        if self._options.context != "full":
            yield "full", 0.0
        yield from (("full", temperature) for temperature in self._options.temperatures)

    def _text_tokens(self, hypothesis: Hypothesis) -> list[int]:
        return [token for token in hypothesis.tokens if token < self._vocabulary.end_of_text]

    def _repeats(self, hypothesis: Hypothesis) -> bool:
        ratio = guards.compression_ratio(self._vocabulary.decode(self._text_tokens(hypothesis)))
        return not hypothesis.ended or ratio > guards.MAX_COMPRESSION

    def _acceptable(self, hypothesis: Hypothesis, context: Context) -> bool:
        # A sentence said exactly twice is how a short context fails; over the whole window it is what was said.
        if context == "sparse" and guards.said_twice(self._text_tokens(hypothesis)):
            return False
        if hypothesis.average_logprob < guards.MIN_AVERAGE_LOGPROB:
            return hypothesis.no_speech > guards.MAX_NO_SPEECH
        return not self._repeats(hypothesis)

    def _is_speech(self, hypothesis: Hypothesis, window: Window) -> bool:
        if window.certain:
            return hypothesis.no_speech <= guards.MAX_NO_SPEECH or hypothesis.average_logprob >= guards.MIN_AVERAGE_LOGPROB
        return hypothesis.no_speech <= DOUBTFUL_NO_SPEECH and hypothesis.average_logprob >= DOUBTFUL_LOGPROB

    def _segment(self, piece: Piece, hypothesis: Hypothesis, clip: _Clip, times: F32 | None, language: str) -> Segment:
        indices = [i for i in range(piece.begin, piece.end) if hypothesis.tokens[i] < self._vocabulary.end_of_text]
        words = () if times is None else tuple(self._words(indices, hypothesis, times, clip))
        start, end = clip.time(piece.start_time), clip.time(piece.end_time)
        return Segment(
            text=self._vocabulary.decode([hypothesis.tokens[i] for i in indices]).strip(),
            start=start,
            end=max(start, end),
            language=language,
            words=words,
            average_logprob=hypothesis.average_logprob,
            no_speech=hypothesis.no_speech,
            temperature=hypothesis.temperature,
        )

    def _words(self, indices: list[int], hypothesis: Hypothesis, times: F32, clip: _Clip) -> Iterator[Word]:
        begin = 0
        for group in self._vocabulary.words([hypothesis.tokens[i] for i in indices]):
            own = indices[begin : begin + len(group)]
            probability = float(np.exp(np.mean([hypothesis.logprobs[i] for i in own])))
            start, end = clip.time(float(times[own[0]])), clip.time(float(times[own[-1] + 1]))
            yield Word(self._vocabulary.decode(group).strip(), start, end, probability)
            begin += len(group)
