"""The gate: layout, imports, style and types."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN = {"asr": ("xdna_dictate",), "designs": ("xdna_dictate", "xdna_asr")}


@pytest.mark.parametrize("root", ["daemon", "asr", "designs", "kernels"])
def test_source_roots_are_not_packages(root: str) -> None:
    assert not (ROOT / root / "__init__.py").exists()


@pytest.mark.parametrize("root", FORBIDDEN)
def test_imports_point_downwards(root: str) -> None:
    for path in (ROOT / root).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] in FORBIDDEN[root]], path


def test_the_program_never_imports_onnx() -> None:
    code = "import sys, xdna_dictate.recognition, xdna_dictate.file_command; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_help_needs_no_numpy() -> None:
    code = "import sys, xdna_dictate.cli as c; c.build_parser().format_help(); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("check", [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]], ids=" ".join)
def test_style_and_types(check: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *check], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
