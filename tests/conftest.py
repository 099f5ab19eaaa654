"""What the tests share: recordings, models, the command line."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from xdna_asr.errors import ModelError
from xdna_asr.registry import find_model
from xdna_asr.runtime.select import choose
from xdna_asr.store import InstalledModel, ModelStore
from xdna_asr.transcribe import Transcriber
from xdna_asr.window_decoder import Options
from xdna_dictate.paths import models_folder
from xdna_dictate.recognition import open_recogniser

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Open = Callable[..., Transcriber]


@pytest.fixture(scope="session")
def store() -> ModelStore:
    """The user's own store, with the models the tests need."""
    store = ModelStore(models_folder())
    for model in ("whisper-tiny.en", "whisper-base"):
        try:
            store.open(model)
        except ModelError:
            store.install(find_model(model), quiet=True)
    return store


@pytest.fixture(scope="session")
def tiny(store: ModelStore) -> InstalledModel:
    return store.open("whisper-tiny.en")


@pytest.fixture
def transcriber(store: ModelStore) -> Open:
    """Opens a model: transcriber("whisper-tiny.en", language="en")."""

    def opened(model: str = "whisper-tiny.en", precision: str = "int8", **options: object) -> Transcriber:
        made = Options(**options)  # type: ignore[arg-type]
        return open_recogniser(store, model, choose("cpu"), precision=precision, threads=2).transcriber(made)

    return opened


@pytest.fixture
def cli(store: ModelStore) -> Run:
    """Runs the program in a process of its own."""
    assert store

    def run(
        *arguments: str, cwd: Path | None = None, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [sys.executable, "-m", "xdna_dictate.cli", *arguments],
            cwd=cwd,
            input=stdin,
            env={**os.environ, **(env or {})},
            capture_output=True,
            timeout=120,
            check=False,
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))

    return run
