"""The computer that the twin of pyxrt pretends to run on: which chip, which driver, and what goes wrong next."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from npusim.memory import DeviceMemory, SimulationError
from xdna_designs import cost
from xdna_designs.device import NPU2, Device

Fault = Literal["timeout", "error", "abort"]
Trouble = Literal["eagain", "eacces"]


@dataclass
class Machine:
    """State of the pretended machine; `seconds` is predicted time spent on the device."""

    device: Device | None = NPU2
    version: str = "2.25"
    faults: list[Fault] = field(default_factory=list)
    """What happens to the next dispatches, in order."""
    trouble: Trouble | None = None
    """What opening a device ("eacces") or making a buffer ("eagain") meets."""
    seed: int | None = None
    memory: DeviceMemory = field(default_factory=DeviceMemory)
    contexts: int = 0
    resident: int | None = None
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def charge(self, what: str, seconds: float) -> None:
        """Count an event and its predicted time."""
        self.counts[what] += 1
        self.seconds += seconds

    def make_resident(self, context: int) -> None:
        """Account for the switch to another context."""
        if self.resident != context:
            if self.resident is not None:
                self.charge("context switches", cost.value("context_switch"))
            self.charge("configurations", 0.0)
            self.resident = context

    def check(self) -> None:
        """Raises SimulationError for what the real driver would have punished with a crash."""
        if self.violations:
            found, self.violations = self.violations, []
            raise SimulationError("; ".join(found))


machine = Machine()


def reset(**settings: object) -> Machine:
    """Make the machine a new one, with these settings."""
    fresh = Machine(**settings)  # type: ignore[arg-type]
    for name, value in vars(fresh).items():
        setattr(machine, name, value)
    return machine
