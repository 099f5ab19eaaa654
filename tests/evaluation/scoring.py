"""How recognised text is judged: word errors, digits, silence. The rules of tests/data/README.md's manifest."""

import re
from dataclasses import dataclass, field

import jiwer
from whisper_normalizer.english import EnglishTextNormalizer

_DIGITS = {
    word: str(value)
    for value, word in enumerate(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"])
} | {"oh": "0"}
_english = EnglishTextNormalizer()


def normalised(text: str, language: str) -> str:
    """Whisper's English normaliser; for other languages lower case without punctuation, ё as е."""
    if language == "en":
        return str(_english(text))
    return " ".join(re.sub(r"[^\w ]|_", " ", text.lower().replace("ё", "е")).split())


def digits(text: str) -> str:
    """The digits of `text`, number words included."""
    words = re.findall(r"[a-z]+|[0-9]+", text.lower())
    return re.sub(r"\D", "", "".join(_DIGITS.get(word, word) for word in words))


def word_errors(reference: str, text: str, language: str) -> tuple[int, int]:
    """Errors of `text`, and words of the reference."""
    wanted = normalised(reference, language)
    measures = jiwer.process_words(wanted, normalised(text, language))
    return int(measures.substitutions + measures.insertions + measures.deletions), len(wanted.split())


@dataclass
class Score:
    """Sums over many clips."""

    errors: int = 0
    words: int = 0
    digits_wrong: int = 0
    digits_all: int = 0
    text_on_silence: list[str] = field(default_factory=list)
    silent_all: int = 0

    def add(self, row: dict[str, str], text: str) -> int:
        """Judge `text` for the manifest's `row`; returns its errors."""
        if row["score"] == "wer":
            errors, words = word_errors(row["reference"], text, row["language"])
            self.errors, self.words = self.errors + errors, self.words + words
            return errors
        if row["score"] == "digits":
            wrong = digits(text) != digits(row["reference"])
            self.digits_wrong, self.digits_all = self.digits_wrong + wrong, self.digits_all + 1
            return int(wrong)
        self.silent_all += 1
        if re.search(r"\w", text):
            self.text_on_silence.append(row["file"])
            return 1
        return 0

    @property
    def wer(self) -> float:
        """Word error rate in percent: sum of errors over sum of words."""
        return 100 * self.errors / max(self.words, 1)

    def __str__(self) -> str:
        parts = [f"WER {self.wer:.2f} % ({self.errors} of {self.words} words)"]
        if self.digits_all:
            parts.append(f"digits wrong {self.digits_wrong} of {self.digits_all}")
        if self.silent_all:
            parts.append(f"text on non-speech {len(self.text_on_silence)} of {self.silent_all}")
        return ", ".join(parts)
