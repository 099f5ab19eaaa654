"""Weight rounding for ONNX Runtime's quantised matrix products."""

import re
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

_CPUINFO: Final = Path("/proc/cpuinfo")
_WIDE_SUMS: Final = re.compile(r"\b(avx512_vnni|avx_vnni|asimddp)\b")


def int8_bits(cpuinfo: Path = _CPUINFO) -> int:
    """Bits an int8 weight may use on this processor: 8 where byte products are summed in 32 bits, else 7.

    Without such instructions (VNNI, dot product) x86 sums two products of a byte pair in 16 bits, which saturates.
    """
    try:
        return 8 if _WIDE_SUMS.search(cpuinfo.read_text()) else 7
    except OSError:
        return 7


def columns(weight: F32, bits: int) -> tuple[NDArray[np.int8], F32]:
    """(out, in) matrix -> int8 (in, out) of `bits` bits and one scale an output, for `DynamicQuantizeMatMul`."""
    largest = (1 << (bits - 1)) - 1
    scale = np.maximum(np.abs(weight).max(axis=1), 1e-12).astype(np.float32) / np.float32(largest)
    return np.ascontiguousarray(np.rint(weight / scale[:, None]).astype(np.int8).T), scale


def blocks(weight: F32, bits: int, block: int) -> tuple[NDArray[np.uint8], F32]:
    """(N, K) matrix -> packed codes (N, K / block, block * bits / 8) and scales (N * K / block,), for `MatMulNBits`.

    Codes are unsigned around 2^(bits - 1); two 4-bit codes share a byte, the even column in the low half.
    Source: onnxruntime `docs/ContribOperators.md`, com.microsoft.MatMulNBits.
    """
    rows, columns = weight.shape
    padded = np.pad(weight, ((0, 0), (0, -columns % block))).reshape(rows, -1, block)
    middle = 1 << (bits - 1)
    extreme = np.take_along_axis(padded, np.abs(padded).argmax(axis=2)[..., None], axis=2)
    scale = np.where(extreme == 0, 1.0, extreme / -middle).astype(np.float32)
    codes = np.clip(np.rint(padded / scale) + middle, 0, 2 * middle - 1).astype(np.uint8)
    if bits == 4:
        codes = codes[..., 0::2] | codes[..., 1::2] << 4
    return codes, scale.reshape(-1)
