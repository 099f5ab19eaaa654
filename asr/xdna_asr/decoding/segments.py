"""Parts the tokens of one window into timed pieces."""

from collections.abc import Sequence
from dataclasses import dataclass

from xdna_asr.text.vocabulary import SECONDS_PER_TIMESTAMP, Vocabulary


@dataclass(frozen=True)
class Piece:
    """Text tokens `tokens[begin:end]` between two times, in seconds; 0 and infinity where the model wrote none."""

    begin: int
    end: int
    start_time: float
    end_time: float
    closed: bool
    """Whether the next piece's time followed at once: only then is it sure that the text is complete."""


def pieces(tokens: Sequence[int], vocabulary: Vocabulary) -> list[Piece]:
    """Pieces of `tokens`, in order; one without times if none were written. Pieces without text are left out."""
    first = vocabulary.first_timestamp
    found: list[Piece] = []
    begin, start_time = 0, 0.0
    for index, token in enumerate([*tokens, -1]):
        is_time, is_end = token >= first, index == len(tokens)
        if not is_time and not is_end:
            continue
        time = (token - first) * SECONDS_PER_TIMESTAMP if is_time else float("inf")
        if index > begin:
            closed = is_time and index + 1 < len(tokens) and tokens[index + 1] >= first
            found.append(Piece(begin, index, start_time, time, closed))
        begin, start_time = index + 1, time
    return found
