"""One process at a time in a folder."""

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from xdna_asr.errors import ModelError

_POLL_SECONDS: Final = 0.1


@contextlib.contextmanager
def locked(folder: Path, patience: float) -> Iterator[None]:
    """Hold the lock of `folder`, which is made if need be; the system frees it when the process ends, however it ends.

    Raises ModelError if another process still holds it after `patience` seconds.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / ".lock").open("a") as file:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise ModelError(f"{folder}: another xdna-dictate is at work there; wait for it or end it") from error
                time.sleep(_POLL_SECONDS)
        yield
