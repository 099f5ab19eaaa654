"""What Whisper may write next: the filters over its logits, in the order of openai/whisper `decoding.py`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from xdna_asr.decoding.hotwords import Hotwords
from xdna_asr.text.vocabulary import Vocabulary
from xdna_asr.types import F32

FORBIDDEN: Final = np.float32(-np.inf)
_LATEST_FIRST_TIMESTAMP: Final = 50
"""The first timestamp is at most this many steps (1 s) after the start of the clip."""


def log_sum_exp(logits: F32) -> float:
    """Logarithm of the sum of exp(logits)."""
    loudest = logits.max()
    return float(loudest + np.log(np.exp(logits - loudest).sum()))


def log_softmax(logits: F32) -> F32:
    """Natural logarithm of softmax over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), np.float32)


@dataclass(frozen=True)
class Rules:
    """Filters for one decode; `timestamps` asks for times, `lead` steps of silence come before the clip."""

    vocabulary: Vocabulary
    timestamps: bool
    lead: int = 0
    hotwords: Hotwords | None = None

    def apply(self, logits: F32, written: Sequence[int]) -> None:
        """Forbid in place, in `logits` (V,), what may not follow `written`."""
        vocabulary = self.vocabulary
        if self.hotwords:
            self.hotwords.apply(logits, written)
        if not written:
            logits[vocabulary.suppress_first] = FORBIDDEN
        logits[vocabulary.suppress] = FORBIDDEN
        if self.timestamps:
            logits[vocabulary.no_timestamps] = FORBIDDEN
            self._pair_timestamps(logits, written)
            self._prefer_timestamp(logits)
        else:
            logits[vocabulary.no_timestamps :] = FORBIDDEN

    def _pair_timestamps(self, logits: F32, written: Sequence[int]) -> None:
        """Times come in pairs (end, start), never go back, and a segment is longer than nothing."""
        first = self.vocabulary.first_timestamp
        if not written:
            logits[:first] = FORBIDDEN
            logits[first + self.lead + _LATEST_FIRST_TIMESTAMP + 1 :] = FORBIDDEN
            return
        last_is_time = written[-1] >= first
        if last_is_time and (len(written) < 2 or written[-2] >= first):
            logits[first:] = FORBIDDEN
        elif last_is_time:
            logits[: self.vocabulary.end_of_text] = FORBIDDEN
        times = [token for token in written if token >= first]
        if times:
            opening = last_is_time and not (len(written) < 2 or written[-2] >= first)
            logits[first : times[-1] + (0 if opening else 1)] = FORBIDDEN

    def _prefer_timestamp(self, logits: F32) -> None:
        """A time is due when all times together are likelier than any one text token."""
        first = self.vocabulary.first_timestamp
        times = logits[first:]
        if np.isfinite(times.max()) and log_sum_exp(times) > logits[:first].max():
            logits[:first] = FORBIDDEN
