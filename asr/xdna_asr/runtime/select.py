"""Which device recognises speech on this machine, and why."""

from dataclasses import dataclass
from typing import Final, Literal

from xdna_asr.errors import BackendUnavailable

Backend = Literal["cpu", "npu", "sim"]
BACKENDS: Final = ("auto", "npu", "cpu", "sim")


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
    from xdna_asr.runtime.npu import obstacle

    missing = obstacle() or "this version has no NPU overlays yet"
    if wanted == "npu":
        raise BackendUnavailable(f"the NPU can't be used: {missing}; use --backend auto or cpu")
    return Choice("cpu", f"no NPU: {missing}")
