"""Voice activity: how likely each 32 ms of a growing signal holds speech."""

from importlib.resources import as_file, files
from typing import Final

import numpy as np

from xdna_asr.models import silero
from xdna_asr.models.silero import CONTEXT, STFT, STFT_HOP
from xdna_asr.ops.graph import FLOAT32, GraphOps
from xdna_asr.ops.onnx_file import OnnxGraph
from xdna_asr.runtime.cpu import session
from xdna_asr.types import F32
from xdna_asr.weights.arena import AnyArray
from xdna_asr.weights.safetensors import read_safetensors

WINDOW: Final = silero.WINDOW


def silero_weights() -> dict[str, AnyArray]:
    """The bundled Silero weights under canonical names."""
    with as_file(files("xdna_asr") / "assets" / "silero_vad.safetensors") as path:
        return read_safetensors(path)


def stft_frames(samples: F32) -> F32:
    """CONTEXT + n * WINDOW samples -> (n, 4, STFT): each window with its context and a mirrored end, in hops."""
    windows = np.lib.stride_tricks.sliding_window_view(samples, CONTEXT + WINDOW)[::WINDOW]
    mirrored = np.concatenate([windows, windows[:, -2 : -CONTEXT - 2 : -1]], axis=1)
    return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(mirrored, STFT, axis=1)[:, ::STFT_HOP])


class SpeechDetector:
    """Silero on ONNX Runtime; holds the LSTM state of one signal."""

    def __init__(self) -> None:
        graph, baked = OnnxGraph("vad"), dict[str, AnyArray]()
        frames = graph.input("frames", "float32", ("n", 4, STFT))
        state = [graph.input(name, "float32", (1, silero.HIDDEN)) for name in ("hidden", "cell")]
        outputs = silero.speech_probability(GraphOps(graph, silero_weights(), FLOAT32, baked), frames, *state)
        for name, tensor in baked.items():
            graph.constant(tensor, name)
        for name, value in zip(("speech", "new_hidden", "new_cell"), outputs, strict=True):
            graph.output(value, name, "float32", ("n", "width"))
        self._session = session(graph.encode(), threads=1)
        self.reset()

    def reset(self) -> None:
        """Start a new signal."""
        self._state = np.zeros((2, 1, silero.HIDDEN), np.float32)
        self._pending = np.zeros(CONTEXT, np.float32)

    def push(self, samples: F32) -> F32:
        """Probability of speech in each window of WINDOW samples that `samples` (mono, 16 kHz) complete."""
        self._pending = np.concatenate([self._pending, samples])
        count = (len(self._pending) - CONTEXT) // WINDOW
        if count == 0:
            return np.zeros(0, np.float32)
        frames = stft_frames(self._pending[: CONTEXT + count * WINDOW])
        self._pending = self._pending[count * WINDOW :]
        inputs = {"frames": frames, "hidden": self._state[0], "cell": self._state[1]}
        speech, hidden, cell = self._session.run(None, inputs)
        self._state = np.stack([hidden, cell])
        return np.asarray(speech[:, 0], np.float32)
