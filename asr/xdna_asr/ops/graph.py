"""The cpu back end of the op set: model functions traced once into an ONNX graph for ONNX Runtime.

A tensor is the name of a value in the graph; sequence lengths stay free. Weights go to a side arena that the graph
points into, in the precision that `Precision` asks for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from xdna_asr.ops import quantize
from xdna_asr.ops.onnx_file import AttributeValue, OnnxGraph

Array = NDArray[Any]
Storage = Literal["float32", "int8", "blocks8", "blocks4"]
MICROSOFT: Final = "com.microsoft"
_BLOCK: Final = 32
_EXACT_LOGITS: Final = 16
_UNEVEN_INPUTS: Final = (".attn.o", ".ff.2", ".conv2")
"""Layers whose input rows differ much in size, silence's most of all: each row is scaled to 1 before it is rounded.
The other layers follow a layer norm. Halves the rounding error of the whole encoder for 8 % of its time."""
_INT8_ACCUMULATION: Final = 4
"""`accuracy_level` of MatMulNBits that rounds activations to int8."""


@dataclass(frozen=True)
class Precision:
    """How the matrices of each part of a model are stored and multiplied."""

    encoder: Storage
    decoder: Storage
    logits: Storage
    int8_bits: int = 7
    """Bits of "int8" weights; the eighth is for processors that do not saturate, see `quantize`."""

    def of(self, name: str) -> Storage:
        """Storage of the linear layer `name`; the cross-attention keys and values are computed with the encoder."""
        return self.encoder if name.startswith("enc.") or name.endswith(".cross.kv") else self.decoder


FLOAT32: Final = Precision("float32", "float32", "float32")
QUANTISED: Final = Precision("int8", "blocks8", "blocks4", quantize.int8_bits())


class GraphOps:
    """`Ops` that append operators to `graph` and collect the weights they need in `baked`."""

    def __init__(self, graph: OnnxGraph, weights: Mapping[str, Array], precision: Precision, baked: dict[str, Array]) -> None:
        self._graph, self._weights, self._precision, self._baked = graph, weights, precision, baked
        self._used: set[str] = set()

    @property
    def used(self) -> set[str]:
        """Names in `baked` that this graph reads."""
        return self._used

    def linear(self, x: str, name: str) -> str:
        weight = self._weights[f"{name}.w"].astype(np.float32)
        return self._matmul(x, name, weight)

    def conv1d(self, x: str, name: str, *, stride: int = 1, pad: int = 0) -> str:
        kernel = self._weights[f"{name}.w"].astype(np.float32)
        if pad:
            x = self._op("Pad", x, self._ints(pad, pad), "", self._ints(-2), attributes={"mode": "constant"})
        width = kernel.shape[2]
        # Tap i of output t reads input t * stride + i: a strided slice that leaves out the width - 1 - i last inputs.
        taps = [
            self._op(
                "Slice", x, self._ints(i), self._ints(i - width + 1 or np.iinfo(np.int64).max), self._ints(-2), self._ints(stride)
            )
            for i in range(width)
        ]
        flat = kernel.transpose(0, 2, 1).reshape(len(kernel), -1)
        return self._matmul(self.concat(taps, axis=-1), name, flat)

    def layer_norm(self, x: str, name: str) -> str:
        return self._op("LayerNormalization", x, self._plain(f"{name}.g"), self._plain(f"{name}.b"), attributes={"epsilon": 1e-5})

    def add(self, a: str, b: str) -> str:
        return self._op("Add", a, b)

    def gelu(self, x: str) -> str:
        return self._op("Gelu", x)

    def relu(self, x: str) -> str:
        return self._op("Relu", x)

    def sigmoid(self, x: str) -> str:
        return self._op("Sigmoid", x)

    def hypot(self, a: str, b: str) -> str:
        return self._op("Sqrt", self._op("Add", self._op("Mul", a, a), self._op("Mul", b, b)))

    def concat(self, parts: Sequence[str], axis: int) -> str:
        return parts[0] if len(parts) == 1 else self._op("Concat", *parts, attributes={"axis": axis})

    def split(self, x: str, parts: int) -> list[str]:
        return self._graph.node("Split", [x], {"axis": -1, "num_outputs": parts}, outputs=parts)

    def flatten(self, x: str) -> str:
        return self._op("Reshape", x, self._ints(0, -1))

    def embedding(self, name: str, indices: str) -> str:
        rows = self._op("Gather", self._plain(name), indices)
        return rows if self._weights[name].dtype == np.float32 else self._float(rows)

    def rows(self, x: str, indices: str) -> str:
        return self._op("Gather", x, indices)

    def split_heads(self, x: str, heads: int) -> str:
        return self._op("Transpose", self._op("Reshape", x, self._ints(0, heads, -1)), attributes={"perm": (1, 0, 2)})

    def merge_heads(self, x: str) -> str:
        return self._op("Reshape", self._op("Transpose", x, attributes={"perm": (1, 0, 2)}), self._ints(0, -1))

    def attention(self, q: str, k: str, v: str, bias: str, scale: float) -> tuple[str, str]:
        scaled = self._op("Mul", q, self._graph.constant(np.array(scale, np.float32)))
        scores = self._op("MatMul", scaled, self._op("Transpose", k, attributes={"perm": (0, 2, 1)}))
        weights = self._op("Softmax", self._op("Add", scores, bias), attributes={"axis": -1})
        return self._op("MatMul", weights, v), weights

    def attention_by_head(self, q: str, k: str, v: str, bias: str, scale: float, heads: int) -> str:
        scaled = self._op("Mul", q, self._graph.constant(np.array(scale, np.float32)))
        results = []
        for own_q, own_k, own_v in zip(*(self.split(part, heads) for part in (scaled, k, v)), strict=True):
            scores = self._op("MatMul", own_q, self._op("Transpose", own_k, attributes={"perm": (1, 0)}))
            results.append(self._op("MatMul", self._op("Softmax", self._op("Add", scores, bias), attributes={"axis": -1}), own_v))
        return self.concat(results, axis=-1)

    def heads(self, x: str, indices: Sequence[int]) -> str:
        return self._op("Gather", x, self._ints(*indices))

    def lstm(self, x: str, name: str, hidden: str, cell: str) -> tuple[str, str, str]:
        def gates(key: str) -> Array:
            i, f, g, o = np.split(self._weights[f"{name}.{key}"].astype(np.float32), 4)
            return np.concatenate([i, o, f, g])[None]

        size = self._weights[f"{name}.wh"].shape[1]
        bias = np.concatenate([gates("b"), np.zeros((1, 4 * size), np.float32)], axis=1)
        state = [self._op("Unsqueeze", part, self._ints(0)) for part in (hidden, cell)]
        inputs = [
            self._op("Unsqueeze", x, self._ints(1)),
            self._bake(f"{name}.wi", gates("wi")),
            self._bake(f"{name}.wh", gates("wh")),
        ]
        outputs = self._graph.node("LSTM", [*inputs, self._bake(f"{name}.b", bias), "", *state], {"hidden_size": size}, outputs=3)
        return (
            self._op("Squeeze", outputs[0], self._ints(1, 2)),
            self._op("Squeeze", outputs[1], self._ints(0)),
            self._op("Squeeze", outputs[2], self._ints(0)),
        )

    def tied_logits(self, x: str, name: str) -> str:
        table = self._weights[name]
        if self._precision.logits == "float32":
            return self._op("MatMul", x, self._bake(f"{name}.t", np.ascontiguousarray(table.astype(np.float32).T)))
        rounded = self._block_matmul(x, f"{name}.logits", table.astype(np.float32), None, self._precision.logits)
        _, best = self._graph.node("TopK", [rounded, self._ints(_EXACT_LOGITS)], {"sorted": 0}, outputs=2)
        exact = self._op("MatMul", self.embedding(name, best), self._op("Unsqueeze", x, self._ints(2)))
        return self._op("ScatterElements", rounded, best, self._op("Squeeze", exact, self._ints(2)), attributes={"axis": 1})

    def _matmul(self, x: str, name: str, weight: Array) -> str:
        storage = self._precision.of(name)
        if storage == "float32":
            product = self._op("MatMul", x, self._bake(f"{name}.w", np.ascontiguousarray(weight.T)))
            return self._op("Add", product, self._plain(f"{name}.b"))
        if storage == "int8":
            return self._int8_matmul(x, name, weight)
        return self._block_matmul(x, name, weight, f"{name}.b", storage)

    def _int8_matmul(self, x: str, name: str, weight: Array) -> str:
        codes, scale = quantize.columns(weight, self._precision.int8_bits)
        factors = [self._bake(f"{name}.w8", codes), self._bake(f"{name}.s8", scale)]
        bias = self._plain(f"{name}.b")
        if not name.endswith(_UNEVEN_INPUTS):
            return self._op("DynamicQuantizeMatMul", x, *factors, "", bias, domain=MICROSOFT)
        largest = self._graph.node("ReduceMax", [self._op("Abs", x), self._ints(-1)], {"keepdims": 1})[0]
        largest = self._op("Max", largest, self._graph.constant(np.array(1e-6, np.float32)))
        product = self._op("DynamicQuantizeMatMul", self._op("Div", x, largest), *factors, domain=MICROSOFT)
        return self._op("Add", self._op("Mul", product, largest), bias)

    def _block_matmul(self, x: str, name: str, weight: Array, bias: str | None, storage: Storage) -> str:
        bits = 8 if storage == "blocks8" else 4
        codes, scales = quantize.blocks(weight, bits, _BLOCK)
        attributes = {
            "N": weight.shape[0],
            "K": weight.shape[1],
            "bits": bits,
            "block_size": _BLOCK,
            "accuracy_level": _INT8_ACCUMULATION,
        }
        inputs = [x, self._bake(f"{name}.w{bits}", codes), self._bake(f"{name}.s{bits}", scales)]
        if bias is not None:
            inputs += ["", "", self._plain(bias)]
        return self._op("MatMulNBits", *inputs, attributes=attributes, domain=MICROSOFT)

    def _op(self, op: str, *inputs: str, attributes: Mapping[str, AttributeValue] | None = None, domain: str = "") -> str:
        return self._graph.node(op, inputs, attributes, domain=domain)[0]

    def _float(self, x: str) -> str:
        return self._op("Cast", x, attributes={"to": 1})

    def _ints(self, *values: int) -> str:
        return self._graph.constant(np.array(values, np.int64))

    def _plain(self, name: str) -> str:
        """A tensor in the precision it has in the source."""
        return self._bake(name, self._weights[name])

    def _bake(self, name: str, value: Array) -> str:
        self._baked.setdefault(name, value)
        self._used.add(name)
        return name
