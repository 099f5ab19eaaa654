"""Parts the tokens of one window into timed pieces."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from xdna_asr.text.vocabulary import SECONDS_PER_TIMESTAMP, Vocabulary

MIN_PROGRESS_SECONDS: Final = 1.0


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


def complete_pieces(
    found: Sequence[Piece], tokens: Sequence[int], vocabulary: Vocabulary, lead: float = 0.0
) -> tuple[list[Piece], float | None]:
    """For a text that may go on after the window: the pieces that are surely complete, and the time at which to go on.

    Whisper marks a sentence it could not finish by its start alone, or leaves it without an end. The time is None, and
    every piece kept, if nothing before it is complete or it would not lead past the first second of text; the first `lead`
    seconds of the window are not part of the signal.
    """
    first = vocabulary.first_timestamp
    if not found:
        return [], None
    if tokens[-1] >= first and tokens[-2] >= first:
        kept, time = list(found), (tokens[-1] - first) * SECONDS_PER_TIMESTAMP
    elif len(found) > 1 and not found[-1].closed and found[-1].end_time == float("inf"):
        kept, time = list(found[:-1]), found[-1].start_time
    else:
        return list(found), None
    return (kept, time) if time >= max(found[0].start_time, lead) + MIN_PROGRESS_SECONDS else (list(found), None)
