"""Shared vocabulary of the recognition library: values and seams, no behaviour."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]


@dataclass(frozen=True)
class AudioLayout:
    """Which positions of the 30 s window an encoder computes, and what each stands for; see `xdna_asr.context`."""

    source: I64
    """(S,) row of the convolutions' output that each state starts from."""
    positions: I64
    """(S,) place in the 30 s window, 20 ms each."""
    key_bias: F32
    """(S,) log of the number of positions each state stands for."""
    clip: int
    """The first `clip` states are the clip itself, one a position, in order."""
    dense: int
    """The first `dense` states have a row of the convolutions' output of their own: the clip and silence after it."""


@dataclass(frozen=True)
class EncodedAudio:
    """One window of audio inside a runtime."""

    layout: AudioLayout
    handle: Any
    """Cross-attention cache in the runtime's own form."""


@dataclass(frozen=True)
class DecoderOutput:
    """Result of one decoder pass over n tokens."""

    logits: F32
    """(m, vocabulary), one row a wanted token."""
    alignment: F32
    """(heads, n, S): attention of the alignment heads to the audio states."""


class DecoderRun(Protocol):
    """One left-to-right decode of one `EncodedAudio`; holds the text cache."""

    def step(self, tokens: Sequence[int], wanted: Sequence[int] | None = None) -> DecoderOutput:
        """Append tokens; logits for the token indices in `wanted`, by default for the last one."""
        ...


class WhisperRuntime(Protocol):
    """A Whisper model on some device."""

    @property
    def n_mels(self) -> int:
        """Mel bands the model hears."""
        ...

    def encode(self, mel: F32, layout: AudioLayout) -> EncodedAudio:
        """mel (F, n_mels) -> audio states in the device's own form."""
        ...

    def decoder(self, audio: EncodedAudio) -> DecoderRun:
        """A fresh decode of `audio`."""
        ...


@dataclass(frozen=True)
class Word:
    """One written word and when it was said, in seconds."""

    text: str
    start: float
    end: float
    probability: float
    """Geometric mean over the word's tokens."""


@dataclass(frozen=True)
class Segment:
    """A final piece of text and when it was said, in seconds."""

    text: str
    start: float
    end: float
    language: str
    words: tuple[Word, ...]
    average_logprob: float
    no_speech: float
    temperature: float
