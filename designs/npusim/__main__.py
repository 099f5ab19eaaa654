"""python -m npusim: run a design in the simulator on random data and print what it would cost."""

import argparse
import sys
from pathlib import Path

import numpy as np

from npusim.array import Array
from npusim.kernels import KernelError
from npusim.memory import SimulationError
from npusim.report import Report, picture, report
from xdna_designs.bf16 import narrow
from xdna_designs.catalog import CATALOG, examples, sizes
from xdna_designs.checks import verify
from xdna_designs.dataflow import Program
from xdna_designs.device import DEVICES
from xdna_designs.instructions import stream
from xdna_designs.taps import DesignError


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or 2 with one line for what can't be done."""
    parser = argparse.ArgumentParser(prog="python -m npusim", description=__doc__)
    parser.add_argument("design", choices=CATALOG)
    parser.add_argument("--device", choices=DEVICES, default="npu2")
    parser.add_argument("--seed", type=int, help="run in a random order instead of by time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw what every tile and channel does over time")
    parser.add_argument("--columns", type=int, metavar="COUNT", help="draw only the first COUNT columns of the array")
    parser.add_argument("--table", action="store_true", help="print the table of sizes for the design's README instead")
    asked = parser.parse_args(arguments)
    try:
        if asked.table:
            print(_table(asked.design))
            return 0
        array, made = _run(examples(asked.design, DEVICES[asked.device])[0], seed=asked.seed, detailed=asked.svg is not None)
        if asked.json:
            asked.json.write_text(made.json(), "utf-8")
    except (DesignError, KernelError, SimulationError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    print(made.table())
    if asked.svg:
        asked.svg.write_text(picture(array, f"{asked.design} on {asked.device}", asked.columns), "utf-8")
    return 0


def _run(program: Program, *, seed: int | None = None, detailed: bool = False) -> tuple[Array, Report]:
    configuration = verify(program)
    array = Array(configuration, seed=seed, detailed=detailed)
    rng = np.random.default_rng(0)
    names = {}
    for index, kind in enumerate(program.runtime.types):
        values = rng.standard_normal(kind.count).astype(np.float32)
        words = (narrow(values) if kind.dtype == "bf16" else values).view(np.uint32)
        names[array.memory.add(words)] = f"host buffer {index} {kind}"
    run = array.run(stream(configuration), list(names))
    return array, report(array, run, names)


def _table(design: str) -> str:
    """Sizes, bytes and predicted microseconds of all devices, as Markdown."""
    lines = [
        "| size | device | bytes | floor by bandwidth, us | predicted, us | array utilisation |",
        "|---|---|---|---|---|---|",
    ]
    for device in DEVICES.values():
        for size, program in sizes(design, device).items():
            try:
                _, made = _run(program)
            except DesignError as error:
                lines.append(f"| {size} | {device.name} | does not fit: {error} | | | |")
                continue
            time = f"{made.bandwidth_floor_us:.0f} | {made.predicted_us:.0f}"
            lines.append(f"| {size} | {device.name} | {sum(made.bytes.values())} | {time} | {made.array_utilisation:.0%} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
