"""python -m npusim: run a design in the simulator on random data and print what it would cost."""

import argparse
import sys
from pathlib import Path

import numpy as np

from npusim.array import Array
from npusim.kernels import KernelError
from npusim.memory import SimulationError
from npusim.report import picture, report
from xdna_designs.bf16 import narrow
from xdna_designs.catalog import CATALOG, examples
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
    asked = parser.parse_args(arguments)
    try:
        array, text = _run(examples(asked.design, DEVICES[asked.device])[0], asked)
    except (DesignError, KernelError, SimulationError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    print(text)
    if asked.svg:
        asked.svg.write_text(picture(array, f"{asked.design} on {asked.device}", asked.columns), "utf-8")
    return 0


def _run(program: Program, asked: argparse.Namespace) -> tuple[Array, str]:
    configuration = verify(program)
    array = Array(configuration, seed=asked.seed, detailed=asked.svg is not None)
    rng = np.random.default_rng(0)
    names = {}
    for index, kind in enumerate(program.runtime.types):
        values = rng.standard_normal(kind.count).astype(np.float32)
        words = (narrow(values) if kind.dtype == "bf16" else values).view(np.uint32)
        names[array.memory.add(words)] = f"host buffer {index} {kind}"
    run = array.run(stream(configuration), list(names))
    made = report(array, run, names)
    if asked.json:
        asked.json.write_text(made.json(), "utf-8")
    return array, made.table()


if __name__ == "__main__":
    sys.exit(main())
