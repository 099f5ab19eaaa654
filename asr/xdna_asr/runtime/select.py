"""Which device recognises speech on this machine, and why."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from xdna_asr.errors import BackendUnavailable

Backend = Literal["cpu", "npu", "sim"]
BACKENDS: Final = ("auto", "npu", "cpu", "sim")
NPU_NODE: Final = Path("/dev/accel/accel0")


@dataclass(frozen=True)
class Choice:
    """A back end and the reason it was taken, for people."""

    backend: Backend
    detail: str


def choose(wanted: str) -> Choice:
    """The back end for `wanted` ("auto", "npu", "cpu" or "sim").

    "auto" takes the NPU where everything it needs is here, else the CPU. Raises BackendUnavailable with the reason
    when a back end was asked for by name and can't be had: it is never replaced silently.
    """
    if wanted == "cpu":
        return Choice("cpu", "asked for")
    if wanted == "sim":
        raise BackendUnavailable("the NPU simulator is not part of this version; use --backend cpu")
    missing = npu_obstacle()
    if wanted == "npu":
        raise BackendUnavailable(f"the NPU can't be used: {missing}; use --backend auto or cpu")
    return Choice("cpu", f"no NPU: {missing}")


def npu_obstacle(node: Path = NPU_NODE) -> str:
    """What keeps this version from using an NPU, the first thing first."""
    if not node.exists():
        return f"there is no {node} (no AMD XDNA device, or its amdxdna driver is not loaded)"
    if importlib.util.find_spec("pyxrt") is None:
        return "the Python module pyxrt is missing (it comes with the XRT packages of your distribution)"
    return "this version has no NPU overlays yet"
