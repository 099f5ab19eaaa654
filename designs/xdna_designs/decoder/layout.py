"""How a decoder's weights and caches lie in device memory: a tape for every worker, in the order in which it reads them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xdna_designs.bf16 import narrow
from xdna_designs.decoder.design import HEAD, TAIL, Decoder
from xdna_designs.folds import fold_attention_scale, fold_layer_norm

Matrix = NDArray[np.float32]
Bits = NDArray[np.uint16]
SUPPRESSED: Final = -1.0e30


@dataclass(frozen=True)
class Affine:
    """A linear layer, weight [inputs, outputs] and bias, and the scale and shift of the LayerNorm before it."""

    weight: Matrix
    bias: Matrix
    norm: tuple[Matrix, Matrix] | None = None

    def folded(self) -> tuple[Matrix, Matrix]:
        """Weight and bias that need a LayerNorm without scale and shift."""
        return fold_layer_norm(self.weight, self.bias, *self.norm) if self.norm else (self.weight, self.bias)


@dataclass(frozen=True)
class Layer:
    """One decoder layer; `query_key_value` [d, 3 d], `cross_query` [d, d]."""

    query_key_value: Affine
    out: Affine
    cross_query: Affine
    cross_out: Affine
    first: Affine
    second: Affine


def pack(
    decoder: Decoder, layers: Sequence[Layer], norm: tuple[Matrix, Matrix], embedding: Matrix, positions: Matrix, bias: Matrix
) -> Bits:
    """The arena: tapes of all workers, then positions. bias: float32[vocabulary], SUPPRESSED for tokens that may not come.

    embedding: [tokens, d], padded here to the overlay's vocabulary with suppressed rows.
    """
    d, s, workers = decoder.width, decoder.slice, decoder.workers
    rows = np.zeros((decoder.vocabulary, d), np.float32)
    rows[: len(embedding)] = embedding
    biases = np.full(decoder.vocabulary, SUPPRESSED, np.float32)
    biases[: len(bias)] = bias
    share = decoder.vocabulary // workers
    tapes = []
    for w in range(workers):
        part = slice(w * s, (w + 1) * s)
        for layer in layers:
            tapes += [_before(decoder, layer, part), _between(decoder, layer, part), _after(decoder, layer, w)]
        tapes.append(_affine(decoder, norm))
        tapes.append(objects(decoder, rows[w * share : (w + 1) * share], biases[w * share : (w + 1) * share]))
    table = np.zeros(decoder.context * d + decoder.object, np.float32)
    table[: positions.size] = positions.reshape(-1)
    return np.concatenate([*(tape.reshape(-1) for tape in tapes), narrow(table)])


def objects(decoder: Decoder, rows: Matrix, bias: Matrix) -> Bits:
    """Rows of a matrix, [n, k], as tape objects with their biases."""
    per = decoder.rows * decoder.width // rows.shape[1]
    made = np.zeros((len(rows) // per, decoder.object), np.uint16)
    made[:, :-TAIL] = narrow(rows).reshape(len(made), -1)
    tail = np.zeros((len(made), TAIL // 2), np.float32)
    tail[:, :per] = bias.reshape(-1, per)
    made[:, -TAIL:] = tail.view(np.uint16)
    return made


def _before(decoder: Decoder, layer: Layer, part: slice) -> Bits:
    weight, bias = layer.query_key_value.folded()
    d = decoder.width
    query, query_bias = fold_attention_scale(weight[:, :d], bias[:d], HEAD)
    thirds = [(query, query_bias), (weight[:, d : 2 * d], bias[d : 2 * d]), (weight[:, 2 * d :], bias[2 * d :])]
    return np.concatenate([objects(decoder, w.T[part], b[part]) for w, b in thirds])


def _between(decoder: Decoder, layer: Layer, part: slice) -> Bits:
    out, out_bias = layer.out.folded()
    query, query_bias = fold_attention_scale(*layer.cross_query.folded(), HEAD)
    return np.concatenate([objects(decoder, out.T[part], out_bias[part]), objects(decoder, query.T[part], query_bias[part])])


def _after(decoder: Decoder, layer: Layer, worker: int) -> Bits:
    d, s = decoder.width, decoder.slice
    part = slice(worker * s, (worker + 1) * s)
    out, out_bias = layer.cross_out.folded()
    first, first_bias = layer.first.folded()
    second, second_bias = layer.second.folded()
    made = [objects(decoder, out.T[part], out_bias[part])]
    for round_ in range(4):
        rows = slice(round_ * d + worker * s, round_ * d + (worker + 1) * s)
        made.append(objects(decoder, first.T[rows], first_bias[rows]))
    return np.concatenate([*made, objects(decoder, second.T[part], second_bias[part])])


def _affine(decoder: Decoder, norm: tuple[Matrix, Matrix]) -> Bits:
    made = np.zeros(decoder.object, np.uint16)
    made[: 4 * decoder.width] = np.concatenate(norm).astype(np.float32).view(np.uint16)
    return made


def pack_cross(decoder: Decoder, keys: Sequence[Matrix], values: Sequence[Matrix], key_bias: Matrix) -> Bits:
    """The cross cache: keys and values [S, d] of every layer, S <= audio; key_bias [S] in units of ln is added to scores.

    A worker has `audio / workers` positions in a row. Positions past S are suppressed.
    """
    bias = np.full(decoder.audio, SUPPRESSED, np.float32)
    bias[: len(key_bias)] = key_bias * np.float32(np.log2(np.e))
    share = decoder.audio // decoder.workers
    made = []
    for w in range(decoder.workers):
        part = slice(w * share, (w + 1) * share)
        for key, value in zip(keys, values, strict=True):
            made.append(objects(decoder, _padded(key, decoder.audio)[part], bias[part]))
            made.append(objects(decoder, _padded(value, decoder.audio)[part], bias[part] * 0))
    return np.concatenate(made).reshape(-1)


def _padded(rows: Matrix, count: int) -> Matrix:
    made = np.zeros((count, rows.shape[1]), np.float32)
    made[: len(rows)] = rows
    return made
