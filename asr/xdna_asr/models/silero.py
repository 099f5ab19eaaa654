"""Silero voice activity detection, version 6, 16 kHz.

Source: snakers4/silero-vad `tinygrad_model.py` (MIT): a 256-point STFT as a convolution, four convolutions, an LSTM
over windows and a logistic output. The weights lie in `assets/`.
"""

from typing import Final, TypeVar

from xdna_asr.ops import Ops

T = TypeVar("T")

WINDOW: Final = 512
"""Samples (32 ms) a probability stands for."""
CONTEXT: Final = 64
"""Samples before a window that it also hears."""
STFT: Final = 256
STFT_HOP: Final = 128
HIDDEN: Final = 128


def speech_probability(ops: Ops[T], frames: T, hidden: T, cell: T) -> tuple[T, T, T]:
    """frames (n, 4, STFT) of n windows -> probabilities of speech (n, 1) and the new LSTM state (1, HIDDEN) twice.

    Each window is its context, its samples and a reflection of the last 64, cut every STFT_HOP samples; see
    `xdna_asr.vad`.
    """
    real, imaginary = ops.split(ops.linear(frames, "vad.stft"), 2)
    x = ops.hypot(real, imaginary)
    for layer, stride in enumerate((1, 2, 2, 1), start=1):
        x = ops.relu(ops.conv1d(x, f"vad.conv{layer}", stride=stride, pad=1))
    outputs, hidden, cell = ops.lstm(ops.flatten(x), "vad.lstm", hidden, cell)
    return ops.sigmoid(ops.linear(ops.relu(outputs), "vad.out")), hidden, cell
