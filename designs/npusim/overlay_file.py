"""What stands in for an xclbin in the simulator: the name of a design and its parameters."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from npusim.kernels import Kernels
from xdna_designs.catalog import examples
from xdna_designs.device import DEVICES, Device
from xdna_designs.lowering import Configuration, lower

_KIND: Final = "npusim overlay"


@dataclass(frozen=True)
class OverlayFile:
    """One overlay for one device."""

    design: str
    device: Device
    parameters: tuple[tuple[str, int], ...]

    @property
    def uuid(self) -> str:
        """A name that differs for different overlays."""
        digest = hashlib.sha256(repr((self.design, self.device.name, self.parameters)).encode()).hexdigest()
        return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"

    def configuration(self) -> Configuration:
        """The array's configuration."""
        return lower(examples(self.design, self.device, **dict(self.parameters))[0])

    def kernels(self) -> Kernels:
        """Its kernels."""
        return Kernels(self.device.arch)


def write(path: Path, design: str, device: Device, **parameters: int) -> None:
    """Write an overlay file. Raises DesignError for what the catalog does not have."""
    examples(design, device, **parameters)
    path.write_text(json.dumps({_KIND: {"design": design, "device": device.name, "parameters": parameters}}), "utf-8")


def read(path: str) -> OverlayFile:
    """Raises RuntimeError, as the real module does for a file that is no xclbin."""
    try:
        loaded = json.loads(Path(path).read_text("utf-8"))[_KIND]
        return OverlayFile(loaded["design"], DEVICES[loaded["device"]], tuple(loaded["parameters"].items()))
    except FileNotFoundError:
        raise RuntimeError(f"No such file '{path}'") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise RuntimeError("Invalid xclbin") from None
