"""Whisper checkpoints under canonical names.

    enc.conv{1,2}.{w,b}  enc.pos  enc.L.{ln1,ln2}.{g,b}  enc.L.attn.{qkv,o}.{w,b}  enc.L.ff.{1,2}.{w,b}  enc.ln.{g,b}
    dec.emb  dec.pos  dec.L.{ln1,ln2,ln3}.{g,b}  dec.L.self.{qkv,o}.{w,b}  dec.L.cross.{q,kv,o}.{w,b}
    dec.L.ff.{1,2}.{w,b}  dec.ln.{g,b}

Matrices are (out, in) in the checkpoint's own precision, q, k and v stacked by rows; norms and biases are float32.
The k projection has no bias: its rows are zeros.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from xdna_asr.errors import ModelDamaged
from xdna_asr.weights.arena import AnyArray

Tensors = Mapping[str, AnyArray]

_STEM: Final = {"enc": "encoder", "dec": "decoder"}
_HF_BLOCK: Final = {"attn": "self_attn", "self": "self_attn", "cross": "encoder_attn"}
_CT2_BLOCK: Final = {"attn": "self_attention", "self": "self_attention", "cross": "attention"}


def from_ctranslate2(source: Tensors) -> dict[str, AnyArray]:
    """Canonical tensors of a CTranslate2 Whisper model."""
    return _canonical(_Ct2Names(source))


def from_huggingface(source: Tensors) -> dict[str, AnyArray]:
    """Canonical tensors of a transformers Whisper checkpoint, with or without its `model.` prefix."""
    prefix = "model." if any(name.startswith("model.") for name in source) else ""
    return _canonical(_HuggingFaceNames(source, prefix))


class _Names:
    """Looks canonical pieces up in one source's naming scheme."""

    def __init__(self, source: Tensors) -> None:
        self.source = source

    def tensor(self, name: str) -> AnyArray:
        try:
            return self.source[name]
        except KeyError as error:
            raise ModelDamaged(f"the checkpoint has no tensor {name}") from error

    def layers(self, part: str) -> int:
        """Number of consecutive blocks of `part` ("enc" or "dec")."""
        count = 0
        while self.block_marker(part, count) in self.source:
            count += 1
        return count

    def block_marker(self, part: str, layer: int) -> str:
        raise NotImplementedError


class _Ct2Names(_Names):
    def block_marker(self, part: str, layer: int) -> str:
        return f"{_STEM[part]}/layer_{layer}/ffn/linear_0/weight"

    def linear(self, part: str, layer: int, block: str, role: str) -> tuple[AnyArray, AnyArray]:
        base = f"{_STEM[part]}/layer_{layer}"
        if block == "ff":
            base += f"/ffn/linear_{int(role) - 1}"
        else:
            order = ["q", "kv", "o"] if block == "cross" else ["qkv", "o"]
            base += f"/{_CT2_BLOCK[block]}/linear_{order.index(role)}"
        return self.tensor(f"{base}/weight"), self.tensor(f"{base}/bias")

    def norm(self, part: str, layer: int | None, block: str | None) -> tuple[AnyArray, AnyArray]:
        base = _STEM[part]
        if layer is not None and block is not None:
            base += f"/layer_{layer}/" + ("ffn" if block == "ff" else _CT2_BLOCK[block])
        return self.tensor(f"{base}/layer_norm/gamma"), self.tensor(f"{base}/layer_norm/beta")

    def conv(self, index: int) -> tuple[AnyArray, AnyArray]:
        return self.tensor(f"encoder/conv{index}/weight"), self.tensor(f"encoder/conv{index}/bias")

    def positions(self, part: str) -> AnyArray:
        return self.tensor(f"{_STEM[part]}/position_encodings/encodings")

    def embedding(self) -> AnyArray:
        return self.tensor("decoder/embeddings/weight")


class _HuggingFaceNames(_Names):
    def __init__(self, source: Tensors, prefix: str) -> None:
        super().__init__(source)
        self.prefix = prefix

    def block_marker(self, part: str, layer: int) -> str:
        return f"{self.prefix}{_STEM[part]}.layers.{layer}.fc1.weight"

    def linear(self, part: str, layer: int, block: str, role: str) -> tuple[AnyArray, AnyArray]:
        base = f"{self.prefix}{_STEM[part]}.layers.{layer}"
        if block == "ff":
            return self.tensor(f"{base}.fc{role}.weight"), self.tensor(f"{base}.fc{role}.bias")
        names = ["out"] if role == "o" else list(role)
        weights = [self.tensor(f"{base}.{_HF_BLOCK[block]}.{name}_proj.weight") for name in names]
        biases = [
            np.zeros(len(weight), np.float32) if name == "k" else self.tensor(f"{base}.{_HF_BLOCK[block]}.{name}_proj.bias")
            for name, weight in zip(names, weights, strict=True)
        ]
        return np.concatenate(weights), np.concatenate(biases)

    def norm(self, part: str, layer: int | None, block: str | None) -> tuple[AnyArray, AnyArray]:
        base = f"{self.prefix}{_STEM[part]}"
        if layer is not None and block is not None:
            base += f".layers.{layer}." + ("final" if block == "ff" else _HF_BLOCK[block])
            return self.tensor(f"{base}_layer_norm.weight"), self.tensor(f"{base}_layer_norm.bias")
        return self.tensor(f"{base}.layer_norm.weight"), self.tensor(f"{base}.layer_norm.bias")

    def conv(self, index: int) -> tuple[AnyArray, AnyArray]:
        base = f"{self.prefix}encoder.conv{index}"
        return self.tensor(f"{base}.weight"), self.tensor(f"{base}.bias")

    def positions(self, part: str) -> AnyArray:
        return self.tensor(f"{self.prefix}{_STEM[part]}.embed_positions.weight")

    def embedding(self) -> AnyArray:
        return self.tensor(f"{self.prefix}decoder.embed_tokens.weight")


def _canonical(names: _Ct2Names | _HuggingFaceNames) -> dict[str, AnyArray]:
    out: dict[str, AnyArray] = {}
    for name, pair in _linears(names):
        out[f"{name}.w"], out[f"{name}.b"] = pair[0], pair[1].astype(np.float32)
    for name, pair in _norms(names):
        out[f"{name}.g"], out[f"{name}.b"] = (tensor.astype(np.float32) for tensor in pair)
    out["enc.pos"] = names.positions("enc").astype(np.float32)
    out["dec.pos"] = names.positions("dec").astype(np.float32)
    out["dec.emb"] = names.embedding()
    return out


def _linears(names: _Ct2Names | _HuggingFaceNames) -> Iterator[tuple[str, tuple[AnyArray, AnyArray]]]:
    for index in (1, 2):
        yield f"enc.conv{index}", names.conv(index)
    blocks: dict[str, dict[str, tuple[str, ...]]] = {
        "enc": {"attn": ("qkv", "o"), "ff": ("1", "2")},
        "dec": {"self": ("qkv", "o"), "cross": ("q", "kv", "o"), "ff": ("1", "2")},
    }
    for part, roles in blocks.items():
        for layer in range(names.layers(part)):
            for block, block_roles in roles.items():
                for role in block_roles:
                    yield f"{part}.{layer}.{block}.{role}", names.linear(part, layer, block, role)


def _norms(names: _Ct2Names | _HuggingFaceNames) -> Iterator[tuple[str, tuple[AnyArray, AnyArray]]]:
    for part, blocks in {"enc": ("attn", "ff"), "dec": ("self", "cross", "ff")}.items():
        for layer in range(names.layers(part)):
            for index, block in enumerate(blocks, start=1):
                yield f"{part}.{layer}.ln{index}", names.norm(part, layer, block)
        yield f"{part}.ln", names.norm(part, None, None)
