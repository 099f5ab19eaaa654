"""A twin of the Python module pyxrt on the simulated array: same names, same signatures, same failures.

Stricter where the real module is silent: host and device have their own copy of every buffer until `sync`, an argument that
could not be set raises, and a view that outlives its buffer is reported. Runs happen at `start`; time is predicted.
"""

import sys
import weakref
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from npusim import overlay_file
from npusim.array import Array
from npusim.kernels import KernelError
from npusim.machine import Machine, machine
from npusim.memory import SimulationError
from npusim.native import API, native, register
from xdna_designs import cost
from xdna_designs.device import HANG_SECONDS, Device
from xdna_designs.instructions import Words

XCL_BO_FLAGS_NONE: Final = 0
_STALE: Final = b"\xef\xbe\xad\xde"
_FIRST_BUFFER: Final = 3
_OPCODE: Final = 3
_KERNEL: Final = "MLIR_AIE"


def _enum(name: str) -> Any:
    kind = Enum(name.rpartition(".")[2], [(member, index) for index, member in enumerate(API[f"pyxrt.{name}"]["members"])])  # type: ignore[misc]
    register(name, kind)
    return kind


xclBOSyncDirection = _enum("xclBOSyncDirection")  # noqa: N816  the real name
ert_cmd_state = _enum("ert_cmd_state")
xrt_info_device = _enum("xrt_info_device")
xrt_msg_level = _enum("xrt_msg_level")


def enumerate_devices() -> int:
    """enumerate_devices() -> int"""
    return int(machine.device is not None)


def log_message(level: Any, tag: str, message: str) -> None:
    """log_message(arg0: pyxrt.xrt_msg_level, arg1: str, arg2: str) -> None"""
    sys.stderr.write(f"[{level.name}] {tag}: {message}\n")


class uuid:  # noqa: N801
    """An overlay's identity."""

    @native("uuid.__init__")
    def __init__(self, text: str) -> None:
        self._text = text

    @native("uuid.to_string")
    def to_string(self) -> str:
        return self._text


class xclbin:  # noqa: N801
    """An overlay file."""

    class xclbinkernel:  # noqa: N801
        """A kernel in it."""

        @native("xclbin.xclbinkernel.__init__")
        def __init__(self) -> None:
            self._name, self._arguments = _KERNEL, 8

        @native("xclbin.xclbinkernel.get_name")
        def get_name(self) -> str:
            return self._name

        @native("xclbin.xclbinkernel.get_num_args")
        def get_num_args(self) -> int:
            return self._arguments

    @native("xclbin.__init__")
    def __init__(self, path: str = "") -> None:
        self._file = overlay_file.read(path) if path else None

    @native("xclbin.get_kernels")
    def get_kernels(self) -> list[Any]:
        return [xclbin.xclbinkernel()]

    @native("xclbin.get_uuid")
    def get_uuid(self) -> uuid:
        if self._file is None:
            raise RuntimeError("xclbin is empty")
        return uuid(self._file.uuid)

    @native("xclbin.get_xsa_name")
    def get_xsa_name(self) -> str:
        return self._file.design if self._file else ""


class device:  # noqa: N801
    """The NPU."""

    @native("device.__init__")
    def __init__(self, which: "int | str" = 0) -> None:
        if machine.device is None or which not in (0, "0000:c5:00.1"):
            raise RuntimeError(f" No such device with index '{which}'")
        if machine.trouble == "eacces":
            raise RuntimeError("failed to open /dev/accel/accel0 (err=13): Permission denied")
        self._machine: Machine = machine
        self._xclbins: dict[str, overlay_file.OverlayFile] = {}

    @native("device.get_info")
    def get_info(self, key: Any) -> str:
        assert machine.device is not None
        names = {"name": {"npu1": "NPU Phoenix", "npu2": "NPU Strix"}[machine.device.name], "bdf": "0000:c5:00.1"}
        return names.get(key.name, "")

    @native("device.get_xclbin_uuid")
    def get_xclbin_uuid(self) -> uuid:
        return uuid(next(iter(self._xclbins), "00000000-0000-0000-0000-000000000000"))

    @native("device.register_xclbin")
    def register_xclbin(self, file: xclbin) -> uuid:
        name = file.get_uuid()
        assert file._file is not None
        self._xclbins[name.to_string()] = file._file
        return name

    @native("device.load_xclbin")
    def load_xclbin(self, file: "str | xclbin") -> uuid:
        raise RuntimeError("load_xclbin is not supported on this device; use register_xclbin and hw_context")


class hw_context:  # noqa: N801
    """A partition of the array, configured with one overlay."""

    access_mode = _enum("hw_context.access_mode")

    @native("hw_context.__init__")
    def __init__(self, owner: "device | None" = None, what: Any = None, mode: Any = None, _extra: Any = None) -> None:
        if owner is None or not isinstance(what, uuid | xclbin | str):
            raise RuntimeError("the simulator makes contexts from an xclbin or its uuid only")
        self._device = owner
        self._file = self._overlay(owner, what)
        assert machine.device is not None
        if self._file.device is not machine.device:
            raise RuntimeError(f"the overlay is for {self._file.device.name}, this is {machine.device.name}")
        if machine.contexts >= machine.device.contexts:
            raise RuntimeError("DRM_IOCTL_AMDXDNA_CREATE_HWCTX IOCTL failed (err=-22): Invalid argument")
        machine.contexts += 1
        self._array: Array | None = None
        self._dead: Any = None
        self._closed = weakref.finalize(self, _close_context, machine, id(self))

    @staticmethod
    def _overlay(owner: device, what: Any) -> overlay_file.OverlayFile:
        if isinstance(what, uuid):
            if what.to_string() not in owner._xclbins:
                raise RuntimeError(f"no xclbin with uuid {what.to_string()} is registered")
            return owner._xclbins[what.to_string()]
        file = xclbin(what) if isinstance(what, str) else what
        assert file._file is not None
        return file._file

    @native("hw_context.get_device")
    def get_device(self) -> device:
        return self._device

    @native("hw_context.get_xclbin_uuid")
    def get_xclbin_uuid(self) -> uuid:
        return uuid(self._file.uuid)

    @native("hw_context.get_xclbin")
    def get_xclbin(self) -> xclbin:
        raise RuntimeError("the simulator keeps no xclbin")

    @native("hw_context.get_mode")
    def get_mode(self) -> Any:
        return hw_context.access_mode.shared

    @native("hw_context.add_config")
    def add_config(self, config: Any) -> None:
        raise RuntimeError("the simulator runs no full ELF")

    def _dispatch(self, words: Words, addresses: list[int]) -> Any:
        """Run a stream; returns the state the command ends in."""
        if machine.resident != id(self):
            self._array = None
        machine.make_resident(id(self))
        if self._array is None:
            self._array = Array(self._file.configuration(), self._file.kernels(), memory=machine.memory, seed=machine.seed)
        run = self._array.run(words, addresses)
        assert isinstance(machine.device, Device)
        seconds = run.cycles / cost.clock(machine.device)
        machine.charge("dispatches", cost.value("dispatch") + seconds)
        return ert_cmd_state.ERT_CMD_STATE_TIMEOUT if seconds > HANG_SECONDS else ert_cmd_state.ERT_CMD_STATE_COMPLETED


def _close_context(owner: Machine, identity: int) -> None:
    owner.contexts -= 1
    if owner.resident == identity:
        owner.resident = None


class bo:  # noqa: N801
    """A buffer with two copies: the host's and the device's."""

    flags = _enum("bo.flags")

    @native("bo.__init__")
    def __init__(self, owner: Any, size: int, flags_or_offset: Any, group: int | None = None) -> None:
        machine.check()
        if isinstance(owner, bo):
            offset = flags_or_offset
            if offset < 0 or size <= 0 or offset + size > owner.size():
                raise RuntimeError("sub-buffer is outside its parent")
            if offset % 4:
                raise RuntimeError("sub-buffer offset must be 4-byte aligned")
            self._host, self._device = owner._host[offset : offset + size], owner._device[offset : offset + size]
            self._address: int = owner._address + offset
            return
        if machine.trouble == "eagain":
            raise RuntimeError(f"mmap(addr=0, len={size}) failed (err=11): Resource temporarily unavailable")
        if size <= 0:
            raise RuntimeError("invalid buffer size")
        self._memory = machine.memory
        self._backing = bytearray(_STALE * -(-size // 4))
        self._host = np.frombuffer(self._backing, dtype=np.uint8)[:size]
        device_words = np.frombuffer(bytearray(self._backing), dtype=np.uint32)
        self._device = device_words.view(np.uint8)[:size]
        self._address = machine.memory.add(device_words)

    def __del__(self) -> None:
        backing = self.__dict__.get("_backing")
        if backing is None:
            return
        self._memory.remove(self._address)
        del self._host
        try:
            backing.clear()
        except BufferError:
            machine.violations.append(f"a view of the buffer at {self._address:#x} outlived it: the real driver would crash")

    @native("bo.address")
    def address(self) -> int:
        return self._address

    @native("bo.size")
    def size(self) -> int:
        return int(self._host.nbytes)

    @native("bo.map")
    def map(self) -> memoryview:
        return memoryview(self._host)

    @native("bo.read")
    def read(self, size: int, skip: int) -> NDArray[np.int8]:
        return np.array(self._host[skip : skip + size].view(np.int8))

    @native("bo.write")
    def write(self, data: Any, seek: int) -> None:
        content = np.frombuffer(memoryview(data).cast("B"), dtype=np.uint8)
        if seek + len(content) > len(self._host):
            raise RuntimeError("attempting to write past buffer size")
        self._host[seek : seek + len(content)] = content

    @native("bo.sync")
    def sync(self, direction: Any, size: int | None = None, offset: int = 0) -> None:
        part = slice(offset, None if size is None else offset + size)
        machine.counts["syncs"] += 1
        if direction is xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE:
            machine.counts["bytes to device"] += len(self._host[part])
            self._device[part] = self._host[part]
        elif direction is xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE:
            machine.counts["bytes from device"] += len(self._host[part])
            self._host[part] = self._device[part]
        else:
            raise RuntimeError("only transfers between host and device are supported")


class kernel:  # noqa: N801
    """The overlay's one entry."""

    cu_access_mode = _enum("kernel.cu_access_mode")

    @native("kernel.__init__")
    def __init__(self, context: Any, name: Any, *rest: Any) -> None:
        if rest or not isinstance(context, hw_context):
            raise RuntimeError("deprecated: make a kernel from a hw_context")
        if name != _KERNEL:
            raise RuntimeError(f"no kernel named '{name}' found in xclbin")
        self._context = context

    @native("kernel.group_id")
    def group_id(self, index: int) -> int:
        if index == 1:
            return 1
        if _FIRST_BUFFER <= index < _FIRST_BUFFER + 5:
            return 0
        raise RuntimeError(f"argument {index} of {_KERNEL} is not connected to memory")

    def __call__(self, *args: Any) -> "run":
        """__call__(self: pyxrt.kernel, *args) -> pyxrt.run"""
        started = run(self)
        for index, value in enumerate(args):
            started.set_arg(index, value)
        started.start()
        return started


class run:  # noqa: N801
    """One dispatch."""

    @native("run.__init__")
    def __init__(self, of: "kernel | None" = None) -> None:
        self._kernel = of
        self._arguments: dict[int, Any] = {}
        self._state = ert_cmd_state.ERT_CMD_STATE_NEW

    @native("run.set_arg")
    def set_arg(self, index: int, value: Any) -> None:
        if isinstance(value, bo):
            self._arguments[index] = value
        elif abs(int(value)) < 1 << 31:
            self._arguments[index] = int(value)
        else:
            raise TypeError(f"argument {index} does not fit a C int")

    @native("run.start")
    def start(self) -> None:
        machine.check()
        if self._kernel is None:
            raise RuntimeError("run has no kernel")
        context = self._kernel._context
        if context._dead is not None:
            self._state = ert_cmd_state.ERT_CMD_STATE_ABORT
            return
        words, addresses = self._checked()
        if machine.faults:
            self._state = ert_cmd_state[f"ERT_CMD_STATE_{machine.faults.pop(0).upper()}"]
        else:
            try:
                self._state = context._dispatch(words, addresses)
            except (SimulationError, KernelError) as error:
                machine.violations.append(str(error))
                self._state = ert_cmd_state.ERT_CMD_STATE_TIMEOUT
        if self._state is not ert_cmd_state.ERT_CMD_STATE_COMPLETED:
            context._dead = self._state

    def _checked(self) -> tuple[Words, list[int]]:
        """The stream as the device sees it, and the addresses of the buffers. Raises for what the real module swallows."""
        wanted = self._arguments
        count = max(wanted, default=-1) + 1
        if sorted(wanted) != list(range(count)) or count <= _FIRST_BUFFER:
            raise RuntimeError(f"arguments {sorted(set(range(max(count, 4))) - set(wanted))} of {_KERNEL} are not set")
        if wanted[0] != _OPCODE or not isinstance(wanted[1], bo) or not isinstance(wanted[2], int):
            raise RuntimeError(f"{_KERNEL} takes opcode {_OPCODE}, an instruction buffer, its length and up to 5 buffers")
        buffers = [wanted[index] for index in range(_FIRST_BUFFER, count)]
        if not all(isinstance(buffer, bo) for buffer in buffers) or len(buffers) > 5:
            raise RuntimeError(f"{_KERNEL} takes 1 to 5 buffers")
        words = wanted[1]._device.view(np.uint32)
        length = int(words[3]) // 4
        if wanted[2] not in (length, 4 * length):
            raise RuntimeError(f"the instruction stream has {length} words, {wanted[2]} were announced")
        return words[:length], [buffer._address for buffer in buffers]

    @native("run.wait")
    def wait(self, timeout_ms: int = 0) -> Any:
        return self._state

    @native("run.wait2")
    def wait2(self, timeout: "timedelta | None" = None) -> Any:
        if self._state is not ert_cmd_state.ERT_CMD_STATE_COMPLETED:
            raise RuntimeError(f"kernel run ended as {self._state.name}")
        return None

    @native("run.state")
    def state(self) -> Any:
        return self._state

    @native("run.add_callback")
    def add_callback(self, state: Any, function: Callable[..., None], data: Any) -> None:
        raise RuntimeError("the simulator has no callbacks")

    @native("run.get_ctrl_scratchpad_bo")
    def get_ctrl_scratchpad_bo(self) -> bo:
        raise RuntimeError("only full ELFs have a control scratchpad")


class runlist:  # noqa: N801
    """Runs that are started together."""

    @native("runlist.__init__")
    def __init__(self, context: "hw_context | None" = None) -> None:
        self._runs: list[run] = []

    @native("runlist.add")
    def add(self, item: run) -> None:
        self._runs.append(item)

    @native("runlist.execute")
    def execute(self) -> None:
        for item in self._runs:
            item.start()

    @native("runlist.wait")
    def wait(self, timeout: "timedelta | None" = None) -> Any:
        for item in self._runs:
            if item.state() is not ert_cmd_state.ERT_CMD_STATE_COMPLETED:
                raise RuntimeError(f"runlist failed: a command ended as {item.state().name}")
        return None


class elf:  # noqa: N801
    """A full ELF, which the simulator does not run."""

    @native("elf.__init__")
    def __init__(self, path: Any, size: Any = None) -> None:
        raise RuntimeError("the simulator runs no full ELF")


class module:  # noqa: N801
    """A module of a full ELF."""

    @native("module.__init__")
    def __init__(self, of: elf) -> None:
        raise RuntimeError("the simulator runs no full ELF")

    @native("module.get_hw_context")
    def get_hw_context(self) -> hw_context:
        raise RuntimeError("the simulator runs no full ELF")


class program:  # noqa: N801
    """A program of a full ELF."""

    @native("program.__init__")
    def __init__(self, of: elf) -> None:
        raise RuntimeError("the simulator runs no full ELF")

    @native("program.get_partition_size")
    def get_partition_size(self) -> int:
        raise RuntimeError("the simulator runs no full ELF")


for _name, _kind in {
    "uuid": uuid, "xclbin": xclbin, "device": device, "hw_context": hw_context, "bo": bo, "kernel": kernel, "run": run,
    "runlist": runlist, "elf": elf, "module": module, "program": program,
}.items():  # fmt: skip
    register(_name, _kind)
