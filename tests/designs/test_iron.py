"""Every design under both generations of aie.iron, by a recorder with their exact signatures."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from iron_recorder import Recorder

from xdna_designs.catalog import CATALOG, examples
from xdna_designs.dataflow import Transfer
from xdna_designs.device import DEVICES
from xdna_designs.iron import GENERATIONS, Generation, emit
from xdna_designs.taps import DesignError

DESIGNS = Path(__file__).parents[2] / "designs"


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CATALOG)
def test_every_design_speaks_both_generations(name: str, device: str, generation: Generation) -> None:
    for program in examples(name, DEVICES[device]):
        with Recorder(generation).installed() as recorder:
            assert str(emit(program, generation)) == f"module of {len(program.workers)} workers"
        fills = sum(isinstance(order, Transfer) and order.kind == "fill" for order in program.runtime.orders)
        assert recorder.count("Runtime.fill" if generation == "A" else "ObjectFifoHandle.fill") == fills
        assert recorder.count("Kernel.__call__") >= len(program.workers)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_referee_designs_too(generation: Generation) -> None:
    from referee import BUILD

    for build in BUILD.values():
        with Recorder(generation).installed():
            emit(build(), generation)


def test_the_recorder_refuses_what_a_generation_does_not_have() -> None:
    recorder = Recorder("C")
    iron = recorder.modules["aie.iron"]
    with pytest.raises(TypeError):
        iron.ObjectFifo(object(), 2)
    with pytest.raises(TypeError):
        iron.ObjectFifo(object(), dims_to_stream=[])
    with pytest.raises(AttributeError):
        iron.Runtime(lambda: None).sequence()
    with pytest.raises(TypeError):
        Recorder("A").modules["aie.iron"].Worker(lambda: None, tile=object())


def test_only_one_file_imports_the_toolchain() -> None:
    for path in DESIGNS.rglob("*.py"):
        names = {
            alias.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import) for alias in node.names
        } | {node.module or "" for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)}
        assert not any(name.split(".")[0] == "aie" for name in names), path
        assert path.name == "iron.py" or '"aie.' not in path.read_text(), path


def test_without_the_toolchain_one_line_says_so() -> None:
    with pytest.raises(DesignError, match="generation C is not installed"):
        emit(examples("softmax", DEVICES["npu2"])[0], "C")
    command = [sys.executable, "-m", "xdna_designs", "emit", "softmax", "--generation", "A"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
