"""The cost model: constants with sources, and a report that is labelled as predicted wherever it is shown."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from npusim.__main__ import main
from xdna_designs import cost
from xdna_designs.catalog import CATALOG, examples
from xdna_designs.device import DEVICES
from xdna_designs.program import Call, steps_of


def test_every_constant_has_a_unit_and_a_source() -> None:
    assert all(constant.value > 0 and constant.unit and len(constant.source) > 20 for constant in cost.CONSTANTS.values())


def test_every_kernel_that_a_design_calls_has_a_cost() -> None:
    for name in CATALOG:
        for program in examples(name, DEVICES["npu2"]):
            called = {step.kernel.name for worker in program.workers for step in steps_of(worker.body) if isinstance(step, Call)}
            assert called <= set(cost.CYCLES)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CATALOG)
def test_report_and_picture(name: str, device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told, drawn = tmp_path / "report.json", tmp_path / "run.svg"
    assert main([name, "--device", device, "--json", str(told), "--svg", str(drawn)]) == 0
    assert f"{name} on {device}: predicted, not measured" in capsys.readouterr().out
    figures = json.loads(told.read_text())
    program = examples(name, DEVICES[device])[0]
    assert figures["predicted"] is True
    assert figures["reconfigurations"] == figures["context_switches"] == 0
    assert figures["predicted_us"] > figures["bandwidth_floor_us"]
    assert 0 < figures["array_utilisation"] < 1
    assert all(0 <= share <= 1.001 for share in figures["busy"].values())
    moved = {int(label.split()[2]): count for label, count in figures["bytes"].items()}
    for index, kind in enumerate(program.runtime.types):
        assert moved[index] >= kind.nbytes or name == "decoder"  # reads a part of its arena and caches
    image = ElementTree.fromstring(drawn.read_text())
    texts = [element.text or "" for element in image.iter("{http://www.w3.org/2000/svg}text")]
    assert any("predicted, not measured" in text for text in texts)
    assert sum(text.startswith("core (") for text in texts) == len(program.workers)


def test_a_seeded_run_moves_the_same_bytes(tmp_path: Path) -> None:
    told = [tmp_path / "a", tmp_path / "b"]
    assert main(["softmax", "--json", str(told[0])]) == 0
    assert main(["softmax", "--seed", "3", "--json", str(told[1])]) == 0
    first, second = (json.loads(path.read_text()) for path in told)
    assert first["bytes"] == second["bytes"]
    assert first["kernel_calls"] == second["kernel_calls"]
