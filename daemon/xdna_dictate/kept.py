"""The sound of dictations whose text has not been delivered: private files that outlive a crash.

A dictation is written from its first sample: to the login's runtime folder, which is memory, and after a minute to the state
folder, which survives a restart of the computer. Where neither can be written it stays in the program's memory.
"""

import contextlib
import logging
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xdna_asr.features import SAMPLE_RATE
from xdna_dictate.paths import kept_folder, running_folder

F32 = NDArray[np.float32]
log = logging.getLogger(__name__)

LONG_SECONDS: Final = 60.0
_TRIM_SECONDS: Final = 600.0
_DELIVERED: Final = ".delivered.wav"
_HEADER: Final = struct.Struct("<4sI4s4sIHHIIHH4sI")
_BLOCK: Final = 2 * SAMPLE_RATE


def _header(size: int) -> bytes:
    """A WAV header for `size` bytes of 16 kHz mono, 16 bit."""
    return _HEADER.pack(
        b"RIFF", size + 36 if size else 0, b"WAVE", b"fmt ", 16, 1, 1, SAMPLE_RATE, 2 * SAMPLE_RATE, 2, 16, b"data", size
    )


class KeptSound:
    """One dictation's sound, growing. Never raises: what can't be written stays in memory."""

    def __init__(self, name: str, *, in_memory: bool = False) -> None:
        self.name = name
        self._path: Path | None = None
        self._descriptor = -1
        self._memory: list[bytes] = []
        self._written = 0
        self._may_move = True
        folder = running_folder() or kept_folder()
        if not in_memory:
            self._open(folder / f"{name}.wav")

    def _open(self, path: Path) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            os.write(self._descriptor, _header(0))
            self._path = path
        except OSError as error:
            self._use_memory(error)

    def _use_memory(self, error: OSError) -> None:
        log.warning("sound is kept in memory only: %s can't be written (%s)", error.filename or "its file", error.strerror)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def append(self, samples: F32) -> None:
        """Take `samples` (mono, 16 kHz)."""
        data = (np.clip(samples, -1, 1) * 32_767).astype("<i2").tobytes()
        if self._descriptor < 0:
            self._memory.append(data)
            return
        if rest := self._write(data):
            self._memory.append(rest)

    def _write(self, data: bytes) -> bytes:
        """Write to the file; returns what did not fit."""
        try:
            while data:
                done = os.write(self._descriptor, data)
                self._written, data = self._written + done, data[done:]
            if self._written > LONG_SECONDS * _BLOCK and self._may_move:
                self._move()
        except OSError as error:
            self._use_memory(error)
        return data

    def _move(self) -> None:
        """From memory to disk, if that is possible."""
        self._may_move = False
        if self._path is None or self._path.parent == kept_folder():
            return
        target = kept_folder() / self._path.name
        part = target.with_suffix(".part")
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copy(self._path, part)
            part.chmod(0o600)
            moved = os.open(part, os.O_RDWR | os.O_APPEND)
            part.rename(target)
        except OSError as error:
            log.warning("a long dictation stays in the runtime folder: %s can't be written (%s)", part, error.strerror)
            part.unlink(missing_ok=True)
            return
        os.close(self._descriptor)
        self._path.unlink(missing_ok=True)
        self._descriptor, self._path = moved, target

    def played(self) -> None:
        """All of it was recognised again."""

    def trim(self, keep: int) -> None:
        """Forget all but the last `keep` samples, once that is worth it."""
        if self._descriptor < 0:
            held = b"".join(self._memory) if sum(map(len, self._memory)) > _TRIM_SECONDS * _BLOCK + 2 * keep else None
            self._memory = self._memory if held is None else [held[len(held) - 2 * keep :]]
        elif self._written - 2 * keep > _TRIM_SECONDS * _BLOCK:
            with contextlib.suppress(OSError):
                rest = os.pread(self._descriptor, 2 * keep, _HEADER.size + self._written - 2 * keep)
                os.ftruncate(self._descriptor, _HEADER.size)
                os.lseek(self._descriptor, _HEADER.size, os.SEEK_SET)
                self._written = os.write(self._descriptor, rest)

    @property
    def in_memory(self) -> bool:
        """Whether some of it is in this process only."""
        return bool(self._memory)

    def keep(self, *, delivered: bool) -> None:
        """No more will come; leave it for `newest`."""
        self._close()
        if delivered:
            self._rename_delivered()

    def _close(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.pwrite(self._descriptor, _header(self._written), 0)
            os.close(self._descriptor)
            self._descriptor = -1

    def _rename_delivered(self) -> None:
        """Make it the last delivered one."""
        if self._path is None:
            return
        with contextlib.suppress(OSError):
            for old in _files(_DELIVERED):
                old.unlink()
            self._path.rename(self._path.with_name(f"{self.name}{_DELIVERED}"))

    def delete(self) -> None:
        """It was delivered, or is not wanted."""
        self._close()
        if self._path:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
        self._path = None
        self._memory.clear()

    def blocks(self) -> Iterator[F32]:
        """All of it, in pieces of at most half a second."""
        if self._path:
            yield from read_blocks(self._path)
        for data in self._memory:
            yield _samples(data)


class SavedSound(KeptSound):
    """Sound that was kept before and is recognised again. It goes only when all of it was."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.name.removesuffix(".wav").removesuffix(".delivered"), in_memory=True)
        self._path = path
        self.heard = False
        """Whether all of it was played."""

    def append(self, samples: F32) -> None:
        """It is there already."""

    def played(self) -> None:
        self.heard = True

    def keep(self, *, delivered: bool) -> None:
        if delivered and self.heard:
            self._rename_delivered()

    def delete(self) -> None:
        if self.heard:
            super().delete()


def _samples(data: bytes) -> F32:
    return np.asarray(np.frombuffer(data, "<i2") * np.float32(1 / 32_767), np.float32)


def read_blocks(path: Path) -> Iterator[F32]:
    """The sound in a file of this module, however it ended, half a second at a time."""
    with path.open("rb") as file:
        file.seek(_HEADER.size)
        while data := file.read(_BLOCK // 2):
            yield _samples(data[: len(data) // 2 * 2])


def _files(suffix: str) -> list[Path]:
    folders = [folder for folder in (running_folder(), kept_folder()) if folder]
    return sorted((path for folder in folders for path in folder.glob(f"*{suffix}")), key=lambda path: path.name)


def undelivered() -> list[Path]:
    """Sound whose text never reached anybody, oldest first."""
    return [path for path in _files(".wav") if not path.name.endswith(_DELIVERED)]


def delivered() -> list[Path]:
    """Sound that is kept although its text was delivered."""
    return _files(_DELIVERED)
