"""Voice activity: how likely each 32 ms of a growing signal holds speech."""

from collections.abc import Callable
from functools import partial
from importlib.resources import as_file, files
from typing import Final

import numpy as np

from xdna_asr.models import silero
from xdna_asr.models.silero import CONTEXT, STFT, STFT_HOP
from xdna_asr.ops.eager import NumpyOps
from xdna_asr.ops.graph import FLOAT32, GraphOps
from xdna_asr.ops.onnx_file import OnnxGraph
from xdna_asr.types import F32
from xdna_asr.weights.arena import AnyArray
from xdna_asr.weights.safetensors import read_safetensors

WINDOW: Final = silero.WINDOW
SileroModel = Callable[[F32, F32, F32], tuple[F32, F32, F32]]
"""frames (n, 4, STFT), LSTM state (1, HIDDEN) twice -> probabilities (n, 1), new state."""


def silero_weights() -> dict[str, AnyArray]:
    """The bundled Silero weights under canonical names."""
    with as_file(files("xdna_asr") / "assets" / "silero_vad.safetensors") as path:
        return read_safetensors(path)


def stft_frames(samples: F32) -> F32:
    """CONTEXT + n * WINDOW samples -> (n, 4, STFT): each window with its context and a mirrored end, in hops."""
    windows = np.lib.stride_tricks.sliding_window_view(samples, CONTEXT + WINDOW)[::WINDOW]
    mirrored = np.concatenate([windows, windows[:, -2 : -CONTEXT - 2 : -1]], axis=1)
    return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(mirrored, STFT, axis=1)[:, ::STFT_HOP])


def on_numpy() -> SileroModel:
    """Silero as numpy computes it: no other library, 0.7 ms for 32 ms of sound."""
    return partial(silero.speech_probability, NumpyOps(silero_weights()))


def on_onnxruntime() -> SileroModel:
    """Silero as a graph: 0.03 ms a window where many come at once."""
    from xdna_asr.runtime.cpu import session

    graph, baked = OnnxGraph("vad"), dict[str, AnyArray]()
    frames = graph.input("frames", "float32", ("n", 4, STFT))
    state = [graph.input(name, "float32", (1, silero.HIDDEN)) for name in ("hidden", "cell")]
    outputs = silero.speech_probability(GraphOps(graph, silero_weights(), FLOAT32, baked), frames, *state)
    for name, tensor in baked.items():
        graph.constant(tensor, name)
    for name, value in zip(("speech", "new_hidden", "new_cell"), outputs, strict=True):
        graph.output(value, name, "float32", ("n", "width"))
    running = session(graph.encode(), threads=1)
    return lambda frames, hidden, cell: tuple(running.run(None, {"frames": frames, "hidden": hidden, "cell": cell}))


class SpeechDetector:
    """Silero over one signal after another; holds the LSTM state of the present one."""

    def __init__(self, model: SileroModel) -> None:
        self._model = model
        self.reset()

    def reset(self) -> None:
        """Start a new signal."""
        self._hidden = self._cell = np.zeros((1, silero.HIDDEN), np.float32)
        self._pending = np.zeros(CONTEXT, np.float32)

    def push(self, samples: F32) -> F32:
        """Probability of speech in each window of WINDOW samples that `samples` (mono, 16 kHz) complete."""
        self._pending = np.concatenate([self._pending, samples])
        count = (len(self._pending) - CONTEXT) // WINDOW
        if count == 0:
            return np.zeros(0, np.float32)
        frames = stft_frames(self._pending[: CONTEXT + count * WINDOW])
        self._pending = self._pending[count * WINDOW :]
        speech, self._hidden, self._cell = self._model(frames, self._hidden, self._cell)
        return np.asarray(speech[:, 0], np.float32)
