"""What keeps an NPU from being used, each with a line and a next step of its own."""

import os
import resource
from pathlib import Path

import pytest

from xdna_dictate import doctor


def npu(
    node: Path, monkeypatch: pytest.MonkeyPatch, *, access: bool = True, memlock: int = resource.RLIM_INFINITY
) -> dict[str, doctor.Finding]:
    monkeypatch.setattr(doctor, "NPU_NODE", node)
    monkeypatch.setattr(os, "access", lambda *_: access)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (memlock, memlock))
    return {finding.what: finding for finding in doctor._npu()}


def test_no_device_no_rights_and_too_little_locked_memory_are_three_things(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tmp_path / "accel0"
    missing = npu(node, monkeypatch)
    assert list(missing) == ["NPU driver"]
    assert "its driver is not loaded" in missing["NPU driver"].said
    node.touch()
    refused = npu(node, monkeypatch, access=False)["NPU rights"]
    assert (refused.verdict, "usermod -aG render" in refused.next_step) == ("note", True)
    little = npu(node, monkeypatch, memlock=8 << 20)["locked memory"]
    assert (little.verdict, little.said, "memlock" in little.next_step) == ("note", "8 MB", True)
    fine = npu(node, monkeypatch)
    assert fine["NPU rights"].verdict == fine["locked memory"].verdict == "ok"
    assert "pyxrt" in fine["XRT"].said
