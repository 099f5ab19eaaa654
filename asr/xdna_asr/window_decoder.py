"""One window of sound to text: Whisper decodes it, guards judge what it wrote."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from xdna_asr.context import FRAMES_PER_POSITION, continue_with_silence, full_window, sparse_tail
from xdna_asr.decoding import guards
from xdna_asr.decoding.alignment import token_times
from xdna_asr.decoding.attention import MAX_TOKENS, Hypothesis, decode, detect_language
from xdna_asr.decoding.hotwords import Hotwords
from xdna_asr.decoding.rules import Rules
from xdna_asr.decoding.segments import Piece, complete_pieces, pieces
from xdna_asr.features import FRAMES_PER_SECOND, silent_mel
from xdna_asr.text.vocabulary import Vocabulary
from xdna_asr.types import F32, EncodedAudio, Segment, WhisperRuntime, Word

Context = Literal["sparse", "full"]

LEAD_SECONDS: Final = 1.0
"""Silence put before every window: without it Whisper leaves out first words that begin at once."""
TIMED_SECONDS: Final = 10.0
"""In windows longer than this Whisper skips sentences unless it also writes times."""
DOUBTFUL_LOGPROB: Final = -0.6
DOUBTFUL_NO_SPEECH: Final = 0.3
"""Text of a window in which voice activity is doubtful must be likelier than these."""
_TOKENS_PER_SECOND: Final = 16
_SPARE_TOKENS: Final = 16


@dataclass(frozen=True)
class Options:
    """How to transcribe."""

    language: str | None = None
    """Code of the spoken language; None: heard from the first window that surely holds
    speech, English if the model knows no other."""
    languages: tuple[str, ...] = ()
    """The only languages that may be heard; empty: every one the model knows."""
    task: Literal["transcribe", "translate"] = "transcribe"
    timestamps: bool = False
    """Part the text into timed sentences as the model hears them; without, one segment a window."""
    words: bool = False
    """Times of every word."""
    prompt: str = ""
    """Names and spellings that may occur."""
    hotwords: tuple[str, ...] = ()
    """Words made likelier, spelled as they are to be written."""
    context: Context = "sparse"
    temperatures: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)
    """Sampled at in turn while the guards object to the likeliest text."""
    fallback: bool = True
    """Whether to decode again at all when the guards object; a draft is not worth it."""
    seed: int = 0


@dataclass(frozen=True)
class Clip:
    """The mel frames (F, n_mels) of one window, and what is known of them."""

    mel: F32
    start: float = 0.0
    """Where the window lies in the signal, in seconds."""
    certain: bool = True
    """Whether voice activity leaves no doubt that somebody speaks."""
    open_end: bool = False
    """The window was cut inside running speech."""

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return len(self.mel) / FRAMES_PER_SECOND

    def time(self, seconds: float) -> float:
        """A time that the model wrote, LEAD_SECONDS included, as a time of the signal."""
        return self.start + min(max(seconds - LEAD_SECONDS, 0.0), self.seconds)

    def with_lead(self) -> F32:
        """The frames after LEAD_SECONDS of silence."""
        lead = np.full((round(LEAD_SECONDS * FRAMES_PER_SECOND), self.mel.shape[1]), silent_mel(self.mel), np.float32)
        return np.concatenate([lead, self.mel])


@dataclass(frozen=True)
class Decoded:
    """What one window says."""

    segments: tuple[Segment, ...]
    resume: float | None
    """Where the last sentence was not complete, the second of the signal at which to go on; else None."""
    language: str
    tokens: tuple[int, ...]
    """Text tokens of `segments`."""


class WindowDecoder:
    """Decodes windows with one Whisper model, each for itself."""

    def __init__(self, runtime: WhisperRuntime, vocabulary: Vocabulary, options: Options) -> None:
        self._runtime, self._vocabulary, self._options = runtime, vocabulary, options
        self.language = options.language or (None if vocabulary.multilingual else "en")
        """The language that is spoken, where it is not to be heard from each window."""
        for code in [self.language] if self.language else options.languages:
            vocabulary.prompt(code, timestamps=False, task=options.task)
        self._previous = vocabulary.encode(" " + options.prompt.strip()) if options.prompt.strip() else []
        self._hotwords = Hotwords(vocabulary, options.hotwords) if options.hotwords else None
        self.rewind()

    @property
    def n_mels(self) -> int:
        """Mel bands of a `Clip`."""
        return self._runtime.n_mels

    def rewind(self) -> None:
        """Sample as at first: the same windows give the same text."""
        self._rng = np.random.default_rng(self._options.seed)

    def decode(self, clip: Clip, language: str | None = None, prefix: tuple[int, ...] = ()) -> Decoded:
        """Text of `clip`, in `language` if it is known, beginning with the text tokens `prefix`."""
        mel = clip.with_lead()
        encoded = {self._options.context: self._encode(mel, self._options.context)}
        heard = language or self.language or self._heard_language(encoded[self._options.context])
        timed = self._options.timestamps or clip.open_end or clip.seconds > TIMED_SECONDS
        best, audio = self._best(clip, mel, heard, encoded, timed=timed, prefix=prefix)
        if not self._is_speech(best, clip):
            return Decoded((), None, heard, ())
        found = pieces(best.tokens, self._vocabulary)
        resume = None
        if timed and (clip.open_end or not best.ended):
            found, complete = complete_pieces(found, best.tokens, self._vocabulary, LEAD_SECONDS)
            if found and complete is not None:
                resume = clip.time(complete)
        if not self._options.timestamps and found:
            found = [Piece(found[0].begin, found[-1].end, found[0].start_time, found[-1].end_time, found[-1].closed)]
        times = token_times(best.alignment, audio.layout.clip) if self._options.words else None
        segments = tuple(self._segment(piece, best, clip, times, heard) for piece in found)
        return Decoded(segments, resume, heard, tuple(token for piece in found for token in self._text_of(piece, best)))

    def _heard_language(self, audio: EncodedAudio) -> str:
        probabilities = detect_language(self._runtime, audio, self._vocabulary)
        return max(self._options.languages or probabilities, key=lambda code: probabilities[code])

    def _encode(self, mel: F32, context: Context) -> EncodedAudio:
        layout = (sparse_tail if context == "sparse" else full_window)(len(mel))
        return self._runtime.encode(continue_with_silence(mel, layout, silent_mel(mel)), layout)

    def _best(
        self,
        clip: Clip,
        mel: F32,
        language: str,
        encoded: dict[Context, EncodedAudio],
        *,
        timed: bool,
        prefix: tuple[int, ...],
    ) -> tuple[Hypothesis, EncodedAudio]:
        """The first decode that no guard objects to, else the likeliest of those that do not repeat themselves."""
        prompt = self._vocabulary.prompt(language, timestamps=timed, task=self._options.task, previous=self._previous)
        lead = round(LEAD_SECONDS * FRAMES_PER_SECOND / FRAMES_PER_POSITION)
        rules = Rules(self._vocabulary, timed, lead, self._hotwords)
        settled = (self._vocabulary.first_timestamp + lead, *prefix) if timed and prefix else prefix
        limit = min(MAX_TOKENS, _SPARE_TOKENS + round(_TOKENS_PER_SECOND * clip.seconds))
        tried: list[tuple[Hypothesis, EncodedAudio]] = []
        for context, temperature in self._attempts():
            if context not in encoded:
                encoded[context] = self._encode(mel, context)
            run = self._runtime.decoder(encoded[context])
            hypothesis = decode(run, rules, prompt, prefix=settled, temperature=temperature, max_tokens=limit, rng=self._rng)
            tried.append((hypothesis, encoded[context]))
            if self._acceptable(hypothesis, context):
                return tried[-1]
        return max(tried, key=lambda pair: (not self._repeats(pair[0]), pair[0].average_logprob))

    def _attempts(self) -> Iterator[tuple[Context, float]]:
        yield self._options.context, 0.0
        if not self._options.fallback:
            return
        if self._options.context != "full":
            yield "full", 0.0
        yield from (("full", temperature) for temperature in self._options.temperatures)

    def _text_tokens(self, hypothesis: Hypothesis) -> list[int]:
        return [token for token in hypothesis.tokens if token < self._vocabulary.end_of_text]

    def _text_of(self, piece: Piece, hypothesis: Hypothesis) -> list[int]:
        return [token for token in hypothesis.tokens[piece.begin : piece.end] if token < self._vocabulary.end_of_text]

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

    def _is_speech(self, hypothesis: Hypothesis, clip: Clip) -> bool:
        if clip.certain:
            return hypothesis.no_speech <= guards.MAX_NO_SPEECH or hypothesis.average_logprob >= guards.MIN_AVERAGE_LOGPROB
        return hypothesis.no_speech <= DOUBTFUL_NO_SPEECH and hypothesis.average_logprob >= DOUBTFUL_LOGPROB

    def _segment(self, piece: Piece, hypothesis: Hypothesis, clip: Clip, times: F32 | None, language: str) -> Segment:
        indices = [i for i in range(piece.begin, piece.end) if hypothesis.tokens[i] < self._vocabulary.end_of_text]
        words = () if times is None else tuple(self._words(indices, hypothesis, times, clip))
        start, end = clip.time(piece.start_time), clip.time(piece.end_time)
        return Segment(
            text=self._vocabulary.decode(self._text_of(piece, hypothesis)).strip(),
            start=start,
            end=max(start, end),
            language=language,
            words=words,
            average_logprob=hypothesis.average_logprob,
            no_speech=hypothesis.no_speech,
            temperature=hypothesis.temperature,
        )

    def _words(self, indices: list[int], hypothesis: Hypothesis, times: F32, clip: Clip) -> Iterator[Word]:
        begin = 0
        for group in self._vocabulary.words([hypothesis.tokens[i] for i in indices]):
            own = indices[begin : begin + len(group)]
            probability = float(np.exp(np.mean([hypothesis.logprobs[i] for i in own])))
            start, end = clip.time(float(times[own[0]])), clip.time(float(times[own[-1] + 1]))
            yield Word(self._vocabulary.decode(group).strip(), start, end, probability)
            begin += len(group)
