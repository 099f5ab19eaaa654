"""Work that is not a dictation: transcribing files, downloading models. One download at a time, files one after the other."""

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import IO, Any, Final

from xdna_asr.errors import AsrError
from xdna_asr.registry import Model, find_model
from xdna_dictate.children import kill
from xdna_dictate.config import check
from xdna_dictate.engine import Engine, Events, Spawn
from xdna_dictate.errors import (
    AccessDenied,
    Busy,
    ConfigError,
    DictateError,
    Failed,
    FileNotFound,
    InvalidArgs,
    UnsupportedFormat,
)
from xdna_dictate.output.formats import FORMATS

log = logging.getLogger(__name__)

FILE_SECONDS: Final = 6 * 3600.0
_LOOK_SECONDS: Final = 1.0
_PROGRESS_STEP: Final = 0.01
PIPE_SECONDS: Final = 600.0
PIPE_BYTES: Final = 512 << 20
_SWITCHES: Final = frozenset({"words", "timestamps"})
_FILE_OPTIONS: Final = frozenset({"language", "languages", "hotwords", "words", "timestamps"})
DONE: Final = "done"
ERROR: Final = "error"


class Jobs:
    """Runs jobs beside the dictations and tells how far they are."""

    def __init__(self, engine: Engine, events: Events, spawn: Spawn) -> None:
        self._engine, self._events, self._spawn = engine, events, spawn
        self._count = 0

    @property
    def model(self) -> str:
        """Which model transcribes."""
        return self._engine.config.model

    def _name(self) -> str:
        self._count += 1
        return f"job-{self._count}"

    async def transcribe_file(self, path: str, form: str) -> str:
        """The transcript of the file at `path`. Raises FileNotFound, AccessDenied, UnsupportedFormat, or an AsrError."""
        if not path.startswith("/"):
            raise InvalidArgs(f"{path!r}: the path must be absolute, this service runs in another folder")
        try:
            await asyncio.to_thread(_look, path)
        except FileNotFoundError as error:
            raise FileNotFound(f"{path}: no such file") from error
        except PermissionError as error:
            raise AccessDenied(f"{path}: may not be read") from error
        except OSError as error:
            raise UnsupportedFormat(f"{path}: {(error.strerror or str(error)).lower()}") from error
        return await self.transcribe(path, path, form, {})

    async def transcribe(
        self, path: str, shown: str, form: str, options: Mapping[str, Any], progress: Callable[[float], None] | None = None
    ) -> str:
        """The transcript, as text of the format `form`, of the file at `path`, which messages call `shown`."""
        if form not in FORMATS:
            raise UnsupportedFormat(f"{form!r}: a transcript can be {', '.join(FORMATS)}")
        _check_options(options)
        config = self._engine.config
        merged = {"language": config.language, "languages": config.languages, "hotwords": config.hotwords, **options}
        reply = await self._engine.recognition.ask(
            self._engine.loading(), "transcribe", FILE_SECONDS, b"", progress, path=path, name=shown, format=form, options=merged
        )
        self._engine.rest()
        return str(reply.fields["text"])

    def transcribe_descriptor(self, descriptor: int, form: str, options: Mapping[str, Any], owner: str) -> str:
        """Transcribe what is open as `descriptor`, which this owns from now on; returns the job's name."""
        job = self._name()

        async def run() -> str:
            with contextlib.ExitStack() as stack:
                stack.callback(os.close, descriptor)
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    file = stack.enter_context(tempfile.TemporaryFile())
                    await _copy(os.dup(descriptor), file)
                    source = file.fileno()
                else:
                    source = descriptor
                path = f"/proc/{os.getpid()}/fd/{source}"
                return await self.transcribe(path, "audio", form, options, self._teller(job, "transcribe"))

        self._spawn(self._tell(job, run, owner))
        return job

    def download(self, model_id: str, owner: str) -> str:
        """Fetch a model; returns the job's name. Raises ModelMissing for an unknown one, Busy while another is fetched."""
        model = find_model(model_id)
        if self._engine.downloading:
            raise Busy("a model is being downloaded already")
        self._engine.downloading = True
        job = self._name()

        async def run() -> str:
            try:
                await self._fetch(model, self._teller(job, "download"))
            finally:
                self._engine.downloading = False
                self._events.changed("ModelState")
            return model_id

        self._events.changed("ModelState")
        self._spawn(self._tell(job, run, owner))
        return job

    async def _fetch(self, model: Model, tell: Callable[[float], None]) -> None:
        """Run the command line's own download beside this process."""
        scratch = self._engine.store.root / ".download" / model.id
        process = await asyncio.create_subprocess_exec(
            *_outside(),
            *(sys.executable, "-m", "xdna_dictate.cli", "models", "download", "--quiet", model.id),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        ending = asyncio.ensure_future(process.communicate())
        try:
            while not ending.done():
                await asyncio.wait((ending,), timeout=_LOOK_SECONDS)
                size = await asyncio.to_thread(_size, scratch)
                tell(min(size / (model.megabytes * 1e6), 0.99))
            _, said = ending.result()
        finally:
            kill(process)
        if process.returncode != 0:
            lines = said.decode("utf-8", "replace").strip().splitlines()
            raise Failed(lines[-1] if lines else "the download failed")

    def _teller(self, job: str, phase: str) -> Callable[[float], None]:
        """Tells progress, in steps worth telling."""
        told = -1.0

        def tell(fraction: float) -> None:
            nonlocal told
            if fraction - told >= _PROGRESS_STEP or fraction < 0:
                told = fraction
                self._events.progress(job, fraction, phase)

        return tell

    async def _tell(self, job: str, run: Callable[[], Any], owner: str) -> None:
        try:
            text = await run()
        except (AsrError, DictateError) as error:
            self._events.failed(job, error, owner)
            self._events.finished(job, ERROR, "", owner, asked_for=True)
        except Exception:
            self._events.failed(job, Failed("it went wrong; the service's log says more"), owner)
            self._events.finished(job, ERROR, "", owner, asked_for=True)
            raise
        else:
            self._events.finished(job, DONE, text, owner, asked_for=True)


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise InvalidArgs for an option that is unknown or of the wrong type."""
    if unknown := set(options) - _FILE_OPTIONS:
        raise InvalidArgs(f"unknown option {min(unknown)!r}; known: {', '.join(sorted(_FILE_OPTIONS))}")
    try:
        for name, value in options.items():
            if name in _SWITCHES and not isinstance(value, bool):
                raise InvalidArgs(f"{name} = {value!r}: must be true or false")
            if name not in _SWITCHES:
                check(name, value)
    except ConfigError as error:
        raise InvalidArgs(str(error)) from error


async def _copy(pipe: int, file: IO[bytes]) -> None:
    """All that comes through `pipe`, which this closes, to `file`."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(pipe, "rb"))
    try:
        async with asyncio.timeout(PIPE_SECONDS):
            while block := await reader.read(1 << 16):
                if file.tell() + len(block) > PIPE_BYTES:
                    raise UnsupportedFormat(f"more than {PIPE_BYTES >> 20} MB came through the pipe")
                file.write(block)
    except TimeoutError as error:
        raise UnsupportedFormat(f"the pipe did not end within {PIPE_SECONDS:g} s") from error
    finally:
        transport.close()
    file.flush()


def _look(path: str) -> None:
    """Raise the OSError that reading `path` would."""
    if stat.S_ISFIFO(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "is a pipe; hand it over with TranscribeFd")
    if stat.S_ISDIR(os.stat(path).st_mode):
        raise IsADirectoryError(21, os.strerror(21), path)
    with open(path, "rb"):
        pass


def _size(folder: Any) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0


def _outside() -> list[str]:
    """What runs a program outside this service's own restrictions, where it is a systemd unit: the unit has no network."""
    if "INVOCATION_ID" in os.environ and shutil.which("systemd-run"):
        return ["systemd-run", "--user", "--quiet", "--collect", "--pipe", "--wait", "--service-type=exec"]
    return []
