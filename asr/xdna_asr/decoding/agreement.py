"""Which words of an unfinished text are settled: those that several decodes of a growing window agree on.

Source: local agreement of Liu, Spanakis and Niehues, "Low-latency sequence-to-sequence speech recognition" (2020).
"""

from collections.abc import Sequence
from typing import Final

from xdna_asr.text.vocabulary import Vocabulary

AGREEING: Final = 3
"""So many decodes in a row must agree."""
HELD_BACK: Final = 2
"""Words at the end of a decode that are never settled: their sound may not be complete."""
CLAUSE_ENDS: Final = ".,?!;:…。、，？！"
"""Only whole clauses settle: settling single words adds half a point of word errors (docs/live.md)."""


def settled_prefix(earlier: Sequence[Sequence[int]], later: Sequence[int], vocabulary: Vocabulary) -> list[int]:
    """Text tokens of the clauses with which `later` and the last AGREEING - 1 of `earlier` begin."""
    others = earlier[-(AGREEING - 1) :]
    agreed: list[int] = []
    settled = 0
    for word in vocabulary.words(later)[:-HELD_BACK] if len(others) == AGREEING - 1 else []:
        end = len(agreed) + len(word)
        if any(list(other[len(agreed) : end]) != word for other in others):
            break
        agreed += word
        settled = end if vocabulary.decode(word)[-1:] in CLAUSE_ENDS else settled
    return agreed[:settled]
