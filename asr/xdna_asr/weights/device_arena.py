"""A model's weights as the NPU wants them: packed once, mapped at start, sent to the device once.

Baking packs each tensor in its design's layout, unpacks it again and compares it with its source: matrices may differ by
the rounding to bfloat16 only, biases not at all. Opening checks version, device and source, and hashes nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xdna_asr.errors import ModelDamaged
from xdna_asr.weights.arena import Arena, write_arena

DEVICE_LAYOUT: Final = 1
"""Grows whenever a layout, a fold or the order of a tape changes."""
_HALF_ULP: Final = 2.0**-8

Bits = NDArray[np.uint16]
Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Weight:
    """One tensor on its way to the device. `unpack` gives the matrix's bfloat16 bits and the bias back from `pack`'s result."""

    name: str
    matrix: Matrix
    bias: Matrix | None
    pack: Callable[[], Bits]
    unpack: Callable[[Bits], tuple[Bits, Matrix | None]]


def bake(path: Path, weights: Iterable[Weight], *, device: str, fingerprint: str) -> None:
    """Write a device arena. Raises ModelDamaged, and writes nothing, when a layout does not give its tensor back."""
    tensors: dict[str, Any] = {}
    parity: dict[str, float] = {}
    for weight in weights:
        packed = weight.pack()
        bits, bias = weight.unpack(packed)
        parity[weight.name] = _worst(weight.matrix, bits)
        same = bias is None if weight.bias is None else bias is not None and np.array_equal(weight.bias, bias)
        if parity[weight.name] > _HALF_ULP or not same:
            raise ModelDamaged(f"{path}: packing changes {weight.name} by {parity[weight.name]:.2g}; nothing was written")
        tensors[weight.name] = packed
    meta = {"device layout": DEVICE_LAYOUT, "device": device, "fingerprint": fingerprint, "parity": parity}
    write_arena(path, tensors, meta)


def open_device_arena(path: Path, *, device: str, fingerprint: str) -> Arena:
    """A baked arena, mapped. Raises ModelMissing, or ModelDamaged when it is for another layout, device or source."""
    arena = Arena(path)
    wanted = {"device layout": DEVICE_LAYOUT, "device": device, "fingerprint": fingerprint}
    for key, value in wanted.items():
        if arena.meta.get(key) != value:
            raise ModelDamaged(
                f"{path}: its {key} is {arena.meta.get(key)}, wanted is {value}; it is baked again at the next start"
            )
    return arena


def _worst(matrix: Matrix, bits: Bits) -> float:
    """Largest difference of bfloat16 bits from their source, relative to it."""
    values = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).reshape(-1)
    source = matrix.reshape(-1)
    if values.shape != source.shape or not np.isfinite(values).all():
        return float("inf")
    floor = np.finfo(np.float32).tiny
    return float(np.max(np.abs(values.astype(np.float64) - source) / np.maximum(np.abs(source), floor), initial=0.0))
