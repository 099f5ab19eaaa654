"""Transcripts as text, JSON, SubRip or WebVTT."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

if TYPE_CHECKING:
    from xdna_asr.types import Segment, Word

UNSPACED: Final = frozenset({"ja", "km", "lo", "my", "th", "yue", "zh"})
"""Languages written without spaces between words."""
FORMATS: Final = ("text", "json", "srt", "vtt")


class TranscriptWriter(Protocol):
    """Writes one transcript; `segment` for each piece as it becomes final, then `close`."""

    def segment(self, segment: Segment) -> None: ...

    def close(self) -> None: ...


def writer(form: str, out: TextIO, source: str, details: dict[str, Any], *, times: bool, words: bool) -> TranscriptWriter:
    """A writer of `form` (one of FORMATS); `source` names the audio, `details` go into JSON."""
    if form == "json":
        return _Json(out, source, details, words=words)
    if form in ("srt", "vtt"):
        return _Subtitles(out, vtt=form == "vtt", words=words)
    return _Text(out, times=times, words=words)


def joined(segments: Sequence[Segment]) -> str:
    """The text of all segments, with spaces between them where the language has spaces."""
    space = "" if segments and segments[0].language in UNSPACED else " "
    return space.join(segment.text for segment in segments)


def clock(seconds: float, point: str = ".") -> str:
    """`seconds` as HH:MM:SS.mmm."""
    milliseconds = round(seconds * 1000)
    hours, rest = divmod(milliseconds, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02}{point}{rest % 1000:03}"


def _cues(segment: Segment, *, words: bool) -> Iterable[Segment | Word]:
    return segment.words if words else (segment,)


class _Text:
    def __init__(self, out: TextIO, *, times: bool, words: bool) -> None:
        self._out, self._times, self._words = out, times or words, words

    def segment(self, segment: Segment) -> None:
        for cue in _cues(segment, words=self._words):
            stamp = f"[{clock(cue.start)} --> {clock(cue.end)}] " if self._times else ""
            self._out.write(f"{stamp}{cue.text}\n")
        self._out.flush()

    def close(self) -> None:
        self._out.flush()


class _Subtitles:
    def __init__(self, out: TextIO, *, vtt: bool, words: bool) -> None:
        self._out, self._point, self._words, self._count = out, "." if vtt else ",", words, 0
        if vtt:
            out.write("WEBVTT\n\n")

    def segment(self, segment: Segment) -> None:
        for cue in _cues(segment, words=self._words):
            self._count += 1
            text = cue.text.replace("-->", "->")
            times = f"{clock(cue.start, self._point)} --> {clock(cue.end, self._point)}"
            self._out.write(f"{self._count}\n{times}\n{text}\n\n")
        self._out.flush()

    def close(self) -> None:
        self._out.flush()


class _Json:
    """One object on one line: file, text, language, segments and what recognised it."""

    def __init__(self, out: TextIO, source: str, details: dict[str, Any], *, words: bool) -> None:
        self._out, self._source, self._details, self._words = out, source, details, words
        self._segments: list[Segment] = []

    def segment(self, segment: Segment) -> None:
        self._segments.append(segment)

    def close(self) -> None:
        document = {
            "file": self._source,
            "text": joined(self._segments),
            "language": self._segments[0].language if self._segments else None,
            "segments": [self._entry(segment) for segment in self._segments],
            **self._details,
        }
        self._out.write(json.dumps(document, ensure_ascii=False) + "\n")
        self._out.flush()

    def _entry(self, segment: Segment) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "start": round(segment.start, 3),
            "end": round(segment.end, 3),
            "text": segment.text,
            "average_logprob": round(segment.average_logprob, 4),
            "no_speech": round(segment.no_speech, 4),
            "temperature": segment.temperature,
        }
        if self._words:
            entry["words"] = [
                {
                    "word": word.text,
                    "start": round(word.start, 3),
                    "end": round(word.end, 3),
                    "probability": round(word.probability, 4),
                }
                for word in segment.words
            ]
        return entry
