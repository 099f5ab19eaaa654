"""Reader for safetensors files, single or sharded, memory-mapped.

Written out because the `safetensors` package can't hand bfloat16 to numpy, and because a damaged file must be
refused by name before anything maps it. Format: u64 header length | JSON header | data;
source: huggingface/safetensors README, "Format".
"""

import json
import math
from pathlib import Path
from typing import Any, Final

import numpy as np

from xdna_asr.errors import ModelDamaged, ModelMissing
from xdna_asr.weights.arena import AnyArray
from xdna_asr.weights.ctranslate2 import bfloat16_to_float32

_DTYPES: Final = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F64": "<f8", "I64": "<i8", "I32": "<i4", "I8": "i1", "U8": "u1"}
_MAX_HEADER: Final = 100_000_000
INDEX: Final = "model.safetensors.index.json"


def read_safetensors(path: Path) -> dict[str, AnyArray]:
    """All tensors of one file, or of every shard named by an index file; bfloat16 is widened to float32."""
    if path.name != INDEX:
        return _read_one(path)
    try:
        shards = {Path(shard).name for shard in json.loads(path.read_text("utf-8"))["weight_map"].values()}
    except FileNotFoundError as error:
        raise ModelMissing(f"{path}: no such model file") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelDamaged(f"{path}: malformed index ({error})") from error
    return {name: tensor for shard in sorted(shards) for name, tensor in _read_one(path.parent / shard).items()}


def _read_one(path: Path) -> dict[str, AnyArray]:
    if not path.exists():
        raise ModelMissing(f"{path}: no such model file")
    size = path.stat().st_size
    if size < 8:
        raise ModelDamaged(f"{path}: empty or truncated ({size} bytes)")
    data = np.memmap(path, dtype=np.uint8, mode="r")
    length = int.from_bytes(data[:8].tobytes(), "little")
    if length > min(_MAX_HEADER, size - 8):
        raise ModelDamaged(f"{path}: not a safetensors file, or truncated inside its header")
    try:
        header = json.loads(data[8 : 8 + length].tobytes())
        header.pop("__metadata__", None)
        body = data[8 + length :]
        end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        if end != len(body):
            raise ModelDamaged(f"{path}: {len(body)} bytes of data where its header says {end}")
        return {name: _tensor(body, name, entry) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        if isinstance(error, ModelDamaged):
            raise
        raise ModelDamaged(f"{path}: malformed header ({error})") from error


def _tensor(body: AnyArray, name: str, entry: dict[str, Any]) -> AnyArray:
    dtype, shape, (begin, end) = np.dtype(_DTYPES[entry["dtype"]]), entry["shape"], entry["data_offsets"]
    if begin < 0 or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"tensor {name} has {end - begin} bytes for shape {shape}")
    tensor = np.frombuffer(body[begin:end], dtype=dtype).reshape(shape)
    return bfloat16_to_float32(tensor) if entry["dtype"] == "BF16" else tensor
