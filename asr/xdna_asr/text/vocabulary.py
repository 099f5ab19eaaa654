"""Whisper's vocabulary: special ids, prompts, bytes back to text."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from tokenizers import Tokenizer

from xdna_asr.errors import ModelDamaged, ModelMissing, UnsupportedLanguage
from xdna_asr.types import I64

SECONDS_PER_TIMESTAMP: Final = 0.02
TIMESTAMPS: Final = 1501
_FIRST_MULTILINGUAL_SIZE: Final = 51865
_MAX_PREVIOUS: Final = 223
_NO_SPEECH: Final = ("<|nospeech|>", "<|nocaptions|>")


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Tokens of one model; special ids are looked up by name, so every generation of Whisper fits.

    `suppress` are never written, `suppress_first` not as the first token of a text.
    """

    tokenizer: Tokenizer
    size: int
    suppress: I64
    suppress_first: I64

    @classmethod
    def load(cls, path: Path, size: int, meta: dict[str, Any]) -> "Vocabulary":
        """Read `tokenizer.json` at `path`; `meta` holds the model's suppress lists."""
        if not path.is_file():
            raise ModelMissing(f"{path}: the tokenizer is missing; download the model again")
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:
            raise ModelDamaged(f"{path}: not a tokenizer file ({error}); download the model again") from error
        vocabulary = cls(tokenizer, size, np.array(meta["suppress"], np.int64), np.array(meta["suppress_first"], np.int64))
        if vocabulary.first_timestamp + TIMESTAMPS != size:
            raise ModelDamaged(
                f"{path}: tokenizer of another model ({vocabulary.first_timestamp + TIMESTAMPS} tokens, not {size})"
            )
        return vocabulary

    def special(self, *names: str) -> int:
        """Id of the first of `names` that the tokenizer knows."""
        for name in names:
            token = self.tokenizer.token_to_id(name)
            if token is not None:
                return token
        raise ModelDamaged(f"the tokenizer has no {names[0]}; download the model again")

    @cached_property
    def end_of_text(self) -> int:
        return self.special("<|endoftext|>")

    @cached_property
    def start(self) -> int:
        return self.special("<|startoftranscript|>")

    @cached_property
    def no_speech(self) -> int:
        return self.special(*_NO_SPEECH)

    @cached_property
    def no_timestamps(self) -> int:
        return self.special("<|notimestamps|>")

    @property
    def first_timestamp(self) -> int:
        return self.no_timestamps + 1

    @property
    def multilingual(self) -> bool:
        return self.size >= _FIRST_MULTILINGUAL_SIZE

    @cached_property
    def languages(self) -> dict[str, int]:
        """Code -> token of every language; those of an English-only model are just "en"."""
        if not self.multilingual:
            return {"en": self.special("<|en|>")}
        after_last = self.special("<|translate|>")
        tokens = range(self.start + 1, after_last)
        return {(self.tokenizer.id_to_token(token) or "").strip("<|>"): token for token in tokens}

    def prompt(self, language: str, *, timestamps: bool, task: str = "transcribe", previous: Sequence[int] = ()) -> list[int]:
        """Tokens before the first written one; `previous` is text that came before, at most its last 223 tokens."""
        if language not in self.languages:
            known = ", ".join(sorted(self.languages))
            raise UnsupportedLanguage(f"this model does not know the language {language!r}; it knows {known}")
        prompt = [self.special("<|startofprev|>"), *previous[-_MAX_PREVIOUS:]] if previous else []
        prompt.append(self.start)
        if self.multilingual:
            prompt += [self.languages[language], self.special(f"<|{task}|>")]
        return prompt if timestamps else [*prompt, self.no_timestamps]

    def encode(self, text: str) -> list[int]:
        """Tokens of plain text."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of `tokens`, special ones left out; a character cut in the middle becomes U+FFFD."""
        return str(self.tokenizer.decode([token for token in tokens if token < self.end_of_text]))

    def words(self, tokens: Sequence[int]) -> list[list[int]]:
        """Group text `tokens` into words that decode to whole characters.

        A word starts at a space; in text written without spaces every character group is one.
        """
        groups: list[list[int]] = []
        pending: list[int] = []
        for token in tokens:
            pending.append(token)
            text = self.decode(pending)
            if "\ufffd" in text:
                continue
            if groups and not (text.startswith(" ") or _stands_alone(text)):
                groups[-1] += pending
            else:
                groups.append(pending)
            pending = []
        if pending:
            groups.append(pending)
        return groups


def _stands_alone(text: str) -> bool:
    """Whether `text` is in a script that is written without spaces (CJK, kana, Thai, Lao, Myanmar, Khmer)."""
    first = ord(text[0]) if text else 0
    return 0x0E00 <= first <= 0x0EFF or 0x1000 <= first <= 0x109F or 0x1780 <= first <= 0x17FF or 0x3040 <= first <= 0x9FFF
