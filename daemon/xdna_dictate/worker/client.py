"""The daemon's side of the worker: starts it, asks it, notices when it crashes or hangs, starts it anew."""

import asyncio
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from xdna_asr.errors import AsrError, BackendUnavailable, ModelMissing, UnsupportedLanguage
from xdna_dictate.children import kill
from xdna_dictate.errors import AudioError, Cancelled, Failed
from xdna_dictate.log import STDERR
from xdna_dictate.worker.messages import HEADER, Message, decode

log = logging.getLogger(__name__)

COMMAND: Final = (sys.executable, "-m", "xdna_dictate.worker")
LOAD_SECONDS: Final = 600.0
"""The first load of a large model rounds its weights."""
_ERRORS: Final[dict[str, type[Exception]]] = {
    "ModelMissing": ModelMissing,
    "BackendUnavailable": BackendUnavailable,
    "UnsupportedLanguage": UnsupportedLanguage,
    "UnsupportedFormat": AudioError,
    "InvalidArgs": Cancelled,
}


class WorkerLost(Exception):
    """The worker crashed, was killed or did not answer in time."""


class Superseded(Exception):
    """A draft gave way to something more urgent."""


@dataclass(frozen=True)
class Loading:
    """What to load, and how."""

    model: str
    backend: str
    precision: str
    threads: int


@dataclass(frozen=True)
class Loaded:
    """What was loaded, where it runs, and why there."""

    model: str
    backend: str
    detail: str


@dataclass
class _Request:
    reply: "asyncio.Future[Message]"
    progress: Callable[[float], None] | None = None


@dataclass
class WorkerProcess:
    """One running worker."""

    process: asyncio.subprocess.Process
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    requests: dict[int, _Request] = field(default_factory=dict)
    count: int = 0

    @classmethod
    async def start(cls) -> "WorkerProcess":
        """A fresh worker without a model; `listen` must run beside it."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*COMMAND, stdin=pipe, stdout=pipe, stderr=STDERR)
        if process.stdin is None or process.stdout is None:
            raise WorkerLost("no pipes to the worker")
        return cls(process, process.stdin, process.stdout)

    async def listen(self) -> None:
        """Hand replies to whoever waits for them until the worker ends; then they get WorkerLost."""
        try:
            while True:
                text, samples = HEADER.unpack(await self.stdout.readexactly(HEADER.size))
                self._receive(decode(await self.stdout.readexactly(text), await self.stdout.readexactly(samples)))
        except asyncio.IncompleteReadError:
            pass
        finally:
            await self.end()

    def _receive(self, message: Message) -> None:
        request = self.requests.get(message.fields["id"])
        if request is None or request.reply.done():
            return
        if message.kind == "progress":
            if request.progress:
                request.progress(message.fields["fraction"])
        elif message.kind == "failed":
            request.reply.set_exception(_error(message.fields["error"], message.fields["message"]))
        else:
            request.reply.set_result(message)

    async def ask(
        self, kind: str, limit: float | None, samples: bytes = b"", progress: Callable[[float], None] | None = None, **fields: Any
    ) -> Message:
        """Send a request and wait for its reply. Raises the error it was answered with, or WorkerLost."""
        if self.process.returncode is not None:
            raise WorkerLost("the worker has ended")
        self.count += 1
        number = self.count
        self.requests[number] = request = _Request(asyncio.get_running_loop().create_future(), progress)
        try:
            async with asyncio.timeout(limit):
                self.stdin.write(Message(kind, {"id": number, **fields}, samples).encode())
                await self.stdin.drain()
                return await request.reply
        except (TimeoutError, OSError) as error:
            await self.end()
            raise WorkerLost(f"no answer within {limit} s" if isinstance(error, TimeoutError) else str(error)) from error
        except asyncio.CancelledError:
            if self.process.returncode is None:
                self.stdin.write(Message("cancel", {"id": number}).encode())
            raise
        finally:
            del self.requests[number]

    async def end(self) -> None:
        """Kill the process; nothing in it is worth a farewell."""
        if self.process.returncode is None:
            kill(self.process)
        await self.process.wait()
        for request in self.requests.values():
            if not request.reply.done():
                request.reply.set_exception(WorkerLost("the worker has ended"))


def _error(name: str, message: str) -> Exception:
    if name == "Superseded":
        return Superseded()
    return _ERRORS.get(name, Failed)(message)


class Recognition:
    """Recognition as a service to the daemon: loads on demand, survives its worker, unloads."""

    def __init__(self, spawn: Callable[[Any], "asyncio.Task[None]"], on_change: Callable[[], None]) -> None:
        self._spawn, self._on_change = spawn, on_change
        self._worker: WorkerProcess | None = None
        self._lock = asyncio.Lock()
        self._has: Loading | None = None
        self.loading = False
        self.loaded: Loaded | None = None
        self.users = 0

    async def load(self, wanted: Loading) -> WorkerProcess:
        """A worker with the model `wanted`. Raises AsrError, or WorkerLost."""
        async with self._lock:
            running = self._worker is not None and self._worker.process.returncode is None
            if running and self._worker and self.loaded and self._has == wanted:
                return self._worker
            if not running or self._worker is None:
                self._worker = await WorkerProcess.start()
                self._spawn(self._watch(self._worker))
            self.loading, self.loaded = True, None
            self._on_change()
            try:
                reply = await self._worker.ask("load", LOAD_SECONDS, loading=wanted.__dict__)
                self.loaded, self._has = Loaded(**{key: reply.fields[key] for key in ("model", "backend", "detail")}), wanted
                log.info("%s on %s (%s)", self.loaded.model, self.loaded.backend, self.loaded.detail)
            except AsrError:
                await self._worker.end()
                raise
            finally:
                self.loading = False
                self._on_change()
            return self._worker

    async def ask(
        self,
        wanted: Loading,
        kind: str,
        limit: float | None,
        samples: bytes = b"",
        progress: Callable[[float], None] | None = None,
        **fields: Any,
    ) -> Message:
        """One request to a worker with `wanted` loaded, made again by a fresh one if the first is lost.

        Raises AsrError or DictateError; Failed if the second worker is lost too.
        """
        self.users += 1
        try:
            try:
                return await (await self.load(wanted)).ask(kind, limit, samples, progress, loading=wanted.__dict__, **fields)
            except WorkerLost as loss:
                log.warning("recognition was lost (%s), trying again", loss)
                return await (await self.load(wanted)).ask(kind, limit, samples, progress, loading=wanted.__dict__, **fields)
        except WorkerLost as loss:
            raise Failed(
                "recognition failed twice on this piece of speech; its sound is kept, try: xdna-dictate recover"
            ) from loss
        finally:
            self.users -= 1

    async def unload(self) -> None:
        """Give the model's memory back."""
        if self._worker:
            await self._worker.end()

    async def _watch(self, worker: WorkerProcess) -> None:
        await worker.listen()
        if self._worker is worker:
            self._worker = self.loaded = None
            self._on_change()
