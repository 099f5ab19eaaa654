"""Stands in for the package aie: accepts exactly the names, keywords and order of one generation, and refuses all else."""

import contextlib
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

TABLE = json.loads((Path(__file__).parent.parent / "data" / "iron-api.json").read_text())


def signature(params: list[list[Any]]) -> inspect.Signature:
    """The real signature of a function, from the table."""
    made = []
    for name, kind, default in params:
        value = inspect.Parameter.empty if default in ("required", None) else default
        made.append(inspect.Parameter(name, getattr(inspect.Parameter, kind.upper()), default=value))
    return inspect.Signature(made)


class Scalar:
    """An SSA value: what a kernel or a loop gets from a buffer."""


class Recorder:
    """One generation as importable modules; `calls` is what was called."""

    def __init__(self, generation: str) -> None:
        self.generation = generation
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.workers: list[Any] = []
        self.modules: dict[str, ModuleType] = {}
        self.core_depth = 0
        for module, names in TABLE[generation].items():
            for name, entry in names.items():
                made = self._function(name, entry) if entry["kind"] == "function" else self._class(name, entry)
                for place in {module, *(("aie.iron",) if name == "ObjectFifoHandle" else ())}:
                    setattr(self._module(place), name, made)

    @contextlib.contextmanager
    def installed(self) -> Iterator["Recorder"]:
        """As if mlir-aie of this generation were there, and nothing else of it."""
        kept = {name: module for name, module in sys.modules.items() if name == "aie" or name.startswith("aie.")}
        sys.modules.update(self.modules)
        try:
            yield self
        finally:
            for name in self.modules:
                sys.modules.pop(name, None)
            sys.modules.update(kept)

    def count(self, what: str) -> int:
        return sum(1 for name, _ in self.calls if name == what)

    def _module(self, name: str) -> ModuleType:
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            full = ".".join(parts[:depth])
            if full not in self.modules:
                self.modules[full] = ModuleType(full)
                self.modules[full].__path__ = []
                if depth > 1:
                    setattr(self.modules[".".join(parts[: depth - 1])], parts[depth - 1], self.modules[full])
        return self.modules[name]

    def _function(self, name: str, entry: dict[str, Any]) -> Any:
        def range_(*args: Any, **kwargs: Any) -> Iterator[Any]:
            signature(entry["params"]).bind(*args, **kwargs)
            assert isinstance(args[0], int | Scalar), f"range_({args[0]!r})"
            self.calls.append((name, {"count": args[0]}))
            yield Scalar()

        return range_

    def _class(self, name: str, entry: dict[str, Any]) -> Any:
        recorder = self

        def bind(where: str, params: list[list[Any]], args: Any, kwargs: Any) -> dict[str, Any]:
            bound = signature(params).bind(*args, **kwargs)
            bound.apply_defaults()
            recorder.calls.append((where, dict(bound.arguments)))
            return dict(bound.arguments)

        class Recorded:
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                self.told = bind(name, entry["params"], args, kwargs)
                if name == "Worker":
                    recorder.workers.append(self)

            def __getattr__(self, method: str) -> Any:
                if method not in entry.get("methods", {}):
                    raise AttributeError(f"{name} of generation {recorder.generation} has no {method}")

                def call(*args: Any, **kwargs: Any) -> Any:
                    told = bind(f"{name}.{method}", entry["methods"][method], args, kwargs)
                    return recorder.answer(self, f"{name}.{method}", told)

                return call

            def __call__(self, *args: Any) -> None:
                assert name == "Kernel", name
                recorder.kernel_call(self, args)

            def __getitem__(self, index: int) -> Scalar:
                assert name == "Buffer"
                assert isinstance(index, int)
                return Scalar()

            def __setitem__(self, index: int, value: Any) -> None:
                assert name == "Buffer"
                assert self.told["use_write_rtp"]
                recorder.calls.append(("Buffer.write", {"index": index, "value": value}))

        Recorded.__name__ = name
        return Recorded

    def kernel_call(self, kernel: Any, args: tuple[Any, ...]) -> None:
        """What IRON checks of a kernel call: how many arguments, and no numpy scalars."""
        assert len(args) == len(kernel.told["arg_types"]), kernel.told["name"]
        assert not any(isinstance(arg, np.generic) for arg in args)
        for arg, kind in zip(args, kernel.told["arg_types"], strict=True):
            assert (kind is np.int32) == isinstance(arg, int | Scalar), (kernel.told["name"], arg, kind)
        self.calls.append(("Kernel.__call__", {"name": kernel.told["name"]}))

    def answer(self, owner: Any, what: str, told: dict[str, Any]) -> Any:
        iron = self.modules["aie.iron"]
        match what:
            case "ObjectFifo.prod" | "ObjectFifo.cons":
                return iron.ObjectFifoHandle(owner, what.endswith("prod"), told["depth"])
            case "ObjectFifoHandle.forward":
                return iron.ObjectFifo(told["obj_type"], depth=told["depth"], name=told["name"])
            case "ObjectFifoHandle.split" | "ObjectFifoHandle.join":
                count = len(told["offsets"])
                assert count == len(told["obj_types"]) == len(told["names"])
                return [iron.ObjectFifo(kind, name=name) for kind, name in zip(told["obj_types"], told["names"], strict=True)]
            case "ObjectFifoHandle.acquire":
                assert 1 <= told["num_elem"] <= owner.told["depth"]
                return object() if told["num_elem"] == 1 else [object() for _ in range(told["num_elem"])]
            case "Runtime.sequence":
                return self._sequence(len(told["input_types"]))
            case "Runtime.task_group":
                return object()
            case "Runtime.inline_ops":
                told["inline_func"](*told["inline_args"])
            case "Program.resolve_program":
                return self._resolve(owner)
        return None

    @contextlib.contextmanager
    def _sequence(self, count: int) -> Iterator[Any]:
        yield object() if count == 1 else tuple(object() for _ in range(count))

    def _resolve(self, program: Any) -> str:
        for worker in self.workers:
            worker.told["core_fn"](*worker.told["fn_args"])
        if self.generation == "C":
            runtime = program.told["rt"].told
            runtime["seq_fn"](
                *(value if type(value).__name__ == "ObjectFifoHandle" else object() for value in runtime["fn_args"])
            )
        return f"module of {len(self.workers)} workers"
