"""The twin of pyxrt: the real module's names and signatures, and its failures."""

import gc
import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyxrt_api import api_of, differences

from npusim import overlay_file
from npusim.machine import Machine, reset
from npusim.memory import SimulationError
from xdna_designs.bf16 import narrow, rounded, widen
from xdna_designs.catalog import examples
from xdna_designs.device import NPU1, NPU2
from xdna_designs.instructions import stream
from xdna_designs.lowering import lower
from xdna_designs.softmax.reference import softmax

pyxrt: Any = importlib.import_module("npusim.pyxrt")  # as loosely typed as the real one
REAL = json.loads((Path(pyxrt.__file__).parent / "pyxrt-2.25-api.json").read_text())
TO_DEVICE = pyxrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE
FROM_DEVICE = pyxrt.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE
STATES = pyxrt.ert_cmd_state


@pytest.fixture
def machine() -> Iterator[Machine]:
    fresh = reset()
    yield fresh
    gc.collect()
    fresh.check()


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    path = tmp_path / "softmax.xclbin"
    overlay_file.write(path, "softmax", NPU2)
    return path


class Session:
    """What every program does first."""

    def __init__(self, path: Path) -> None:
        self.device = pyxrt.device(0)
        self.binary = pyxrt.xclbin(str(path))
        self.device.register_xclbin(self.binary)
        self.context = pyxrt.hw_context(self.device, self.binary.get_uuid())
        self.kernel = pyxrt.kernel(self.context, "MLIR_AIE")
        self.program = examples("softmax", NPU2)[0]
        words = stream(lower(self.program))
        self.instructions = pyxrt.bo(self.device, words.nbytes, pyxrt.bo.flags.cacheable, self.kernel.group_id(1))
        self.instructions.write(words, 0)
        self.instructions.sync(TO_DEVICE)
        self.nbytes = words.nbytes
        self.x = rounded(np.random.default_rng(1).standard_normal((16, 512)))
        self.inp, self.out = (
            pyxrt.bo(self.device, 16 * 512 * 2, pyxrt.bo.flags.host_only, self.kernel.group_id(3 + i)) for i in range(2)
        )
        self.inp.write(narrow(self.x), 0)
        self.inp.sync(TO_DEVICE)

    def result(self) -> Any:
        self.out.sync(FROM_DEVICE)
        return widen(self.out.read(16 * 512 * 2, 0).view(np.uint16)).reshape(16, 512)


def test_names_and_signatures_are_the_real_modules() -> None:
    wrong, missing = differences(api_of(pyxrt), REAL["api"])
    assert wrong == []
    left_out = ("pyxrt.ext.", "pyxrt.xclbin.xclbinip", "pyxrt.xclbin.xclbinmem", "pyxrt.xclbin.get_mems", "pyxrt.xclbin.get_axlf")
    assert [name for name in missing if not name.startswith(left_out)] == []


def test_a_dispatch_as_every_example_does_it(machine: Machine, overlay: Path) -> None:
    session = Session(overlay)
    run = session.kernel(3, session.instructions, session.nbytes, session.inp, session.out)
    assert run.wait() == STATES.ERT_CMD_STATE_COMPLETED
    assert np.abs(session.result() - softmax(session.x, 300)).max() < 4e-3
    again = pyxrt.run(session.kernel)
    for index, value in enumerate((3, session.instructions, session.nbytes, session.inp, session.out)):
        again.set_arg(index, value)
    together = pyxrt.runlist(session.context)
    together.add(again)
    together.execute()
    together.wait()
    assert machine.counts["dispatches"] == 2
    assert machine.seconds > 2e-4


def test_a_forgotten_sync_shows(machine: Machine, overlay: Path) -> None:
    session = Session(overlay)
    session.inp.write(narrow(session.x * 0), 0)
    session.kernel(3, session.instructions, session.nbytes, session.inp, session.out).wait()
    before = session.out.read(64, 0).view(np.uint32)
    assert (before == 0xDEADBEEF).all()
    assert np.abs(session.result() - softmax(session.x, 300)).max() < 4e-3


@pytest.mark.parametrize("bad", [1.5, None, "3", [1]])
def test_an_argument_that_can_not_be_set_raises_instead_of_being_swallowed(machine: Machine, overlay: Path, bad: Any) -> None:
    session = Session(overlay)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        session.kernel(3, session.instructions, bad, session.inp, session.out)
    run = pyxrt.run(session.kernel)
    run.set_arg(0, 3)
    run.set_arg(1, session.instructions)
    with pytest.raises(RuntimeError, match=r"arguments \[2, 3\] of MLIR_AIE are not set"):
        run.start()


def test_calls_are_checked_like_pybinds(machine: Machine) -> None:
    device = pyxrt.device(0)
    with pytest.raises(TypeError, match="write"):
        pyxrt.bo(device, 64, pyxrt.bo.flags.normal, 0).write(b"1234")
    with pytest.raises(TypeError):
        pyxrt.bo(device, 64.0, pyxrt.bo.flags.normal, 0)
    with pytest.raises(TypeError):
        pyxrt.bo(device, 64, 0, 0)
    assert pyxrt.bo(device, np.int64(64), pyxrt.bo.flags.normal, 0).size() == 64


def test_parts_share_their_parents_memory(machine: Machine) -> None:
    whole = pyxrt.bo(pyxrt.device(0), 256, pyxrt.bo.flags.host_only, 0)
    part = pyxrt.bo(whole, 64, 128)
    part.write(bytes(range(64)), 0)
    assert bytes(whole.map()[128:192]) == bytes(range(64))
    assert part.address() == whole.address() + 128
    with pytest.raises(RuntimeError, match="outside"):
        pyxrt.bo(whole, 64, 224)
    del part
    gc.collect()


def test_a_view_that_outlives_its_buffer_is_reported() -> None:
    machine = reset()
    buffer = pyxrt.bo(pyxrt.device(0), 256, pyxrt.bo.flags.host_only, 0)
    view = np.frombuffer(buffer.map(), dtype=np.uint8)
    del buffer
    with pytest.raises(SimulationError, match="outlived it"):
        machine.check()
    whole = pyxrt.bo(pyxrt.device(0), 256, pyxrt.bo.flags.host_only, 0)
    part = pyxrt.bo(whole, 64, 0)
    del whole
    with pytest.raises(SimulationError, match="outlived it"):
        machine.check()
    assert view.size
    assert part.size() == 64


@pytest.mark.parametrize(("device", "limit"), [(NPU1, 6), (NPU2, 16)], ids=["npu1", "npu2"])
def test_contexts_are_limited(tmp_path: Path, device: Any, limit: int) -> None:
    reset(device=device)
    path = tmp_path / "o.xclbin"
    overlay_file.write(path, "softmax", device)
    opened = pyxrt.device(0)
    uuid = opened.register_xclbin(pyxrt.xclbin(str(path)))
    contexts = [pyxrt.hw_context(opened, uuid) for _ in range(limit)]
    with pytest.raises(RuntimeError, match="err=-22"):
        pyxrt.hw_context(opened, uuid)
    contexts.pop()
    assert pyxrt.hw_context(opened, uuid)


def test_switching_contexts_costs_and_resets_the_array(machine: Machine, overlay: Path) -> None:
    first, second = Session(overlay), Session(overlay)
    for session in (first, second, first):
        session.kernel(3, session.instructions, session.nbytes, session.inp, session.out).wait()
    assert machine.counts["context switches"] == 2
    assert machine.seconds > 2 * 2.6e-3


@pytest.mark.parametrize("fault", ["timeout", "error", "abort"])
def test_injected_faults_end_the_context(machine: Machine, overlay: Path, fault: Any) -> None:
    session = Session(overlay)
    machine.faults.append(fault)
    arguments = (3, session.instructions, session.nbytes, session.inp, session.out)
    assert session.kernel(*arguments).wait(1000) == STATES[f"ERT_CMD_STATE_{fault.upper()}"]
    assert session.kernel(*arguments).wait(1000) == STATES.ERT_CMD_STATE_ABORT
    session.context = pyxrt.hw_context(session.device, session.binary.get_uuid())
    session.kernel = pyxrt.kernel(session.context, "MLIR_AIE")
    assert session.kernel(*arguments).wait(1000) == STATES.ERT_CMD_STATE_COMPLETED


def test_no_device_no_rights_no_memory(machine: Machine, overlay: Path) -> None:
    machine.trouble = "eagain"
    with pytest.raises(RuntimeError, match=r"mmap.*err=11"):
        pyxrt.bo(pyxrt.device(0), 64, pyxrt.bo.flags.normal, 0)
    machine.trouble = "eacces"
    with pytest.raises(RuntimeError, match="Permission denied"):
        pyxrt.device(0)
    machine.device = None
    assert pyxrt.enumerate_devices() == 0
    with pytest.raises(RuntimeError, match="No such device with index '0'"):
        pyxrt.device(0)


def test_a_hung_design_is_a_timeout(machine: Machine, overlay: Path) -> None:
    session = Session(overlay)
    words = stream(lower(session.program)).copy()
    words[-1] ^= 1 << 24  # wait for a channel that never ends a task
    session.instructions.write(words, 0)
    session.instructions.sync(TO_DEVICE)
    assert (
        session.kernel(3, session.instructions, session.nbytes, session.inp, session.out).wait(1000)
        == STATES.ERT_CMD_STATE_TIMEOUT
    )
    machine.violations.clear()
