"""An engine in the test's own event loop: real recogniser, real settings, microphones that do what a test says."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from xdna_dictate.audio.sources import Source
from xdna_dictate.dictation import Dictation
from xdna_dictate.engine import Engine
from xdna_dictate.settings import Settings


class Recorder:
    """Events, as they were told."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.partials: list[tuple[str, str]] = []
        self.finishes: list[tuple[str, str, str]] = []
        self.failures: list[tuple[str, Exception]] = []
        self.speeches: list[bool] = []
        self.states: list[str] = []
        self.inserts: list[tuple[str, int, str, str]] = []
        self.infos: list[dict[str, Any]] = []
        self.engine: Engine | None = None

    def changed(self, *names: str) -> None:
        if self.engine and "State" in names and self.states[-1:] != [self.engine.state]:
            self.states.append(self.engine.state)

    def partial(self, _dictation: Dictation, stable: str, unstable: str) -> None:
        self.partials.append((stable, unstable))

    def text(self, _dictation: Dictation, text: str, info: dict[str, Any]) -> None:
        self.texts.append(text)
        self.infos.append(info)

    def speech(self, _dictation: Dictation, *, started: bool) -> None:
        self.speeches.append(started)

    def failed(self, name: str, error: Exception, owner: str = "") -> None:
        self.failures.append((name, error))

    def finished(self, name: str, reason: str, text: str, owner: str = "", *, asked_for: bool = False) -> None:
        self.finishes.append((name, str(reason), text))

    def progress(self, job: str, fraction: float, phase: str) -> None: ...

    def level(self, rms_dbfs: float, peak_dbfs: float) -> None: ...

    def insert(self, owner: str, number: int, text: str, preedit: str) -> None:
        self.inserts.append((owner, number, text, preedit))


@contextlib.asynccontextmanager
async def running(
    folder: Path, open_source: Callable[[str], Awaitable[Source]], **flags: Any
) -> AsyncIterator[tuple[Engine, Recorder]]:
    """An engine and what it tells; closed at the end."""
    os.environ.update(XDG_RUNTIME_DIR=str(folder / "run"), XDG_STATE_HOME=str(folder / "state"))
    (folder / "run").mkdir(exist_ok=True)
    recorder, failures, tasks = Recorder(), list[BaseException](), set[asyncio.Task[None]]()

    def note(done: "asyncio.Task[None]") -> None:
        if not done.cancelled() and (error := done.exception()):
            failures.append(error)

    def spawn(coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(coroutine)
        tasks.add(task)
        task.add_done_callback(note)
        return task

    engine = Engine(Settings(folder / "config.toml", flags), recorder, spawn, open_source)
    recorder.engine = engine
    try:
        yield engine, recorder
    finally:
        await engine.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert not failures, failures
