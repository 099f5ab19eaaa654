"""The arena: one memory-mapped file that holds a model's tensors under canonical names.

Layout, little-endian:

    offset 0    8 bytes   magic "XDNARENA"
    offset 8    u32       layout version
    offset 12   u32       length of the header in bytes
    offset 16   header    UTF-8 JSON {"meta": {...}, "tensors": {name: [dtype, shape, offset]}}
    then        data      from the next multiple of 64; offsets count from here, each a multiple of 64

The file is written beside its final name and renamed, so a reader never sees half of one.
"""

import json
import math
import os
import struct
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xdna_asr.errors import ModelDamaged, ModelMissing

MAGIC: Final = b"XDNARENA"
LAYOUT_VERSION: Final = 2
ALIGNMENT: Final = 64
_MAX_HEADER: Final = 64 << 20
_PREFIX: Final = struct.Struct("<8sII")
_DTYPES: Final = {name: np.dtype(name) for name in ("float32", "float16", "int8", "uint8", "uint16", "int32", "int64")}

AnyArray = NDArray[Any]


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def write_arena(path: Path, tensors: Mapping[str, AnyArray], meta: Mapping[str, Any]) -> None:
    """Write `tensors` and JSON-able `meta` to `path` atomically, readable by the owner only."""
    table: dict[str, tuple[str, tuple[int, ...], int]] = {}
    end = 0
    for name, tensor in tensors.items():
        if tensor.dtype.name not in _DTYPES:
            raise ValueError(f"tensor {name}: an arena can't hold {tensor.dtype.name}")
        table[name] = (tensor.dtype.name, tensor.shape, _aligned(end))
        end = _aligned(end) + tensor.nbytes
    header = json.dumps({"meta": meta, "tensors": table}).encode()
    start = _aligned(_PREFIX.size + len(header))
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as out:
        try:
            out.write(_PREFIX.pack(MAGIC, LAYOUT_VERSION, len(header)) + header)
            for name, tensor in tensors.items():
                out.seek(start + table[name][2])
                out.write(np.ascontiguousarray(tensor).data)
            out.truncate(start + end)
            out.flush()
            os.fsync(out.fileno())
            os.replace(out.name, path)
        except BaseException:
            os.unlink(out.name)
            raise


class Arena(Mapping[str, AnyArray]):
    """Read-only view of an arena file: name -> array, mapped and never copied.

    Raises ModelMissing when there is no file, ModelDamaged when it is empty, truncated, malformed or of another
    layout version; nothing outside the checked bounds is ever read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            size = path.stat().st_size
        except FileNotFoundError as error:
            raise ModelMissing(f"{path}: no such model file") from error
        if size < _PREFIX.size:
            raise ModelDamaged(f"{path}: empty or truncated ({size} bytes)")
        self._bytes = np.memmap(path, dtype=np.uint8, mode="r")
        magic, version, length = _PREFIX.unpack(self._bytes[: _PREFIX.size].tobytes())
        if magic != MAGIC:
            raise ModelDamaged(f"{path}: not a model arena")
        if version != LAYOUT_VERSION:
            raise ModelDamaged(f"{path}: layout version {version}, this program reads {LAYOUT_VERSION}; download the model again")
        if length > min(_MAX_HEADER, size - _PREFIX.size):
            raise ModelDamaged(f"{path}: truncated inside its header")
        self._start = _aligned(_PREFIX.size + length)
        try:
            header = json.loads(self._bytes[_PREFIX.size : _PREFIX.size + length].tobytes())
            self.meta: dict[str, Any] = dict(header["meta"])
            self._table = {name: self._entry(name, *row) for name, row in header["tensors"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelDamaged(f"{path}: malformed header ({error})") from error
        end = self._start + max((offset + nbytes for _, _, offset, nbytes in self._table.values()), default=0)
        if size != end:
            raise ModelDamaged(f"{path}: {size} bytes where its header says {end}: truncated or overwritten")

    @staticmethod
    def _entry(name: str, dtype: str, shape: list[int], offset: int) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
        if dtype not in _DTYPES:
            raise ValueError(f"tensor {name} has unknown type {dtype!r}")
        if offset < 0 or offset % ALIGNMENT or any(n < 0 for n in shape):
            raise ValueError(f"tensor {name} has a bad offset or shape")
        return _DTYPES[dtype], tuple(shape), offset, math.prod(shape) * _DTYPES[dtype].itemsize

    def __getitem__(self, name: str) -> AnyArray:
        try:
            dtype, shape, offset, nbytes = self._table[name]
        except KeyError as error:
            raise ModelDamaged(f"{self.path}: tensor {name} is missing") from error
        offset += self._start
        return np.asarray(self._bytes[offset : offset + nbytes]).view(dtype).reshape(shape)

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def location(self, name: str) -> tuple[int, int]:
        """Byte offset in the file and length of tensor `name`, for runtimes that map the file themselves."""
        _, _, offset, nbytes = self._table[name]
        return self._start + offset, nbytes
