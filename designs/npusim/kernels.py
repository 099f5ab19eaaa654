"""Kernels compiled for this machine, called as the simulated cores would call them."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from xdna_designs import kernels as objects
from xdna_designs.dataflow import Kernel
from xdna_designs.taps import TensorType

POISON: Final = 0x7FBA7FBA
FLAGS: Final = (
    "-O3", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-Wno-unknown-pragmas",
    "-fPIC", "-shared", "-ffp-contract=off",
    "-DAIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16",
)  # fmt: skip
_COMPILE_SECONDS: Final = 120


class KernelError(RuntimeError):
    """A kernel does not compile, or did what the chip would not forgive."""


class Cascade(ctypes.Structure):
    """The same layout as aie_host::Cascade."""

    _fields_ = [
        ("head", ctypes.c_int64),
        ("tail", ctypes.c_int64),
        ("_pad", ctypes.c_uint8 * 48),
        ("beats", ctypes.c_uint8 * (4096 * 64)),
    ]


class Core(ctypes.Structure):
    """Registers of a core; the same layout as aie_host::Core."""

    _fields_ = [
        ("rounding", ctypes.c_uint32),
        ("saturation", ctypes.c_uint32),
        ("fault", ctypes.c_int32),
        ("perturbation", ctypes.c_float),
        ("cascade_in", ctypes.c_void_p),
        ("cascade_out", ctypes.c_void_p),
        ("message", ctypes.c_char * 160),
    ]


def compiler() -> str:
    """The C++ compiler: $CXX, g++ or clang++. Raises KernelError when there is none."""
    for name in (os.environ.get("CXX"), "g++", "clang++"):
        if name and shutil.which(name):
            return name
    raise KernelError("the simulator compiles the kernels and finds no C++ compiler: install g++ or clang, or set CXX")


def build(file_name: str, arch: int, *, cxx: str | None = None, folder: Path | None = None) -> Path:
    """The shared library of one kernel object, compiled unless it is there. Raises KernelError with the compiler's words."""
    wanted = objects.parse_object(file_name)
    cxx = cxx or compiler()
    command = [
        cxx,
        *FLAGS,
        f"-D__AIE_ARCH__={arch}",
        *(f"-D{name}={value}" for name, value in wanted.defines),
        f"-I{objects.sources() / 'include' / 'host'}",
        f"-I{objects.sources() / 'include' / 'shared'}",
    ]
    digest = hashlib.sha256("\0".join([*command, str(_stamp(wanted.path)), _version(cxx)]).encode()).hexdigest()[:16]
    target = (folder or cache_folder()) / f"{file_name.removesuffix('.o')}.{arch}.{digest}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            made = Path(scratch) / "kernel.so"
            done = subprocess.run(
                [*command, str(wanted.path), "-o", str(made)],
                capture_output=True,
                text=True,
                timeout=_COMPILE_SECONDS,
                check=False,
            )
            if done.returncode:
                raise KernelError(f"{wanted.path.name} does not compile:\n{done.stderr}")
            made.replace(target)
    return target


def cache_folder() -> Path:
    """Where compiled kernels are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "xdna-dictate" / "kernels"


def _stamp(path: Path) -> str:
    """A digest of a source and all headers."""
    digest = hashlib.sha256(path.read_bytes())
    for header in sorted(path.parent.glob("include/**/*.hpp")):
        digest.update(header.read_bytes())
    return digest.hexdigest()


@cache
def _version(cxx: str) -> str:
    return subprocess.run([cxx, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout


@cache
def load(path: Path) -> ctypes.CDLL:
    """A compiled library."""
    library = ctypes.CDLL(str(path))
    library.aie_host_enter.argtypes = [ctypes.c_void_p]
    library.aie_host_enter.restype = None
    return library


Bound = Callable[..., None]


class Kernels:
    """Finds the function behind a design's kernel. `replacements` stand in for kernels that have no source here."""

    def __init__(self, arch: int, replacements: dict[str, Callable[..., None]] | None = None, cxx: str | None = None) -> None:
        self._arch = arch
        self._replacements = replacements or {}
        self._cxx = cxx
        self._bound: dict[tuple[str, str], tuple[Bound, Callable[[Any], None] | None]] = {}

    def replacement(self, kernel: Kernel) -> Callable[..., None] | None:
        """A Python function in place of the kernel, called with arrays."""
        return self._replacements.get(kernel.name)

    def bound(self, kernel: Kernel) -> tuple[Bound, Callable[[Any], None] | None]:
        """The function, taking addresses and ints, and the one that says which core runs it. Raises KernelError."""
        key = (kernel.object_file_name, kernel.name)
        if key not in self._bound:
            library = load(build(kernel.object_file_name, self._arch, cxx=self._cxx))
            try:
                function = getattr(library, kernel.name)
            except AttributeError:
                raise KernelError(f"{kernel.object_file_name} has no function {kernel.name}") from None
            function.argtypes = [ctypes.c_void_p if isinstance(kind, TensorType) else ctypes.c_int32 for kind in kernel.arg_types]
            function.restype = None
            self._bound[key] = (function, library.aie_host_enter)
        return self._bound[key]
