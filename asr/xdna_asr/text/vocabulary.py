"""Whisper's vocabulary: special ids, prompts, tokens to text and back."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from xdna_asr.errors import ModelDamaged, ModelMissing, UnsupportedLanguage
from xdna_asr.weights.arena import AnyArray

SECONDS_PER_TIMESTAMP: Final = 0.02
TIMESTAMPS: Final = 1501
_FIRST_MULTILINGUAL_SIZE: Final = 51_865
_MAX_PREVIOUS: Final = 219
"""What 448 text positions leave beside 224 written tokens and five special ones."""
_SPECIALS: Final = {
    "end_of_text": ("<|endoftext|>",),
    "start": ("<|startoftranscript|>",),
    "translate": ("<|translate|>",),
    "transcribe": ("<|transcribe|>",),
    "previous": ("<|startofprev|>",),
    "no_speech": ("<|nospeech|>", "<|nocaptions|>"),
    "no_timestamps": ("<|notimestamps|>",),
}


def vocabulary_tables(path: Path, size: int) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """What an arena keeps of `tokenizer.json` at `path`: the bytes of every text token, and the ids of special ones.

    Raises ModelMissing, or ModelDamaged if it is no tokenizer of a Whisper with `size` tokens.
    """
    tokenizer = _tokenizer(path)

    def special(names: tuple[str, ...]) -> int:
        for name in names:
            token = tokenizer.token_to_id(name)
            if token is not None:
                return int(token)
        raise ModelDamaged(f"{path}: not a Whisper tokenizer, it has no {names[0]}")

    specials = {key: special(names) for key, names in _SPECIALS.items()}
    if specials["no_timestamps"] + 1 + TIMESTAMPS != size:
        raise ModelDamaged(
            f"{path}: tokenizer of another model ({specials['no_timestamps'] + 1 + TIMESTAMPS} tokens, not {size})"
        )
    alphabet = _byte_alphabet()
    texts = [bytes(alphabet[letter] for letter in tokenizer.id_to_token(token)) for token in range(specials["end_of_text"])]
    languages = range(specials["start"] + 1, specials["translate"])
    codes = [tokenizer.id_to_token(token).strip("<|>") for token in languages]
    tables: dict[str, AnyArray] = {
        "text.bytes": np.frombuffer(b"".join(texts), np.uint8),
        "text.ends": np.cumsum([len(text) for text in texts]).astype(np.int32),
    }
    return tables, {"specials": specials, "languages": codes}


def _tokenizer(path: Path) -> Any:
    from tokenizers import Tokenizer

    if not path.is_file():
        raise ModelMissing(f"{path}: the tokenizer is missing; download the model again")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        raise ModelDamaged(f"{path}: not a tokenizer file ({error}); download the model again") from error


def _byte_alphabet() -> dict[str, int]:
    """The letters that stand for bytes in byte-level vocabularies (openai/gpt-2 `encoder.py`)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


class Vocabulary:
    """Tokens of one model; special ids were looked up by name, so every generation of Whisper fits.

    Tokens in `suppress` are never written, those in `suppress_first` not at the start of a text.
    """

    def __init__(self, tables: Mapping[str, AnyArray], meta: Mapping[str, Any], size: int, tokenizer: Path) -> None:
        self.size, self._tokenizer_path = size, tokenizer
        self._bytes, self._ends = tables["text.bytes"].tobytes(), tables["text.ends"].tolist()
        self.suppress = np.array(meta["suppress"], np.int64)
        self.suppress_first = np.array(meta["suppress_first"], np.int64)
        specials = meta["specials"]
        self.end_of_text: int = specials["end_of_text"]
        self.start: int = specials["start"]
        self.no_speech: int = specials["no_speech"]
        self.no_timestamps: int = specials["no_timestamps"]
        self.first_timestamp = self.no_timestamps + 1
        self._previous: int = specials["previous"]
        self._tasks = {task: specials[task] for task in ("transcribe", "translate")}
        self.multilingual = size >= _FIRST_MULTILINGUAL_SIZE
        codes = meta["languages"] if self.multilingual else ["en"]
        self.languages: dict[str, int] = {code: self.start + 1 + i for i, code in enumerate(codes)}

    def prompt(self, language: str, *, timestamps: bool, task: str = "transcribe", previous: Sequence[int] = ()) -> list[int]:
        """Tokens before the first written one; `previous` is text that came before, at most its last 219 tokens."""
        if language not in self.languages:
            known = ", ".join(sorted(self.languages))
            raise UnsupportedLanguage(f"this model does not know the language {language!r}; it knows {known}")
        if task == "translate" and not self.multilingual:
            raise UnsupportedLanguage("this model knows only English and can't translate; take a multilingual one")
        prompt = [self._previous, *previous[-_MAX_PREVIOUS:]] if previous else []
        prompt.append(self.start)
        if self.multilingual:
            prompt += [self.languages[language], self._tasks[task]]
        return prompt if timestamps else [*prompt, self.no_timestamps]

    @cached_property
    def _encoder(self) -> Any:
        return _tokenizer(self._tokenizer_path)

    def encode(self, text: str) -> list[int]:
        """Tokens of plain text."""
        return list(self._encoder.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of `tokens`, special ones left out; a character cut in the middle becomes U+FFFD."""
        texts = (
            self._bytes[self._ends[token - 1] if token else 0 : self._ends[token]] for token in tokens if token < self.end_of_text
        )
        return b"".join(texts).decode("utf-8", "replace")

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
            if groups and not (text.startswith(" ") or stands_alone(text)):
                groups[-1] += pending
            else:
                groups.append(pending)
            pending = []
        if pending:
            groups.append(pending)
        return groups


def stands_alone(text: str) -> bool:
    """Whether `text` is in a script that is written without spaces (CJK, kana, Thai, Lao, Myanmar, Khmer)."""
    first = ord(text[0]) if text else 0
    return 0x0E00 <= first <= 0x0EFF or 0x1000 <= first <= 0x109F or 0x1780 <= first <= 0x17FF or 0x3040 <= first <= 0x9FFF
