"""What happens to text between the recogniser and the user: spoken commands, replacements, vocabulary, spacing."""

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

from xdna_dictate.output.formats import UNSPACED

_NEAR: Final = 0.8
"""Similarity from which a word is taken for a misheard hotword."""
_SHORTEST: Final = 5
_SENTENCE_END: Final = ".?!\n"
_MARKS: Final = r"[,.;:!?…]*"


@lru_cache
def _language(code: str) -> Mapping[str, Any]:
    """The data file of a language."""
    source = files("xdna_dictate") / "output" / "languages" / f"{code}.toml"
    return tomllib.loads(source.read_text("utf-8")) if source.is_file() else {}


def joiner(before: str, after: str, language: str) -> str:
    """What goes between two pieces of text."""
    if not before or not after or before[-1].isspace() or after[0].isspace() or language in UNSPACED:
        return ""
    return "" if after[0] in ",.;:!?…)" else " "


@dataclass(frozen=True)
class PostProcessor:
    """The user's wishes for written text."""

    spoken_commands: bool = False
    replacements: Mapping[str, str] = field(default_factory=dict)
    hotwords: Sequence[str] = ()

    def held_back(self, language: str) -> int:
        """Words at the end of unfinished text that more words may still change."""
        phrases = [*self.replacements, *(_language(language).get("commands", ()) if self.spoken_commands else ())]
        return max((len(phrase.split()) for phrase in phrases), default=1) - 1

    def process(self, text: str, language: str, before: str = "") -> str:
        """One finished piece of text, as it is to be written after `before`."""
        if self.spoken_commands:
            text = _with_commands(text, _language(language).get("commands", {}), before)
        text = _with_hotwords(text, self.hotwords)
        for heard, written in self.replacements.items():
            text = _phrase(heard).sub(lambda _, written=written: written, text)  # type: ignore[misc]
        marks = _language(language).get("space_before", "")
        return re.sub(rf"(?<=\w)\s*([{marks}])(?=\s|$)", "\u00a0\\1", text) if marks else text


def _phrase(heard: str) -> re.Pattern[str]:
    """Matches a phrase as whole words; in scripts without spaces anywhere."""
    edge = r"\b" if heard[:1].isascii() or (heard[:1].isalpha() and not _unspaced(heard)) else ""
    return re.compile(edge + re.escape(heard) + edge, re.IGNORECASE)


def _unspaced(text: str) -> bool:
    return any(0x0E00 <= ord(letter) <= 0x0EFF or 0x3040 <= ord(letter) <= 0x9FFF for letter in text)


def _with_commands(text: str, commands: Mapping[str, str], before: str) -> str:
    """Spoken marks and line breaks as themselves; marks that the recogniser put around them go."""
    if not commands:
        return text
    spoken = "|".join(re.escape(phrase) for phrase in sorted(commands, key=len, reverse=True))
    pattern = re.compile(rf"\s*{_MARKS}\s*\b({spoken})\b{_MARKS}\s*", re.IGNORECASE)
    out, position = "", 0
    for match in pattern.finditer(text):
        out = _append(out, text[position : match.start()], before)
        mark = commands[match.group(1).lower()]
        out = out.rstrip() + mark if mark[0] not in "([„«“" else out + (" " if out else "") + mark
        position = match.end()
    return _append(out, text[position:], before)


def _append(out: str, piece: str, before: str) -> str:
    """`piece` after `out`, capital after the end of a sentence, small after a comma."""
    if not piece:
        return out
    context = (out or before).rstrip(" ")
    if out:
        last = context[-1:]
        piece = piece[0].upper() + piece[1:] if last in _SENTENCE_END else piece
        piece = piece if out[-1] in "\n([„«“" else f" {piece}"
    return out + piece


def _with_hotwords(text: str, hotwords: Sequence[str]) -> str:
    """Words that are nearly a hotword become it."""
    single = {word.lower(): word for word in hotwords if len(word) >= _SHORTEST and " " not in word}
    if not single:
        return text

    def corrected(match: re.Match[str]) -> str:
        word = match.group()
        if len(word) < _SHORTEST or word[0].lower() not in {hotword[0] for hotword in single}:
            return word
        near = difflib.get_close_matches(word.lower(), single, 1, _NEAR)
        return single[near[0]] if near else word

    return re.sub(r"[^\W\d_]+", corrected, text)
