"""The cost model: every constant with its source, and cycles of each kernel.

Nothing here was measured on our designs: what is computed from it is a prediction and is called one wherever it is shown.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from xdna_designs.device import Device


@dataclass(frozen=True)
class Constant:
    """A number of the model, and where it comes from."""

    value: float
    unit: str
    source: str


CONSTANTS: Final = {
    "ddr_bandwidth": Constant(
        47e9, "B/s", "shim DMA on a Krackan NPU, plain streams: atassis/xdna-engine docs/data-movement-thesis.md"
    ),
    "dispatch": Constant(
        1.0e-4, "s", "submit and wait in one context, 0.02-0.4 ms by others: Cyronius/ggml-xdna specs/xdna-backend"
    ),
    "context_switch": Constant(2.67e-3, "s", "another xclbin's context: atassis/xdna-engine docs/where-time-goes.md"),
    "npu1_clock": Constant(1.3e9, "Hz", "between the driver's hclk of 1.309 and 1.6 GHz: amd/xdna-driver npu1_regs.c"),
    "npu2_clock": Constant(
        1.6e9, "Hz", "1.76 measured on a Strix (mlir-aie skills, architecture); a Krackan streams 5.4 GB/s a column: > 1.35"
    ),
    "npu1_gemm": Constant(40.0, "MAC/cycle/core", "1.4-1.8 TFLOP/s on 16 cores: drakosha/whisper-xdna"),
    "npu2_gemm": Constant(
        128.0, "MAC/cycle/core", "15 TFLOP/s on 32 cores, the best of atassis/xdna-engine's encoder products (7.7 typical)"
    ),
    "stream_word": Constant(1.0, "cycles", "a stream carries one 32-bit word a cycle: AM020, stream interconnect"),
    "bd_start": Constant(16.0, "cycles", "estimate: loading a BD and taking its lock"),
    "kernel_call": Constant(30.0, "cycles", "estimate: call, loop set-up and locks of one kernel call"),
    "instruction_word": Constant(2.0, "cycles", "estimate: the controller reads and carries out one word of the stream"),
    "vector_lanes": Constant(16.0, "float32/cycle", "one 512-bit register a cycle: AIE API, detail/aie2p"),
    "bf16_lanes": Constant(32.0, "MAC/cycle", "mac_elem_32 of bfloat16: AIE API, detail/aie2p"),
    "float_multiply": Constant(6.0, "cycles", "a float32 product built from bfloat16 pieces: AIE API, emulated multiplication"),
}
"""All of them."""

Defines = Mapping[str, int]


def value(name: str) -> float:
    """A constant's number."""
    return CONSTANTS[name].value


def clock(device: Device) -> float:
    """Cycles a second of a device's array."""
    return value(f"{device.name}_clock")


def _vector(elements: float, multiplies: float = 0.0, steps: float = 2.0) -> float:
    """Cycles for element-wise float32 work: `steps` plain operations and `multiplies` products for each register."""
    return elements / value("vector_lanes") * (steps + multiplies * value("float_multiply"))


def _gemm(d: Defines) -> float:
    return d["DIM_M"] * d["DIM_N"]


def _decoder_begin(d: Defines) -> float:
    """The mean of a layer's ten operators: five normalise, two make a softmax of a full cache."""
    normalise = _vector(d["DIM_D"], multiplies=3, steps=6)
    softmax = _vector(d["DIM_D"] / 64 * d["DIM_KEYS"], multiplies=6, steps=12)
    return 40 + (5 * normalise + 2 * softmax) / 10


def _decoder_work(d: Defines) -> float:
    """The dearest kind of object, keys: a product of 64 for each head and row."""
    return d["DIM_ROWS"] * d["DIM_D"] / 64 * (64 / value("bf16_lanes") + 8)


_Cycles = Callable[[Defines, tuple[int, ...], Device], float]
CYCLES: Final[dict[str, _Cycles]] = {
    "gemm_zero": lambda d, ints, device: _vector(_gemm(d), steps=1),
    "gemm_accumulate": lambda d, ints, device: _gemm(d) * d["DIM_K"] / value(f"{device.name}_gemm"),
    "gemm_bias": lambda d, ints, device: _vector(_gemm(d)),
    "gemm_residual": lambda d, ints, device: _vector(d["DIM_K"] * d["DIM_N"], steps=3),
    "gemm_store": lambda d, ints, device: _vector(_gemm(d), multiplies=10 if ints and ints[0] in (2, 3, 4) else 0),
    "gemv_rows": lambda d, ints, device: ints[0] * (ints[1] / value("bf16_lanes") + 8),
    "gemv_store": lambda d, ints, device: _vector(64),
    "layer_norm": lambda d, ints, device: _vector(d["DIM_D"], multiplies=4, steps=8) + 60,
    "softmax": lambda d, ints, device: _vector(d["DIM_COLUMNS"], multiplies=13, steps=14) + 60,
    "decoder_start": lambda d, ints, device: 32.0,
    "decoder_begin": lambda d, ints, device: _decoder_begin(d),
    "decoder_work": lambda d, ints, device: _decoder_work(d),
    "decoder_end": lambda d, ints, device: 20.0,
    "decoder_give": lambda d, ints, device: _vector(d["DIM_D"] / d["DIM_WORKERS"], multiplies=3),
    "decoder_give_pair": lambda d, ints, device: _vector(2 * d["DIM_D"] / d["DIM_WORKERS"], multiplies=2),
    "decoder_take": lambda d, ints, device: _vector(d["DIM_D"], multiplies=1, steps=3),
    "decoder_append": lambda d, ints, device: _vector(d["DIM_D"] / 2),
    "decoder_tell": lambda d, ints, device: 16.0,
    "argmax_start": lambda d, ints, device: 4.0,
    "argmax_rows": lambda d, ints, device: d["DIM_ROWS"] * (d["DIM_D"] / value("bf16_lanes") + 12),
}
"""Cycles of one call by kernel: (defines of its object, its int arguments, device)."""


def cycles(symbol: str, defines: Defines, ints: tuple[int, ...], device: Device) -> float:
    """Predicted cycles of one call; a kernel without an entry costs a call."""
    known = CYCLES.get(symbol)
    return value("kernel_call") + (known(defines, ints, device) if known else 0.0)
