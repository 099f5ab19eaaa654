"""What the decoder overlay computes, in float32, one token at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from xdna_designs.decoder.design import HEAD
from xdna_designs.decoder.layout import Affine, Layer
from xdna_designs.gemm.reference import gelu
from xdna_designs.layer_norm.reference import layer_norm
from xdna_designs.softmax.reference import softmax

Matrix = NDArray[np.float32]


@dataclass
class Reference:
    """A decoder with its caches: keys and values [S, d] of the audio, lists of rows of the text."""

    layers: Sequence[Layer]
    norm: tuple[Matrix, Matrix]
    embedding: Matrix
    positions: Matrix
    cross: Sequence[tuple[Matrix, Matrix]]
    key_bias: Matrix
    past: list[list[tuple[Matrix, Matrix]]] = field(default_factory=list)

    def step(self, token: int) -> Matrix:
        """Logits after one more token."""
        if not self.past:
            self.past = [[] for _ in self.layers]
        x = self.embedding[token] + self.positions[len(self.past[0])]
        for layer, past, (keys, values) in zip(self.layers, self.past, self.cross, strict=True):
            query, key, value = np.split(_applied(layer.query_key_value, x), 3)
            past.append((key, value))
            own_keys, own_values = (np.stack(rows) for rows in zip(*past, strict=True))
            x = x + _applied(layer.out, attention(query, own_keys, own_values, np.zeros(len(past), np.float32)))
            x = x + _applied(layer.cross_out, attention(_applied(layer.cross_query, x), keys, values, self.key_bias))
            x = x + _applied(layer.second, gelu(_applied(layer.first, x)))
        return np.asarray(self.embedding @ layer_norm(x[None], *self.norm)[0], dtype=np.float32)


def attention(query: Matrix, keys: Matrix, values: Matrix, bias: Matrix) -> Matrix:
    """All heads of one query [d] over keys and values [S, d]; bias [S] is added to the scores."""
    heads = []
    for first in range(0, len(query), HEAD):
        part = slice(first, first + HEAD)
        scores = keys[:, part] @ query[part] / np.float32(np.sqrt(HEAD)) + bias
        heads.append(softmax(scores[None], len(scores))[0] @ values[:, part])
    return np.concatenate(heads)


def _applied(layer: Affine, x: Matrix) -> Matrix:
    if layer.norm is not None:
        x = layer_norm(x[None], *layer.norm)[0]
    return np.asarray(x @ layer.weight + layer.bias, dtype=np.float32)
