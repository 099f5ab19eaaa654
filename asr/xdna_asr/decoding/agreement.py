"""Which words of an unfinished text are settled: those that several decodes of a growing window agree on.

Source: local agreement of Liu, Spanakis and Niehues, "Low-latency sequence-to-sequence speech recognition" (2020).
"""

from collections.abc import Sequence
from typing import Final

from xdna_asr.text.vocabulary import Vocabulary

AGREEING: Final = 4
"""So many decodes in a row must agree. With two, one word in a hundred is settled wrongly (docs/live.md)."""
HELD_BACK: Final = 4
"""Words at the end of a decode that are never settled: their sound may not be complete."""


def settled_prefix(earlier: Sequence[Sequence[int]], later: Sequence[int], vocabulary: Vocabulary) -> list[int]:
    """Text tokens of the whole words with which `later` and the last AGREEING - 1 of `earlier` begin, HELD_BACK words left out."""
    others = earlier[-(AGREEING - 1) :]
    settled: list[int] = []
    for word in vocabulary.words(later)[:-HELD_BACK] if len(others) == AGREEING - 1 else []:
        end = len(settled) + len(word)
        if any(list(other[len(settled) : end]) != word for other in others):
            break
        settled += word
    return settled
