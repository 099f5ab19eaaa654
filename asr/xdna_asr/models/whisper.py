"""Whisper, written once on the op set: every size and vocabulary.

Source of the architecture: openai/whisper `model.py`; layer norms come first, GELU is exact, logits share the token
embedding. Sizes are read from the tensors, see `WhisperDims`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from xdna_asr.ops import Ops

T = TypeVar("T")


@dataclass(frozen=True)
class WhisperDims:
    """Sizes of one Whisper model."""

    n_mels: int
    d_model: int
    heads: int
    encoder_layers: int
    decoder_layers: int
    vocabulary: int

    @property
    def scale(self) -> float:
        """Factor of the attention scores, 1 / sqrt(head size)."""
        return float((self.d_model / self.heads) ** -0.5)

    @property
    def default_alignment_heads(self) -> list[tuple[int, int]]:
        """All heads of the decoder's later half, for a model that lists none (openai/whisper `model.py`)."""
        return [(layer, head) for layer in range(self.decoder_layers // 2, self.decoder_layers) for head in range(self.heads)]

    @classmethod
    def of(cls, tensors: Mapping[str, Any], heads: int | None = None) -> "WhisperDims":
        """Sizes of canonical `tensors`; every published model has heads of 64."""
        d_model, n_mels, _ = tensors["enc.conv1.w"].shape

        def layers(part: str) -> int:
            return len({name.split(".")[1] for name in tensors if name.startswith(f"{part}.") and ".ff.1.w" in name})

        return cls(
            n_mels=n_mels,
            d_model=d_model,
            heads=heads or d_model // 64,
            encoder_layers=layers("enc"),
            decoder_layers=layers("dec"),
            vocabulary=tensors["dec.emb"].shape[0],
        )


@dataclass(frozen=True)
class LayerCache(Generic[T]):
    """Keys and values (H, n, d/H) of one decoder layer: `k`, `v` of the text so far, or of the audio."""

    k: T
    v: T


def encode(ops: Ops[T], dims: WhisperDims, mel: T, source: T, positions: T, key_bias: T) -> T:
    """Mel frames to audio states (S, d_model).

    mel (F, n_mels) goes through the convolutions once; state s then takes row `source`[s] of their output and sits at
    position `positions`[s] of the 30 s window (both (S,) int64), so that a stretch of silence can be stood for by a
    few of its positions. key_bias (S,) is the log of how many positions each state stands for.
    """
    stem = ops.gelu(ops.conv1d(mel, "enc.conv1", pad=1))
    stem = ops.gelu(ops.conv1d(stem, "enc.conv2", stride=2, pad=1))
    x = ops.add(ops.rows(stem, source), ops.embedding("enc.pos", positions))
    for layer in range(dims.encoder_layers):
        name = f"enc.{layer}"
        q, k, v = ops.split(ops.linear(ops.layer_norm(x, f"{name}.ln1"), f"{name}.attn.qkv"), 3)
        attended = ops.attention_by_head(q, k, v, key_bias, dims.scale, dims.heads)
        x = ops.add(x, ops.linear(attended, f"{name}.attn.o"))
        x = ops.add(x, _feed_forward(ops, ops.layer_norm(x, f"{name}.ln2"), name))
    return ops.layer_norm(x, "enc.ln")


def cross_cache(ops: Ops[T], dims: WhisperDims, audio: T) -> list[LayerCache[T]]:
    """Keys and values of the audio states (S, d_model) for every decoder layer."""
    caches = []
    for layer in range(dims.decoder_layers):
        k, v = ops.split(ops.linear(audio, f"dec.{layer}.cross.kv"), 2)
        caches.append(LayerCache(ops.split_heads(k, dims.heads), ops.split_heads(v, dims.heads)))
    return caches


@dataclass(frozen=True)
class DecoderInputs(Generic[T]):
    """One decoder pass over n new tokens."""

    tokens: T
    """(n,) int64"""
    positions: T
    """(n,) int64, counted from the first token of the prompt."""
    causal_bias: T
    """(n, past + n): 0 where a token may look, a large negative number elsewhere."""
    wanted: T
    """(m,) int64: which of the n tokens need logits."""
    text: Sequence[LayerCache[T]]
    """Self-attention cache of the past tokens, one a layer."""
    audio: Sequence[LayerCache[T]]
    """From `cross_cache`."""
    key_bias: T
    """(S,), as given to `encode`."""


@dataclass(frozen=True)
class DecoderOutputs(Generic[T]):
    """What one decoder pass gives."""

    logits: T
    """(m, vocabulary)"""
    text: Sequence[LayerCache[T]]
    """Self-attention cache with the n new tokens appended."""
    alignment: T
    """(heads listed, n, S): attention to the audio of the model's alignment heads."""


def decode(
    ops: Ops[T], dims: WhisperDims, inputs: DecoderInputs[T], alignment_heads: Sequence[tuple[int, int]]
) -> DecoderOutputs[T]:
    """n tokens through the decoder; alignment_heads are (layer, head) pairs, at least one."""
    x = ops.add(ops.embedding("dec.emb", inputs.tokens), ops.embedding("dec.pos", inputs.positions))
    text, aligned = [], []
    for layer in range(dims.decoder_layers):
        name = f"dec.{layer}"
        q, k, v = ops.split(ops.linear(ops.layer_norm(x, f"{name}.ln1"), f"{name}.self.qkv"), 3)
        past = inputs.text[layer]
        cache = LayerCache(
            ops.concat([past.k, ops.split_heads(k, dims.heads)], axis=1),
            ops.concat([past.v, ops.split_heads(v, dims.heads)], axis=1),
        )
        text.append(cache)
        attended, _ = ops.attention(ops.split_heads(q, dims.heads), cache.k, cache.v, inputs.causal_bias, dims.scale)
        x = ops.add(x, ops.linear(ops.merge_heads(attended), f"{name}.self.o"))

        q = ops.split_heads(ops.linear(ops.layer_norm(x, f"{name}.ln2"), f"{name}.cross.q"), dims.heads)
        attended, weights = ops.attention(q, inputs.audio[layer].k, inputs.audio[layer].v, inputs.key_bias, dims.scale)
        x = ops.add(x, ops.linear(ops.merge_heads(attended), f"{name}.cross.o"))
        heads = [head for owner, head in alignment_heads if owner == layer]
        if heads:
            aligned.append(ops.heads(weights, heads))

        x = ops.add(x, _feed_forward(ops, ops.layer_norm(x, f"{name}.ln3"), name))
    logits = ops.tied_logits(ops.layer_norm(ops.rows(x, inputs.wanted), "dec.ln"), "dec.emb")
    return DecoderOutputs(logits, text, ops.concat(aligned, axis=0))


def _feed_forward(ops: Ops[T], x: T, name: str) -> T:
    return ops.linear(ops.gelu(ops.linear(x, f"{name}.ff.1")), f"{name}.ff.2")
