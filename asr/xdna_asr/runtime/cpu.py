"""Whisper on ONNX Runtime's CPU provider."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort

from xdna_asr.errors import ModelDamaged
from xdna_asr.models.whisper import WhisperDims
from xdna_asr.runtime.causal import causal_bias
from xdna_asr.runtime.graphs import DECODER, ENCODER
from xdna_asr.types import F32, AudioLayout, DecoderOutput, EncodedAudio

DEFAULT_THREADS = 2


def session(model: Path | bytes, threads: int) -> ort.InferenceSession:
    """A session over a graph, on disk or in memory; its threads sleep when idle instead of spinning."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Every clip has a length of its own; plans and pools for each length seen would only pile up.
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        where = model if isinstance(model, Path) else "built-in graph"
        raise ModelDamaged(f"{where}: ONNX Runtime can't load it ({error}); remove the folder and start again") from error


class CpuWhisper:
    """`WhisperRuntime` over the graphs in a folder made by `graphs.cached_graphs`."""

    def __init__(self, folder: Path, dims: WhisperDims, threads: int = DEFAULT_THREADS) -> None:
        self.dims = dims
        with ThreadPoolExecutor() as pool:
            sessions = pool.map(lambda name: session(folder / name, threads), (ENCODER, DECODER))
        self.encoder, self.decoder_session = sessions
        self.audio_names = [output.name for output in self.encoder.get_outputs()]
        self.text_names = [name.replace("audio", "text") for name in self.audio_names]
        self.output_names = ["logits", "alignment", *(f"new_{name}" for name in self.text_names)]

    @property
    def n_mels(self) -> int:
        return self.dims.n_mels

    def encode(self, mel: F32, layout: AudioLayout) -> EncodedAudio:
        inputs = {"mel": mel, "source": layout.source, "positions": layout.positions, "key_bias": layout.key_bias}
        values = {name: ort.OrtValue.ortvalue_from_numpy(value) for name, value in inputs.items()}
        caches = self.encoder.run_with_ort_values(self.audio_names, values)
        return EncodedAudio(layout, dict(zip(self.audio_names, caches, strict=True)) | {"key_bias": values["key_bias"]})

    def decoder(self, audio: EncodedAudio) -> "CpuDecoderRun":
        return CpuDecoderRun(self, audio)


class CpuDecoderRun:
    """`DecoderRun` of `CpuWhisper`; the caches never leave ONNX Runtime."""

    def __init__(self, model: CpuWhisper, audio: EncodedAudio) -> None:
        self._model, self._past = model, 0
        empty = np.zeros((model.dims.heads, 0, model.dims.d_model // model.dims.heads), np.float32)
        self._values = dict(audio.handle)
        self._values |= {name: ort.OrtValue.ortvalue_from_numpy(empty) for name in model.text_names}

    def step(self, tokens: Sequence[int], wanted: Sequence[int] | None = None) -> DecoderOutput:
        count = len(tokens)
        inputs = {
            "tokens": np.array(tokens, np.int64),
            "positions": np.arange(self._past, self._past + count),
            "causal_bias": causal_bias(self._past, count),
            "wanted": np.array([count - 1] if wanted is None else wanted, np.int64),
        }
        self._values |= {name: ort.OrtValue.ortvalue_from_numpy(value) for name, value in inputs.items()}
        outputs = self._model.decoder_session.run_with_ort_values(self._model.output_names, self._values)
        self._values |= dict(zip(self._model.text_names, outputs[2:], strict=True))
        self._past += count
        return DecoderOutput(outputs[0].numpy(), outputs[1].numpy())
