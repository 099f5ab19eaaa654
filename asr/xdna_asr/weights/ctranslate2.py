"""Reader for CTranslate2 `model.bin`, binary versions 2 to 6.

Little-endian, unaligned; `str` is a u16 length that counts the closing NUL, the bytes, the NUL:

    u32 version | str spec | u32 revision | u32 variables
    variable: str name | u8 rank | rank x u32 dim | u8 dtype | u32 nbytes | data     (version >= 4)
              str name | u8 rank | rank x u32 dim | u8 item size | u32 count | data  (version < 4)
    u32 aliases | alias: str alias | str target                                      (version >= 3)

Source: CTranslate2, python/ctranslate2/specs/model_spec.py (`_serialize`).
"""

import math
import struct
from pathlib import Path
from typing import Any, Final

import numpy as np

from xdna_asr.errors import ModelDamaged, ModelMissing
from xdna_asr.weights.arena import AnyArray

_NEWEST: Final = 6
_BFLOAT16: Final = 5
_DTYPES: Final = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16, _BFLOAT16: np.uint16}
_OLD_DTYPES: Final = {4: np.float32, 1: np.int8, 2: np.int16}
_MAX_RANK: Final = 4


class _Cursor:
    """Reads forward through a mapped file and refuses to leave it."""

    def __init__(self, path: Path, data: "np.memmap[Any, np.dtype[np.uint8]]") -> None:
        self._path, self._data, self.position = path, data, 0

    def damaged(self, what: str) -> ModelDamaged:
        return ModelDamaged(f"{self._path}: {what} at byte {self.position}")

    def take(self, nbytes: int) -> AnyArray:
        if nbytes > len(self._data) - self.position:
            raise self.damaged(f"truncated: {nbytes} more bytes were promised")
        self.position += nbytes
        return self._data[self.position - nbytes : self.position]

    def number(self, form: str) -> int:
        return int(struct.unpack("<" + form, self.take(struct.calcsize("<" + form)).tobytes())[0])

    def string(self) -> str:
        raw = self.take(self.number("H")).tobytes()
        if not raw.endswith(b"\0"):
            raise self.damaged("a name without its closing NUL")
        return raw[:-1].decode("utf-8", "backslashreplace")

    @property
    def remaining(self) -> int:
        return len(self._data) - self.position


def bfloat16_to_float32(raw: AnyArray) -> AnyArray:
    """Widen bfloat16 bit patterns (uint16, any shape) to float32, exactly."""
    return (raw.astype(np.uint32) << 16).view(np.float32)


def read_ctranslate2(path: Path) -> dict[str, AnyArray]:
    """All variables of a CTranslate2 Whisper model, aliases included; int8 rows are dequantised to float32.

    Raises ModelMissing, or ModelDamaged with the byte where the file stops making sense.
    """
    if not path.exists():
        raise ModelMissing(f"{path}: no such model file")
    if path.stat().st_size == 0:
        raise ModelDamaged(f"{path}: empty file")
    cursor = _Cursor(path, np.memmap(path, dtype=np.uint8, mode="r"))
    version = cursor.number("I")
    if not 2 <= version <= _NEWEST:
        raise ModelDamaged(f"{path}: not a CTranslate2 model of version 2 to {_NEWEST} (found {version})")
    spec, _revision = cursor.string(), cursor.number("I")
    if spec != "WhisperSpec":
        raise ModelDamaged(f"{path}: holds a {spec}, not a Whisper model")
    tensors = dict(_variable(cursor, version) for _ in range(cursor.number("I")))
    for _ in range(cursor.number("I") if version >= 3 else 0):
        alias, target = cursor.string(), cursor.string()
        if target not in tensors:
            raise cursor.damaged(f"alias {alias} points at missing {target}")
        tensors[alias] = tensors[target]
    if cursor.remaining:
        raise cursor.damaged(f"{cursor.remaining} bytes too many")
    return {name: _dequantised(tensors, name) for name in tensors if not name.endswith("_scale")}


def _variable(cursor: _Cursor, version: int) -> tuple[str, AnyArray]:
    name = cursor.string()
    rank = cursor.number("B")
    if rank > _MAX_RANK:
        raise cursor.damaged(f"{name} claims {rank} dimensions")
    shape = tuple(cursor.number("I") for _ in range(rank))
    if version >= 4:
        code, nbytes = cursor.number("B"), cursor.number("I")
        dtype = _DTYPES.get(code)
    else:
        code, count = cursor.number("B"), cursor.number("I")
        dtype, nbytes = _OLD_DTYPES.get(code), code * count
    if dtype is None:
        raise cursor.damaged(f"{name} has unknown data type {code}")
    if nbytes != math.prod(shape) * np.dtype(dtype).itemsize:
        raise cursor.damaged(f"{name} has {nbytes} bytes for shape {list(shape)}")
    tensor = np.frombuffer(cursor.take(nbytes), dtype=dtype).reshape(shape)
    return name, bfloat16_to_float32(tensor) if version >= 4 and code == _BFLOAT16 else tensor


def _dequantised(tensors: dict[str, AnyArray], name: str) -> AnyArray:
    """CTranslate2 stores w = round(x * scale) with one scale a row (or one for an int16 matrix)."""
    scale = tensors.get(f"{name}_scale")
    if scale is None:
        return tensors[name]
    tensor = tensors[name].astype(np.float32)
    return tensor / scale.reshape(scale.shape + (1,) * (tensor.ndim - scale.ndim))
