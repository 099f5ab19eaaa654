"""The designs by name, for everything that is told a name: the compiler's driver, the simulator's overlay files, tests."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from xdna_designs.argmax.design import Argmax
from xdna_designs.dataflow import Program
from xdna_designs.decoder.design import Decoder
from xdna_designs.device import Device
from xdna_designs.gemm.design import Epilogue, Gemm
from xdna_designs.gemv.design import Gemv
from xdna_designs.layer_norm.design import LayerNorm
from xdna_designs.softmax.design import Softmax
from xdna_designs.taps import DesignError


@dataclass(frozen=True)
class Entry:
    """How to make a design's overlay, programs on it that try all of it, and programs of the sizes its README lists."""

    make: Callable[..., Any]
    examples: Callable[[Any], list[Program]]
    sizes: Callable[[Any], dict[str, Program]]


def _gemm(design: Gemm) -> list[Program]:
    width = 2 * design.columns
    return [design.program(2 * design.rows, 2 * design.k, width, epilogue) for epilogue in Epilogue]


def _gemm_sizes(design: Gemm) -> dict[str, Program]:
    sizes = ((256, 384, 512), (512, 512, 2048), (512, 768, 3072))
    return {f"{m} x {k} x {n}": design.program(m, k, n, Epilogue.BIAS) for m, k, n in sizes}


def _row_sizes(design: Any, *rest: int) -> dict[str, Program]:
    return {f"{rows} rows": design.program(rows, *rest) for rows in (64, 512)}


def _decoder(design: Decoder) -> list[Program]:
    return [design.program(3, [5], 2)]


def _decoder_sizes(design: Decoder) -> dict[str, Program]:
    models = {"tiny": (384, 4), "base": (512, 6), "small": (768, 12)}
    return {f"{name}, a token": Decoder(design.device, width=w, layers=n).program(20, [5], 1) for name, (w, n) in models.items()}


def _small_decoder(device: Device, layers: int = 1, vocabulary: int = 1024, audio: int = 128, context: int = 128) -> Decoder:
    return Decoder(device, layers=layers, vocabulary=vocabulary, audio=audio, context=context)


CATALOG: Final[dict[str, Entry]] = {
    "decoder": Entry(_small_decoder, _decoder, _decoder_sizes),
    "gemm": Entry(Gemm, _gemm, _gemm_sizes),
    "gemv": Entry(
        Gemv,
        lambda design: [design.program(128 * design.device.columns, 512)],
        lambda design: {f"{rows} x {k}": design.program(rows, k) for rows, k in ((1024, 512), (4096, 512), (16384, 2048))},
    ),
    "softmax": Entry(
        Softmax,
        lambda design: [design.program(2 * design.device.columns, 300)],
        lambda design: _row_sizes(design, design.columns),
    ),
    "layer_norm": Entry(LayerNorm, lambda design: [design.program(2 * design.device.columns)], _row_sizes),
    "argmax": Entry(
        Argmax,
        lambda design: [design.program(32 * design.device.columns)],
        lambda design: {f"{rows} x {design.width}": design.program(rows) for rows in (1024, 51968)},
    ),
}


def make(name: str, device: Device, **parameters: int) -> Any:
    """A design's overlay. Raises DesignError for an unknown name or parameter."""
    if name not in CATALOG:
        raise DesignError(f"there is no design {name}; there are {', '.join(CATALOG)}")
    try:
        return CATALOG[name].make(device, **parameters)
    except TypeError as error:
        raise DesignError(f"{name}: {error}") from None


def sizes(name: str, device: Device) -> dict[str, Program]:
    """Programs of the sizes that the design's README lists."""
    return CATALOG[name].sizes(make(name, device))


def examples(name: str, device: Device, **parameters: int) -> list[Program]:
    """Programs that use all of a design; the first stands for the overlay."""
    return CATALOG[name].examples(make(name, device, **parameters))
