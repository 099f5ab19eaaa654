"""Writes ONNX models: the few protobuf messages a graph needs, so that building one takes no `onnx` at run time.

Field numbers: onnx/onnx `onnx.proto` (ModelProto, GraphProto, NodeProto, AttributeProto, TensorProto, ValueInfoProto);
wire format: protobuf.dev/programming-guides/encoding. A test reads the result back with the `onnx` package.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

IR_VERSION: Final = 10
OPSET: Final = 20
_DATA_TYPES: Final = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10}
_EXTERNAL: Final = 1

AttributeValue = int | float | str | Sequence[int]


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _int(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _bytes(number: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _float(number: int, value: float) -> bytes:
    return _varint(number << 3 | 5) + np.float32(value).tobytes()


def _attribute(name: str, value: AttributeValue) -> bytes:
    if isinstance(value, float):
        body, kind = _float(2, value), 1
    elif isinstance(value, int):
        body, kind = _int(3, value), 2
    elif isinstance(value, str):
        body, kind = _bytes(4, value), 3
    else:
        body, kind = b"".join(_int(8, item) for item in value), 7
    return _bytes(1, name) + body + _int(20, kind)


@dataclass(frozen=True)
class ExternalTensor:
    """A tensor that lies in another file beside the model."""

    name: str
    dtype: str
    shape: Sequence[int]
    file: str
    offset: int
    nbytes: int

    def encode(self) -> bytes:
        """TensorProto with `external_data`."""
        entries = {"location": self.file, "offset": str(self.offset), "length": str(self.nbytes)}
        external = b"".join(_bytes(13, _bytes(1, key) + _bytes(2, text)) for key, text in entries.items())
        return _tensor_head(self.name, self.dtype, self.shape) + external + _int(14, _EXTERNAL)


def _tensor_head(name: str, dtype: str, shape: Iterable[int]) -> bytes:
    return b"".join(_int(1, size) for size in shape) + _int(2, _DATA_TYPES[dtype]) + _bytes(8, name)


def _value_info(name: str, dtype: str, shape: Sequence[int | str]) -> bytes:
    dims = b"".join(_bytes(1, _int(1, size) if isinstance(size, int) else _bytes(2, size)) for size in shape)
    return _bytes(1, name) + _bytes(2, _bytes(1, _int(1, _DATA_TYPES[dtype]) + _bytes(2, dims)))


@dataclass
class OnnxGraph:
    """A graph under construction; add inputs, constants, nodes and outputs, then `encode`."""

    name: str
    _nodes: list[bytes] = field(default_factory=list)
    _constants: list[bytes] = field(default_factory=list)
    _inputs: list[bytes] = field(default_factory=list)
    _outputs: list[bytes] = field(default_factory=list)
    _count: int = 0

    def input(self, name: str, dtype: str, shape: Sequence[int | str]) -> str:
        """Declare an input; strings in `shape` are free dimensions."""
        self._inputs.append(_value_info(name, dtype, shape))
        return name

    def output(self, value: str, name: str, dtype: str, shape: Sequence[int | str]) -> None:
        """Declare `value` as output `name`."""
        self.node("Identity", [value], outputs=[name])
        self._outputs.append(_value_info(name, dtype, shape))

    def constant(self, value: NDArray[Any], name: str | None = None) -> str:
        """A tensor inside the model."""
        name = name or self._fresh("c")
        raw = np.ascontiguousarray(value).tobytes()
        self._constants.append(_tensor_head(name, value.dtype.name, value.shape) + _bytes(9, raw))
        return name

    def external(self, tensor: ExternalTensor) -> str:
        """A tensor in a file beside the model."""
        self._constants.append(tensor.encode())
        return tensor.name

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        attributes: Mapping[str, AttributeValue] | None = None,
        *,
        outputs: int | Sequence[str] = 1,
        domain: str = "",
    ) -> list[str]:
        """Append an operator and return the names of its outputs; an empty input name leaves that input out."""
        names = [self._fresh(op) for _ in range(outputs)] if isinstance(outputs, int) else list(outputs)
        body = b"".join(_bytes(1, name) for name in inputs) + b"".join(_bytes(2, name) for name in names)
        body += _bytes(3, self._fresh("n")) + _bytes(4, op)
        body += b"".join(_bytes(5, _attribute(key, value)) for key, value in (attributes or {}).items())
        self._nodes.append(body + (_bytes(7, domain) if domain else b""))
        return names

    def encode(self) -> bytes:
        """The serialised ModelProto."""
        graph = b"".join(_bytes(1, node) for node in self._nodes) + _bytes(2, self.name)
        graph += b"".join(_bytes(5, tensor) for tensor in self._constants)
        graph += b"".join(_bytes(11, info) for info in self._inputs) + b"".join(_bytes(12, info) for info in self._outputs)
        opsets = _bytes(8, _bytes(1, "") + _int(2, OPSET)) + _bytes(8, _bytes(1, "com.microsoft") + _int(2, 1))
        return _int(1, IR_VERSION) + _bytes(2, "xdna-dictate") + _bytes(7, graph) + opsets

    def _fresh(self, stem: str) -> str:
        self._count += 1
        return f"{stem}_{self._count}"
