"""Prints the API of a module in the form of designs/npusim/pyxrt-2.25-api.json, or compares it with that file.

Needs nothing but the module, so that it also runs where the real pyxrt is: python3 pyxrt_api.py pyxrt [API.json]
"""

import enum
import importlib
import json
import sys
from pathlib import Path
from typing import Any


def members_of(kind: type) -> "list[str] | None":
    """Names of an enum, pybind's or Python's."""
    if issubclass(kind, enum.Enum):
        return [member.name for member in kind]
    found = getattr(kind, "__members__", None)
    return list(found) if isinstance(found, dict) else None


def signatures_of(function: Any) -> "list[str]":
    """The overloads that a docstring shows."""
    lines = (getattr(function, "__doc__", None) or "").splitlines()
    found = [line.strip().partition(". ")[2] if line.strip()[:1].isdigit() else line.strip() for line in lines]
    return [
        line
        for line in found
        if "(" in line and ") ->" in line and not line.startswith(("Overloaded",)) and "*args, **kwargs" not in line
    ]


def api_of(module: Any, prefix: str = "pyxrt") -> "dict[str, Any]":
    """Names, overloads and enum members."""
    found: dict[str, Any] = {}
    for name in sorted(vars(module)):
        value = getattr(module, name)
        if name.endswith("_vector"):
            continue  # what pybind makes of std::vector
        if name.startswith("_") or (
            callable(value) and getattr(value, "__module__", None) not in (module.__name__, "pyxrt", "pyxrt.ext")
        ):
            continue
        full = f"{prefix}.{name}"
        if isinstance(value, type):
            found.update(_class_api(value, full))
        elif type(value).__name__ == "module" and value.__name__.startswith("pyxrt."):
            found.update(api_of(value, full))
        elif callable(value):
            found[full] = {"kind": "callable", "signatures": signatures_of(value)}
    return found


def _class_api(kind: type, full: str) -> "dict[str, Any]":
    members = members_of(kind)
    if members is not None:
        return {full: {"kind": "enum", "members": members}}
    found: dict[str, Any] = {full: {"kind": "class"}}
    for name in sorted(dir(kind)):
        if name.startswith("_") and name not in ("__init__", "__call__"):
            continue
        value = getattr(kind, name)
        if isinstance(value, type):
            if name != "__class__":
                found.update(_class_api(value, f"{full}.{name}"))
        elif callable(value) and signatures_of(value):
            found[f"{full}.{name}"] = {"kind": "callable", "signatures": signatures_of(value)}
    return found


def differences(mine: "dict[str, Any]", wanted: "dict[str, Any]") -> "tuple[list[str], list[str]]":
    """(what differs or is not in `wanted`, what is missing from `mine`). An enum's own constructor is not compared."""
    wrong = [name for name, entry in mine.items() if name not in wanted or entry != wanted[name]]
    missing = [
        name
        for name, entry in wanted.items()
        if name not in mine and entry["kind"] != "value" and "arg0: value" not in str(entry)
    ]
    enums = {name for name, entry in wanted.items() if entry["kind"] == "enum"}
    return wrong, [name for name in missing if name.rpartition(".")[0] not in enums]


if __name__ == "__main__":
    own = api_of(importlib.import_module(sys.argv[1]))
    if len(sys.argv) == 2:
        print(json.dumps({"api": own}, indent=1))
    else:
        wrong, missing = differences(own, json.loads(Path(sys.argv[2]).read_text())["api"])
        print("\n".join([f"differs: {name}" for name in wrong] + [f"missing: {name}" for name in missing]) or "the same")
        sys.exit(1 if wrong or missing else 0)
