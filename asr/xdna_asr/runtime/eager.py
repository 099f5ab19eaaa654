"""Whisper on the numpy op set: the truth the other runtimes are compared with."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdna_asr.models import whisper
from xdna_asr.models.whisper import DecoderInputs, LayerCache, WhisperDims
from xdna_asr.ops.eager import NumpyOps
from xdna_asr.runtime.causal import causal_bias
from xdna_asr.types import F32, AudioLayout, DecoderOutput, EncodedAudio

Array = NDArray[Any]


class NumpyWhisper:
    """`WhisperRuntime` over canonical tensors, float32."""

    def __init__(self, tensors: Mapping[str, Array], dims: WhisperDims, alignment_heads: Sequence[tuple[int, int]]) -> None:
        self.ops, self.dims, self.alignment_heads = NumpyOps(tensors), dims, alignment_heads

    @property
    def n_mels(self) -> int:
        return self.dims.n_mels

    def states(self, mel: F32, layout: AudioLayout) -> Array:
        """Audio states (S, d_model)."""
        return whisper.encode(self.ops, self.dims, mel, layout.source, layout.positions, layout.key_bias)

    def encode(self, mel: F32, layout: AudioLayout) -> EncodedAudio:
        return EncodedAudio(layout, whisper.cross_cache(self.ops, self.dims, self.states(mel, layout)))

    def decoder(self, audio: EncodedAudio) -> "NumpyDecoderRun":
        return NumpyDecoderRun(self, audio)


class NumpyDecoderRun:
    """`DecoderRun` of `NumpyWhisper`."""

    def __init__(self, model: NumpyWhisper, audio: EncodedAudio) -> None:
        self._model, self._audio, self._past = model, audio, 0
        empty = np.zeros((model.dims.heads, 0, model.dims.d_model // model.dims.heads), np.float32)
        self._text: Sequence[LayerCache[Array]] = [LayerCache(empty, empty)] * model.dims.decoder_layers

    def step(self, tokens: Sequence[int], wanted: Sequence[int] | None = None) -> DecoderOutput:
        count = len(tokens)
        inputs = DecoderInputs[Array](
            tokens=np.array(tokens, np.int64),
            positions=np.arange(self._past, self._past + count),
            causal_bias=causal_bias(self._past, count),
            wanted=np.array([count - 1] if wanted is None else wanted, np.int64),
            text=self._text,
            audio=self._audio.handle,
            key_bias=self._audio.layout.key_bias,
        )
        outputs = whisper.decode(self._model.ops, self._model.dims, inputs, self._model.alignment_heads)
        self._text, self._past = outputs.text, self._past + count
        return DecoderOutput(outputs.logits, outputs.alignment)
