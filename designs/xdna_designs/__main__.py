"""python -m xdna_designs: list the designs, check one, or emit one for the real compiler."""

import argparse
import sys

from xdna_designs.catalog import CATALOG, examples
from xdna_designs.checks import problems
from xdna_designs.device import DEVICES
from xdna_designs.instructions import stream
from xdna_designs.iron import GENERATIONS, emit
from xdna_designs.lowering import lower
from xdna_designs.taps import DesignError


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, 1 for a design with problems, 2 for what can't be done."""
    parser = argparse.ArgumentParser(prog="python -m xdna_designs", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the designs there are")
    for name, what in (("check", "run the twenty static checks"), ("emit", "print MLIR, with mlir-aie installed")):
        command = commands.add_parser(name, help=what)
        command.add_argument("design", choices=CATALOG)
        command.add_argument("--device", choices=DEVICES, default="npu2")
        command.add_argument("--parameter", action="append", default=[], metavar="NAME=NUMBER", help="for example width=768")
        if name == "emit":
            command.add_argument(
                "--generation", choices=GENERATIONS, default="C", help="A: mlir-aie 1.2 of March 2026, C: 1.4.4 and newer"
            )
    asked = parser.parse_args(arguments)
    try:
        return _run(asked)
    except (DesignError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2


def _run(asked: argparse.Namespace) -> int:
    if asked.command == "list":
        print("\n".join(CATALOG))
        return 0
    pairs = (text.partition("=") for text in asked.parameter)
    programs = examples(asked.design, DEVICES[asked.device], **{name: int(value) for name, _, value in pairs})
    if asked.command == "emit":
        print(emit(programs[0], asked.generation))
        return 0
    found = [problem for program in programs for problem in problems(program)]
    print("\n".join(found) or f"{asked.design} passes on {asked.device}: {len(stream(lower(programs[0])))} instruction words")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
