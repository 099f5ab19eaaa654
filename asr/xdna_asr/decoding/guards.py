"""Signs that a decode went wrong."""

import zlib
from collections.abc import Sequence
from typing import Final

MAX_COMPRESSION: Final = 2.4
"""Text that zlib shrinks more than this repeats itself (openai/whisper `transcribe.py`)."""
MIN_AVERAGE_LOGPROB: Final = -1.0
"""Below this mean log-probability the text is a guess (openai/whisper `transcribe.py`)."""
MAX_NO_SPEECH: Final = 0.6
"""Above this the window holds no speech, unless the text is likely all the same (openai/whisper `transcribe.py`)."""
_REPEATS: Final = {1: 10, 2: 7, 3: 5}
"""How often in a row a run of so many tokens ends a decode; longer runs: four times. People do say "no, no, no, no"."""
_LONGEST_RUN: Final = 40


def repeats_itself(tokens: Sequence[int]) -> bool:
    """Whether `tokens` end in a run that was said over and over."""
    for length in range(1, min(_LONGEST_RUN, len(tokens) // 3) + 1):
        times = _REPEATS.get(length, 4)
        run = tokens[-length:]
        if len(tokens) >= length * times and all(
            tokens[-length * (i + 1) : len(tokens) - length * i] == run for i in range(1, times)
        ):
            return True
    return False


def said_twice(tokens: Sequence[int]) -> bool:
    """Whether `tokens` are one sentence of four or more tokens said exactly twice."""
    half = len(tokens) // 2
    return half >= 4 and list(tokens[:half]) == list(tokens[-half:]) and len(tokens) - 2 * half <= 1


def compression_ratio(text: str) -> float:
    """Bytes of `text` over its zlib-compressed bytes."""
    raw = text.encode("utf-8", "replace")
    return len(raw) / len(zlib.compress(raw))
