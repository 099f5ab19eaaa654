"""Calls checked like pybind11's: against the signatures that the real module shows."""

import functools
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

API: Final[dict[str, dict[str, Any]]] = json.loads((Path(__file__).parent / "pyxrt-2.25-api.json").read_text("utf-8"))["api"]
_Function = TypeVar("_Function", bound=Callable[..., Any])
_types: dict[str, type] = {}


def register(name: str, kind: type) -> None:
    """Let signatures use a class: by pybind's name and by C++'s."""
    _types[f"pyxrt.{name}"] = kind
    _types[f"xrt::{name}"] = kind


def native(name: str) -> Callable[[_Function], _Function]:
    """Decorates a method that gets its arguments as one of the overloads of `pyxrt.<name>` has them."""
    signatures = API[f"pyxrt.{name}"]["signatures"]
    overloads = [_parse(signature) for signature in signatures]

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            for parameters in overloads:
                bound = _bind(parameters, args, kwargs)
                if bound is not None:
                    return function(self, *bound)
            listed = "\n".join(f"    {index}. {text}" for index, text in enumerate(signatures, 1))
            given = ", ".join(
                [*(type(value).__name__ for value in args), *(f"{key}={type(v).__name__}" for key, v in kwargs.items())]
            )
            what = f"{name.rpartition('.')[2]}(): incompatible function arguments. The following argument types are supported:"
            raise TypeError(f"{what}\n{listed}\n\nInvoked with: {given}")

        call.__doc__ = "\n".join(signatures)
        return call  # type: ignore[return-value]

    return decorate


def _parse(signature: str) -> list[tuple[str, str]]:
    """(name, type) of each parameter after self."""
    inside = signature[signature.index("(") + 1 : signature.rindex(") ->")]
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(inside + ","):
        depth += letter in "[<("
        depth -= letter in "]>)"
        if letter == "," and depth == 0:
            parts.append(inside[start:index].strip())
            start = index + 1
    pairs = [part.partition(": ") for part in parts if part and not part.startswith("*")]
    return [(name, kind) for name, _, kind in pairs if name != "self"]


def _bind(parameters: list[tuple[str, str]], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
    """The arguments in order if they fit, else None."""
    if len(args) + len(kwargs) != len(parameters):
        return None
    values = list(args)
    for name, _ in parameters[len(args) :]:
        if name not in kwargs:
            return None
        values.append(kwargs[name])
    return values if all(_fits(value, kind) for value, (_, kind) in zip(values, parameters, strict=True)) else None


def _fits(value: Any, kind: str) -> bool:
    if kind in _types:
        return isinstance(value, _types[kind])
    if kind == "int":
        return hasattr(value, "__index__") and not isinstance(value, bool)
    if kind == "str":
        return isinstance(value, str)
    if kind == "Buffer":
        return _is_buffer(value)
    if kind.startswith("std::function"):
        return callable(value)
    known: dict[str, type] = {"dict": dict, "std::chrono": timedelta}
    return any(kind.startswith(start) and isinstance(value, wanted) for start, wanted in known.items())


def _is_buffer(value: Any) -> bool:
    try:
        memoryview(value)
    except TypeError:
        return False
    return True
