"""Names of kernel objects, and where the kernels' sources are.

An object's name says what it was compiled from: `gemm.DIM_M=64.DIM_K=64.DIM_N=64.o`. The same name is used by the host
build, by Peano and inside designs.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from xdna_designs.device import Device

_STACK: Final = re.compile(r"Stack: (\d+) B")


@dataclass(frozen=True)
class KernelObject:
    """A kernel source and its defines."""

    source: str
    defines: tuple[tuple[str, int], ...]

    @property
    def file_name(self) -> str:
        """Its object file."""
        return ".".join([self.source, *(f"{name}={value}" for name, value in self.defines), "o"])

    @property
    def path(self) -> Path:
        """Its source file."""
        return sources() / f"{self.source}.cc"

    @property
    def stack(self) -> int:
        """Bytes of stack that its contract allows it. Raises ValueError when the contract gives none."""
        found = _STACK.search(self.path.read_text())
        if found is None:
            raise ValueError(f"{self.path.name} states no stack budget")
        return int(found[1])


def kernel_object(source: str, **defines: int) -> str:
    """The object file of a kernel: kernel_object("gemm", DIM_M=64)."""
    return KernelObject(source, tuple(defines.items())).file_name


def parse_object(file_name: str) -> KernelObject:
    """What an object file was compiled from."""
    source, *defines = file_name.removesuffix(".o").split(".")
    pairs = (define.partition("=") for define in defines)
    return KernelObject(source, tuple((name, int(value)) for name, _, value in pairs))


def peano_command(kernel: KernelObject, device: Device, peano: Path, mlir_aie: Path, target: Path) -> list[str]:
    """How AMD's open compiler makes an object for the array; flags as in mlir-aie's python/utils/compile/utils.py."""
    emulated = ["-DAIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16"] if device.generation == "aie2p" else []
    return [
        *(str(peano / "bin" / "clang++"), str(kernel.path), "-c", "-o", str(target)),
        *("-O2", "-std=c++20", "-DNDEBUG", f"--target={device.generation}-none-unknown-elf"),
        *("-Wno-parentheses", "-Wno-attributes", "-Wno-macro-redefined", "-Wno-empty-body"),
        *(f"-I{mlir_aie / 'include'}", f"-I{sources() / 'include' / 'shared'}"),
        *emulated,
        *(f"-D{name}={value}" for name, value in kernel.defines),
    ]


def sources() -> Path:
    """The folder of the kernels: beside this package when installed, else in the checkout."""
    installed = Path(__file__).parent / "kernel_sources"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "kernels"
