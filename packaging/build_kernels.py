"""make kernels: every kernel object that the designs use, for this machine, and for the array where Peano is installed.

PEANO_INSTALL_DIR and MLIR_AIE_INSTALL_DIR say where Peano (llvm-aie) and mlir-aie are; both come as wheels, see docs/npu.md.
"""

import os
import subprocess
import sys
from pathlib import Path

from npusim.kernels import KernelError, build
from xdna_designs.catalog import CATALOG, examples
from xdna_designs.device import DEVICES, Device
from xdna_designs.kernels import kernel_object, parse_object, peano_command, sources
from xdna_designs.program import Call, steps_of

BUILD = Path(__file__).parents[1] / "build" / "kernels"


def objects(device: Device) -> list[str]:
    """Those that the designs call, and the default form of kernels that no design uses yet."""
    programs = [program for name in CATALOG for program in examples(name, device)]
    steps = [step for program in programs for worker in program.workers for step in steps_of(worker.body)]
    called = {step.kernel.object_file_name for step in steps if isinstance(step, Call)}
    used = {parse_object(name).source for name in called}
    return sorted(called | {kernel_object(path.stem) for path in sources().glob("*.cc") if path.stem not in used})


def main() -> int:
    """Exit code 0, or 1 when a kernel does not compile."""
    peano, mlir_aie = os.environ.get("PEANO_INSTALL_DIR"), os.environ.get("MLIR_AIE_INSTALL_DIR")
    for device in DEVICES.values():
        for name in objects(device):
            try:
                made = build(name, device.arch, folder=BUILD / "host")
            except KernelError as error:
                print(error, file=sys.stderr)
                return 1
            print(f"{device.generation:6} host   {made.name}")
            if peano and mlir_aie:
                target = BUILD / device.generation / name
                target.parent.mkdir(parents=True, exist_ok=True)
                command = peano_command(parse_object(name), device, Path(peano), Path(mlir_aie), target)
                if subprocess.run(command, timeout=600, check=False).returncode:
                    return 1
                print(f"{device.generation:6} Peano  {target.name}")
    if not (peano and mlir_aie):
        print("Not built for the array: set PEANO_INSTALL_DIR and MLIR_AIE_INSTALL_DIR, see docs/npu.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
