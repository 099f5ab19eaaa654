"""The NPU through XRT: contexts, buffers, instruction streams and what to do when the device fails.

The only importer of pyxrt. One thread uses it. Not run on hardware yet: proven against `npusim.pyxrt`, a twin of the module.
"""

import hashlib
import importlib
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xdna_asr.errors import BackendUnavailable, NpuFault

NODE: Final = Path("/dev/accel/accel0")
WAIT_MILLISECONDS: Final = 5000
"""How long one dispatch may take; the driver gives up after 2 s by itself."""
KERNEL: Final = "MLIR_AIE"
KEPT_STREAMS: Final = 256
"""Instruction streams whose buffers an overlay keeps; the one that was made first goes first."""
_OPCODE: Final = 3
_FIRST_BUFFER: Final = 3
_NAMES: Final = {"npu1": ("npu1", "phoenix", "hawk"), "npu2": ("npu4", "npu5", "npu6", "strix", "krackan")}

Words = NDArray[np.uint32]


def obstacle(node: Path = NODE) -> str | None:
    """What keeps this machine's NPU from being opened, the first thing first; None if nothing does."""
    if not node.exists():
        return f"there is no {node} (no AMD XDNA device, or its amdxdna driver is not loaded)"
    if not os.access(node, os.R_OK | os.W_OK):
        return f"{node} may not be opened by this user: sudo usermod -aG render $USER, then log in again"
    try:
        found = importlib.import_module("pyxrt")
    except ImportError:
        return "the Python module pyxrt is missing (it comes with the XRT packages of your distribution)"
    if not hasattr(found, "hw_context"):
        return "the Python module pyxrt is not XRT's, or is older than XRT 2.21"
    return None


@dataclass(frozen=True)
class Features:
    """What this XRT offers beyond the subset of 2.21 that everything here works with."""

    runlist: bool
    scratchpad: bool

    @classmethod
    def of(cls, xrt: ModuleType) -> "Features":
        """By looking, not by version."""
        return cls(hasattr(xrt, "runlist"), hasattr(xrt.run, "get_ctrl_scratchpad_bo"))


class Npu:
    """An opened NPU. Overlays and buffers made from it live as long as it does, through loss and recovery of contexts."""

    def __init__(self, xrt: ModuleType, device: Any, name: str) -> None:
        self.xrt = xrt
        self.device = device
        self.name = name
        self.features = Features.of(xrt)
        self._overlays: weakref.WeakSet[Overlay] = weakref.WeakSet()

    @classmethod
    def open(cls, xrt: ModuleType | None = None) -> "Npu":
        """The first NPU. `xrt` stands in for the module pyxrt. Raises BackendUnavailable with what to do."""
        if xrt is None:
            missing = obstacle()
            if missing is not None:
                raise BackendUnavailable(f"the NPU can't be used: {missing}")
            xrt = importlib.import_module("pyxrt")
        device = _opened(lambda: xrt.device(0))
        told = device.get_info(xrt.xrt_info_device.name)
        name = next((name for name, words in _NAMES.items() if any(word in told.lower() for word in words)), None)
        if name is None:
            raise BackendUnavailable(
                f"the NPU can't be used: {told or 'an unknown device'} is none this program knows; use --backend cpu"
            )
        return cls(xrt, device, name)

    def overlay(self, path: Path) -> "Overlay":
        """Configure a part of the array from an overlay file. Raises BackendUnavailable with what to do."""
        made = Overlay(self, path)
        self._overlays.add(made)
        return made

    def buffer(self, nbytes: int) -> "Buffer":
        """A buffer that both sides can reach. Raises BackendUnavailable when memory can't be locked."""
        flags = self.xrt.bo.flags.host_only
        return Buffer(self, _opened(lambda: self.xrt.bo(self.device, nbytes, flags, 0)), nbytes)

    def suspend(self) -> None:
        """Before the machine sleeps: give all contexts back. They come again at the next dispatch; buffers stay."""
        for overlay in list(self._overlays):
            overlay.close()


def _opened(make: Callable[[], Any]) -> Any:
    """Whatever `make` returns. Raises BackendUnavailable that says in plain words what XRT's error means."""
    try:
        return make()
    except RuntimeError as error:
        text = str(error)
        raise BackendUnavailable(
            f"the NPU can't be used: {next((help_ for sign, help_ in _HELP.items() if sign in text), text)}"
        ) from error


_HELP: Final = {
    "No such device": "XRT finds no device; is the amdxdna driver loaded? (lsmod | grep amdxdna)",
    "err=13": f"{NODE} may not be opened by this user: sudo usermod -aG render $USER, then log in again",
    "err=11": "memory can't be locked: raise the limit (ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit)",
    "err=-22": "all contexts of the NPU are taken by other programs; close one",
    "err=-95": "XRT is newer than the kernel's amdxdna driver; update the kernel",
    "Invalid xclbin": "the overlay file is damaged; install it again",
    "No such file": "the overlay file is missing; install it again",
}


class Buffer:
    """Memory of one tensor or of an arena. Writing and reading move exactly the bytes they name."""

    def __init__(self, npu: Npu, bo: Any, nbytes: int, parent: "Buffer | None" = None) -> None:
        self._npu = npu
        self.bo = bo
        self.nbytes = nbytes
        self._parent = parent  # a sub-buffer must not outlive what it is a part of

    def part(self, offset: int, nbytes: int) -> "Buffer":
        """A sub-buffer. Raises ValueError outside the buffer or off a 64-byte boundary."""
        if offset % 64 or offset < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"{nbytes} bytes at {offset} are no aligned part of a buffer of {self.nbytes}")
        return Buffer(self._npu, self._npu.xrt.bo(self.bo, nbytes, offset), nbytes, self)

    def write(self, values: NDArray[Any], offset: int = 0) -> None:
        """Copy an array in and make the device see it."""
        data = np.ascontiguousarray(values)
        self.bo.write(data.view(np.uint8).reshape(-1), offset)
        self.bo.sync(self._npu.xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE, data.nbytes, offset)

    def read(self, dtype: Any, count: int, offset: int = 0) -> NDArray[Any]:
        """A copy of what the device wrote."""
        nbytes = count * np.dtype(dtype).itemsize
        self.bo.sync(self._npu.xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE, nbytes, offset)
        return np.asarray(self.bo.read(nbytes, offset)).view(dtype)


class Overlay:
    """One configuration of the array and the dispatches that run on it."""

    def __init__(self, npu: Npu, path: Path) -> None:
        self._npu = npu
        self._path = path
        self._context: Any = None
        self._kernel: Any = None
        self._instructions: dict[str, tuple[Any, int]] = {}
        self._open()

    def _open(self) -> None:
        xrt, device = self._npu.xrt, self._npu.device
        binary = _opened(lambda: xrt.xclbin(str(self._path)))
        _opened(lambda: device.register_xclbin(binary))
        self._context = _opened(lambda: xrt.hw_context(device, binary.get_uuid()))
        self._kernel = xrt.kernel(self._context, KERNEL)

    def close(self) -> None:
        """Give the context back. Instruction buffers belong to the device and stay."""
        self._kernel = None
        self._context = None

    def run(self, words: Words, *buffers: Buffer) -> None:
        """One dispatch, waited for. Raises NpuFault when it fails twice, the second time in a fresh context."""
        self.run_all([(words, buffers)])

    def run_all(self, dispatches: Sequence[tuple[Words, Sequence[Buffer]]]) -> None:
        """Dispatches one after the other, submitted together where XRT can. All are run again when one fails: they must
        not read what they write. Raises NpuFault.
        """
        first = self._attempt(dispatches)
        if first is None:
            return
        self.close()
        again = self._attempt(dispatches)
        if again is not None:
            self.close()
            raise NpuFault(f"the NPU failed twice ({first}, then {again}); this goes on on the CPU")

    def _attempt(self, dispatches: Sequence[tuple[Words, Sequence[Buffer]]]) -> str | None:
        """None, or what went wrong."""
        try:
            if self._context is None:
                self._open()
            together = self._npu.features.runlist and len(dispatches) > 1
            return self._together(dispatches) if together else self._one_by_one(dispatches)
        except (RuntimeError, BackendUnavailable) as error:
            return str(error)

    def _one_by_one(self, dispatches: Sequence[tuple[Words, Sequence[Buffer]]]) -> str | None:
        done = self._npu.xrt.ert_cmd_state.ERT_CMD_STATE_COMPLETED
        for words, buffers in dispatches:
            run = self._prepared(words, buffers)
            run.start()
            state = run.wait(WAIT_MILLISECONDS)
            if state != done:
                return str(state.name).removeprefix("ERT_CMD_STATE_").lower()
        return None

    def _together(self, dispatches: Sequence[tuple[Words, Sequence[Buffer]]]) -> str | None:
        runs = self._npu.xrt.runlist(self._context)
        kept = [self._prepared(words, buffers) for words, buffers in dispatches]
        for run in kept:
            runs.add(run)
        runs.execute()
        runs.wait(timedelta(milliseconds=WAIT_MILLISECONDS * len(kept)))
        return None

    def _prepared(self, words: Words, buffers: Sequence[Buffer]) -> Any:
        instructions, nbytes = self._instruction_buffer(words)
        run = self._npu.xrt.run(self._kernel)
        for index, value in enumerate((_OPCODE, instructions, nbytes, *(buffer.bo for buffer in buffers))):
            run.set_arg(index, value)
        return run

    def _instruction_buffer(self, words: Words) -> tuple[Any, int]:
        """The buffer of an instruction stream, made and sent once."""
        key = hashlib.sha256(words.tobytes()).hexdigest()
        if key not in self._instructions:
            xrt = self._npu.xrt
            flags, group = xrt.bo.flags.cacheable, self._kernel.group_id(1)
            buffer = _opened(lambda: xrt.bo(self._npu.device, words.nbytes, flags, group))
            buffer.write(words.view(np.uint8), 0)
            buffer.sync(xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE)
            if len(self._instructions) == KEPT_STREAMS:
                del self._instructions[next(iter(self._instructions))]
            self._instructions[key] = (buffer, words.nbytes)
        return self._instructions[key]


class DeviceArena:
    """A model's tensors in one device buffer, sent once; each is a sub-buffer."""

    def __init__(self, npu: Npu, tensors: dict[str, NDArray[Any]]) -> None:
        self._offsets: dict[str, tuple[int, int]] = {}
        end = 0
        for name, tensor in tensors.items():
            self._offsets[name] = (end, tensor.nbytes)
            end += -(-tensor.nbytes // 64) * 64
        self._whole = npu.buffer(max(end, 64))
        for name, tensor in tensors.items():
            self._whole.write(tensor, self._offsets[name][0])

    def __getitem__(self, name: str) -> Buffer:
        return self._whole.part(*self._offsets[name])
