import io
import json

import pytest

from xdna_asr.types import Segment, Word
from xdna_dictate.output.formats import clock, writer


def segment(text: str, start: float, end: float, language: str = "en") -> Segment:
    half = (start + end) / 2
    first, last = text[: len(text) // 2], text[len(text) // 2 :]
    return Segment(text, start, end, language, (Word(first, start, half, 0.5), Word(last, half, end, 0.9)), -0.25, 0.01, 0.0)


def written(form: str, *segments: Segment, times: bool = False, words: bool = False) -> str:
    out = io.StringIO()
    transcript = writer(form, out, "a.wav", {"backend": "cpu"}, times=times, words=words)
    for piece in segments:
        transcript.segment(piece)
    transcript.close()
    return out.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "00:00:00.000"), (61.0004, "00:01:01.000"), (59.9999, "00:01:00.000"), (360_000, "100:00:00.000")]
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_text_is_a_line_a_segment() -> None:
    assert written("text", segment("One.", 0, 1), segment("Two.", 2, 3)) == "One.\nTwo.\n"
    assert written("text", segment("One.", 0, 1), times=True) == "[00:00:00.000 --> 00:00:01.000] One.\n"


def test_subtitles_number_their_cues_and_can_not_be_broken_by_an_arrow() -> None:
    assert written("srt", segment("A --> B", 0, 1)) == "1\n00:00:00,000 --> 00:00:01,000\nA -> B\n\n"
    assert written("vtt", segment("ab", 0, 1), words=True).endswith("2\n00:00:00.500 --> 00:00:01.000\nb\n\n")
    assert written("vtt") == "WEBVTT\n\n"


@pytest.mark.parametrize(("language", "text"), [("en", "a b"), ("ja", "ab")])
def test_json_joins_segments_as_the_language_does(language: str, text: str) -> None:
    document = json.loads(written("json", segment("a", 0, 1, language), segment("b", 1, 2, language)))
    assert document["text"] == text
    assert (document["file"], document["backend"], document["language"]) == ("a.wav", "cpu", language)
    assert "words" not in document["segments"][0]
