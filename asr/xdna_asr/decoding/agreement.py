"""Which words of an unfinished text are settled: those that two decodes of a growing window agree on.

Source: local agreement of Liu, Spanakis and Niehues, "Low-latency sequence-to-sequence speech recognition" (2020).
"""

from collections.abc import Sequence
from typing import Final

from xdna_asr.text.vocabulary import Vocabulary

HELD_BACK: Final = 2
"""Words at the end of a decode that are never settled: their sound may not be complete."""


def settled_prefix(earlier: Sequence[int], later: Sequence[int], vocabulary: Vocabulary) -> list[int]:
    """Text tokens of the whole words with which both decodes begin, the last HELD_BACK of `later` left out."""
    settled: list[int] = []
    for word in vocabulary.words(later)[:-HELD_BACK]:
        end = len(settled) + len(word)
        if list(earlier[len(settled) : end]) != word:
            break
        settled += word
    return settled
