"""The NPU runtime on the twin of pyxrt: numbers, syncs, faults, recovery."""

import gc
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from npusim import overlay_file
from npusim.machine import Machine, reset
from xdna_asr.errors import BackendUnavailable, NpuFault
from xdna_asr.runtime import npu as runtime
from xdna_asr.runtime.npu import DeviceArena, Npu
from xdna_asr.runtime.self_check import check_gemm
from xdna_designs.bf16 import narrow, rounded, widen
from xdna_designs.device import NPU1, NPU2, Device
from xdna_designs.gemm import layout
from xdna_designs.gemm.design import Epilogue, Gemm
from xdna_designs.instructions import stream
from xdna_designs.lowering import lower

pyxrt: Any = importlib.import_module("npusim.pyxrt")


@pytest.fixture
def machine() -> Iterator[Machine]:
    fresh = reset()
    yield fresh
    gc.collect()
    fresh.check()


class Product:
    """One GEMM through the runtime."""

    def __init__(self, tmp_path: Path, device: Device = NPU2, shape: tuple[int, int, int] = (256, 64, 512)) -> None:
        rng = np.random.default_rng(0)
        rows, depth, columns = shape
        path = tmp_path / "gemm.xclbin"
        overlay_file.write(path, "gemm", device)
        gemm = Gemm(device)
        self.a, self.b = (
            rounded(rng.standard_normal((rows, depth))),
            rounded(rng.standard_normal((depth, columns)) / np.sqrt(depth)),
        )
        self.packed = layout.pack(gemm, self.b, np.zeros(columns, np.float32))
        self.words = stream(lower(gemm.program(rows, depth, columns, Epilogue.NONE)))
        self.npu = Npu.open(pyxrt)
        self.overlay = self.npu.overlay(path)
        self.arena = DeviceArena(self.npu, {"other": np.arange(100, dtype=np.float32), "w": self.packed})
        self.inp, self.out = self.npu.buffer(2 * rows * depth), self.npu.buffer(2 * rows * columns)

    def run(self) -> Any:
        self.inp.write(narrow(self.a))
        self.overlay.run(self.words, self.inp, self.arena["w"], self.out)
        return self.read()

    def read(self) -> Any:
        rows, columns = len(self.a), self.b.shape[1]
        return widen(self.out.read(np.uint16, rows * columns)).reshape(rows, columns)

    def error(self, got: Any) -> float:
        wanted = self.a @ self.b
        return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


def test_a_gemm_of_a_models_size_is_right_and_the_same_under_other_schedules(tmp_path: Path, machine: Machine) -> None:
    product = Product(tmp_path, shape=(512, 768, 3072))
    first = product.run()
    assert product.error(first) <= 1e-2
    machine.seed = 11
    product.overlay.close()
    assert np.array_equal(product.run(), first)


@pytest.mark.parametrize("device", [NPU1, NPU2], ids=["npu1", "npu2"])
def test_both_generations(tmp_path: Path, device: Device) -> None:
    machine = reset(device=device)
    product = Product(tmp_path, device)
    assert product.error(product.run()) <= 1e-2
    assert product.npu.name == device.name
    machine.check()


def test_forgetting_any_one_sync_shows(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.counts.clear()
    product = Product(tmp_path)
    wanted = product.run()
    count = machine.counts["syncs"]
    assert count == 5  # two tensors of the arena, the input, the instructions, the result
    real = pyxrt.bo.sync
    for forgotten in range(count):
        calls = iter(range(1000))

        def sync(self: Any, *args: Any, skip: int = forgotten, counter: Any = calls) -> None:
            if next(counter) != skip:
                real(self, *args)

        reset()
        monkeypatch.setattr(pyxrt.bo, "sync", sync)
        try:
            fresh = Product(tmp_path)
            got = fresh.run()
            wrong = not np.array_equal(got, wanted) or not np.array_equal(_other(fresh), np.arange(100, dtype=np.float32))
        except (NpuFault, ValueError):
            wrong = True
        assert wrong, forgotten
        monkeypatch.setattr(pyxrt.bo, "sync", real)
        machine.violations.clear()


def _other(product: Product) -> Any:
    """The arena's other tensor as the device has it."""
    return product.arena["other"].bo._device.view(np.float32)


def test_what_is_sent_once_stays(tmp_path: Path, machine: Machine) -> None:
    product = Product(tmp_path)
    product.run()
    machine.counts.clear()
    for _ in range(3):
        product.run()
    assert machine.counts["bytes to device"] == 3 * product.a.size * 2
    assert machine.counts["context switches"] == 0


@pytest.mark.parametrize("fault", ["timeout", "error", "abort"])
def test_one_fault_is_recovered_in_a_fresh_context_two_are_reported(tmp_path: Path, machine: Machine, fault: Any) -> None:
    product = Product(tmp_path)
    wanted = product.run()
    machine.faults.append(fault)
    assert np.array_equal(product.run(), wanted)
    assert machine.contexts == 1
    machine.faults += [fault, fault]
    with pytest.raises(NpuFault, match=f"failed twice \\({fault}, then {fault}\\); this goes on on the CPU"):
        product.run()
    assert np.array_equal(product.run(), wanted)


def test_dispatches_go_together_where_xrt_can(tmp_path: Path, machine: Machine) -> None:
    product = Product(tmp_path)
    product.inp.write(narrow(product.a))
    other = product.npu.buffer(2 * len(product.a) * product.b.shape[1])
    dispatches = [(product.words, (product.inp, product.arena["w"], out)) for out in (product.out, other)]
    product.overlay.run_all(dispatches)
    wanted = product.read()
    assert product.error(wanted) <= 1e-2
    product.npu.features = runtime.Features(runlist=False, scratchpad=False)
    product.overlay.run_all(dispatches)
    assert np.array_equal(product.read(), wanted)
    product.npu.features = runtime.Features(runlist=True, scratchpad=False)
    machine.faults.append("timeout")
    product.overlay.run_all(dispatches)
    assert machine.contexts == 1


def test_every_wait_has_a_limit(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[Any] = []
    real = pyxrt.run.wait

    def wait(self: Any, *args: Any) -> Any:
        limits.append(args)
        return real(self, *args)

    monkeypatch.setattr(pyxrt.run, "wait", wait)
    Product(tmp_path).run()
    assert limits == [(runtime.WAIT_MILLISECONDS,)]


def test_sleep_gives_the_context_back_and_waking_needs_nothing(tmp_path: Path, machine: Machine) -> None:
    product = Product(tmp_path)
    wanted = product.run()
    product.npu.suspend()
    assert machine.contexts == 0
    assert np.array_equal(product.run(), wanted)


def old_xrt() -> ModuleType:
    """The names that XRT 2.21 has."""
    missing = {"program", "runlist"}
    old = ModuleType("pyxrt")
    for name in vars(pyxrt):
        if not name.startswith("_") and name not in missing:
            setattr(old, name, getattr(pyxrt, name))
    return old


def test_features_are_looked_for(machine: Machine) -> None:
    assert Npu.open(pyxrt).features == runtime.Features(runlist=True, scratchpad=True)
    assert not Npu.open(old_xrt()).features.runlist


def test_troubles_say_what_to_do(tmp_path: Path, machine: Machine) -> None:
    product = Product(tmp_path)
    machine.trouble = "eagain"
    with pytest.raises(BackendUnavailable, match="memory can't be locked: raise the limit"):
        product.npu.buffer(64)
    machine.trouble = "eacces"
    with pytest.raises(BackendUnavailable, match="usermod -aG render"):
        Npu.open(pyxrt)
    machine.trouble = None
    device, machine.device = machine.device, None
    with pytest.raises(BackendUnavailable, match="XRT finds no device; is the amdxdna driver loaded"):
        Npu.open(pyxrt)
    machine.device = device
    (tmp_path / "broken.xclbin").write_bytes(b"xclbin2\0")
    with pytest.raises(BackendUnavailable, match="the overlay file is damaged; install it again"):
        product.npu.overlay(tmp_path / "broken.xclbin")
    with pytest.raises(BackendUnavailable, match="the overlay file is missing; install it again"):
        product.npu.overlay(tmp_path / "none.xclbin")
    assert product.error(product.run()) <= 1e-2


def test_a_seventh_context_on_npu1_says_so_and_the_six_go_on(tmp_path: Path) -> None:
    reset(device=NPU1)
    product = Product(tmp_path, NPU1)
    others = [product.npu.overlay(tmp_path / "gemm.xclbin") for _ in range(5)]
    with pytest.raises(BackendUnavailable, match="all contexts of the NPU are taken by other programs; close one"):
        product.npu.overlay(tmp_path / "gemm.xclbin")
    assert product.error(product.run()) <= 1e-2
    assert len(others) == 5


@pytest.mark.parametrize("device", [NPU1, NPU2], ids=["npu1", "npu2"])
def test_the_self_check_passes_and_finds_a_wrong_number(tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    reset(device=device)
    product = Product(tmp_path, device)
    check_gemm(product.npu, product.overlay)
    real = pyxrt.bo.read
    monkeypatch.setattr(
        pyxrt.bo, "read", lambda self, size, skip: np.where(np.arange(size) == 9, 77, real(self, size, skip)).astype(np.int8)
    )
    with pytest.raises(NpuFault, match=r"1 of \d+ numbers of a matrix product are wrong; the CPU is used"):
        check_gemm(product.npu, product.overlay)


def test_old_instruction_streams_make_room(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "KEPT_STREAMS", 2)
    product = Product(tmp_path)
    wanted = product.run()
    for rows in (512, 768, 1024):
        words = stream(lower(Gemm(NPU2).program(rows, 64, 512)))
        inp, out = product.npu.buffer(2 * rows * 64), product.npu.buffer(2 * rows * 512)
        inp.write(np.zeros(rows * 64, np.uint16))
        product.overlay.run(words, inp, product.arena["w"], out)
    assert len(product.overlay._instructions) == 2
    assert np.array_equal(product.run(), wanted)


def test_parts_of_buffers_are_aligned_and_inside(machine: Machine) -> None:
    whole = Npu.open(pyxrt).buffer(256)
    for offset, size in ((32, 64), (192, 128), (-64, 64)):
        with pytest.raises(ValueError, match="no aligned part"):
            whole.part(offset, size)


def test_obstacles_come_first_things_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = tmp_path / "accel0"
    assert "there is no" in str(runtime.obstacle(node))
    node.touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "usermod -aG render" in str(runtime.obstacle(node))
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "pyxrt", None)
    assert "pyxrt is missing" in str(runtime.obstacle(node))
    monkeypatch.setitem(sys.modules, "pyxrt", SimpleNamespace())
    assert "is not XRT's" in str(runtime.obstacle(node))
    monkeypatch.setitem(sys.modules, "pyxrt", pyxrt)
    assert runtime.obstacle(node) is None
    with pytest.raises(BackendUnavailable, match="there is no"):
        Npu.open()
