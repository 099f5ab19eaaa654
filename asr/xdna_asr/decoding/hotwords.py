"""Makes chosen words likelier while a text is written: a trie of their tokens that the decode walks along."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from xdna_asr.text.vocabulary import Vocabulary, stands_alone
from xdna_asr.types import F32

BEGIN_BONUS: Final = 2.0
"""Added to the logit (nats) of a hotword's first token: a hint, since many words begin alike."""
CONTINUE_BONUS: Final = 3.0
"""Added to the next token of a hotword that has begun."""


class Hotwords:
    """Bonuses for `words` and phrases, spelled as they are to be written. None may be heard where it was not said."""

    def __init__(self, vocabulary: Vocabulary, words: Iterable[str]) -> None:
        self._trie: dict[int, Any] = {}
        self._longest = 0
        for word in filter(None, map(str.strip, words)):
            tokens = vocabulary.encode(word if stands_alone(word) else f" {word}")
            node = self._trie
            for token in tokens:
                node = node.setdefault(token, {})
            self._longest = max(self._longest, len(tokens))

    def apply(self, logits: F32, written: Sequence[int]) -> None:
        """Raise, in place, in `logits` (V,), the tokens that begin or continue a hotword after `written`."""
        logits[list(self._trie)] += BEGIN_BONUS
        for length in range(1, min(self._longest, len(written) + 1)):
            node = self._trie
            for token in written[-length:]:
                node = node.get(token, {})
            logits[list(node)] += CONTINUE_BONUS
