"""The audio context: which of Whisper's 1500 audio positions are computed for a clip shorter than 30 s.

Whisper was trained on windows of 30 s. Cut the window to the clip and it repeats itself; keep it and most of the work
goes into silence. The silent rest, though, is one vector that differs only by its position, so a few of its positions
can stand for all: each state stands for `stride` positions and its key gets log(stride) added to its attention scores,
which makes softmax count it that many times. docs/audio-context.md has the measurements.
"""

from typing import Final

import numpy as np

from xdna_asr.types import F32, AudioLayout

POSITIONS: Final = 1500
FRAMES_PER_POSITION: Final = 2
MARGIN: Final = 32
"""Silent positions after the clip that are all computed."""
STRIDE: Final = 4
"""Beyond the margin, one position in so many."""


def full_window(frames: int) -> AudioLayout:
    """All 30 s, whatever the length of the clip."""
    return sparse_tail(frames, margin=POSITIONS)


def sparse_tail(frames: int, margin: int = MARGIN, stride: int = STRIDE) -> AudioLayout:
    """Every position of a clip of `frames` mel frames and of `margin` after it, then every `stride`-th to the end."""
    clip = min(-(-frames // FRAMES_PER_POSITION), POSITIONS)
    dense = min(clip + margin, POSITIONS)
    edges = np.append(np.arange(dense, POSITIONS, stride), POSITIONS)
    tail = (edges[:-1] + edges[1:] - 1) // 2
    return AudioLayout(
        source=np.concatenate([np.arange(dense), np.full(len(tail), dense - 1)]),
        positions=np.concatenate([np.arange(dense), tail]),
        key_bias=np.concatenate([np.zeros(dense), np.log(np.diff(edges))]).astype(np.float32),
        clip=clip,
        dense=dense,
    )


def continue_with_silence(mel: F32, layout: AudioLayout, silent: float) -> F32:
    """`mel` (F, n_mels) cut or continued with the value `silent` to the frames that `layout` needs.

    Two frames a dense position, and two more unless the window is full: the convolutions see zeros past their input,
    which must not reach the last dense position because the tail starts from it.
    """
    wanted = layout.dense * FRAMES_PER_POSITION + (FRAMES_PER_POSITION if layout.dense < POSITIONS else 0)
    padding = np.full((max(0, wanted - len(mel)), mel.shape[1]), silent, np.float32)
    return np.concatenate([mel[:wanted], padding])
