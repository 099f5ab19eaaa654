"""Whisper's decoder weights and audio caches in the form that the NPU's decoder overlay streams."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdna_asr.models.whisper import LayerCache, WhisperDims
from xdna_designs.decoder.design import Decoder
from xdna_designs.decoder.layout import SUPPRESSED, Affine, Layer, pack, pack_cross
from xdna_designs.device import Device

Array = NDArray[Any]


def decoder_overlay(device: Device, dims: WhisperDims, positions: int) -> Decoder:
    """The overlay for a model that hears `positions` audio states. Raises DesignError for sizes it can't have."""
    grain = device.columns * 8
    return Decoder(
        device,
        width=dims.d_model,
        layers=dims.decoder_layers,
        vocabulary=-(-dims.vocabulary // grain) * grain,
        audio=-(-positions // grain) * grain,
    )


def pack_decoder(decoder: Decoder, tensors: Mapping[str, Array], suppressed: Sequence[int] = ()) -> NDArray[np.uint16]:
    """The arena of a model's canonical tensors; `suppressed` tokens never come."""
    layers = [_layer(tensors, f"dec.{index}") for index in range(decoder.layers)]
    embedding = _float(tensors["dec.emb"])
    bias = np.zeros(len(embedding), np.float32)
    bias[list(suppressed)] = SUPPRESSED
    return pack(decoder, layers, _norm(tensors, "dec.ln"), embedding, _float(tensors["dec.pos"]), bias)


def pack_audio(decoder: Decoder, caches: Sequence[LayerCache[Array]], key_bias: Array) -> NDArray[np.uint16]:
    """The cross cache of an encoded window: keys and values (H, S, n) of every layer."""
    keys, values = ([_merged(part) for part in parts] for parts in zip(*((cache.k, cache.v) for cache in caches), strict=True))
    return pack_cross(decoder, keys, values, _float(key_bias))


def _merged(heads: Array) -> NDArray[np.float32]:
    return _float(heads).transpose(1, 0, 2).reshape(heads.shape[1], -1)


def _layer(tensors: Mapping[str, Array], name: str) -> Layer:
    return Layer(
        _affine(tensors, f"{name}.self.qkv", f"{name}.ln1"),
        _affine(tensors, f"{name}.self.o"),
        _affine(tensors, f"{name}.cross.q", f"{name}.ln2"),
        _affine(tensors, f"{name}.cross.o"),
        _affine(tensors, f"{name}.ff.1", f"{name}.ln3"),
        _affine(tensors, f"{name}.ff.2"),
    )


def _affine(tensors: Mapping[str, Array], name: str, norm: str | None = None) -> Affine:
    weight = np.ascontiguousarray(_float(tensors[f"{name}.w"]).T)
    return Affine(weight, _float(tensors[f"{name}.b"]), _norm(tensors, norm) if norm else None)


def _norm(tensors: Mapping[str, Array], name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    return _float(tensors[f"{name}.g"]), _float(tensors[f"{name}.b"])


def _float(values: Array) -> NDArray[np.float32]:
    return np.asarray(values, dtype=np.float32)
