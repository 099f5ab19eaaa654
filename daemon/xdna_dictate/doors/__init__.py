"""Doors for programs that speak other protocols: loopback only, and closed unless the settings open them."""

import asyncio
import importlib
import logging
import os
import tempfile
from typing import IO, Final

from xdna_dictate.config import Config
from xdna_dictate.jobs import Jobs

log = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
LARGEST: Final = 512 << 20
"""Bytes of one recording; an hour of CD quality and more."""


async def open_doors(config: Config, jobs: Jobs) -> None:
    """Serve on the ports that the settings name, for ever. A door that can't be opened is logged and stays shut."""
    ports = {"http": config.http_port, "wyoming": config.wyoming_port}
    await asyncio.gather(*(_open(protocol, port, jobs) for protocol, port in ports.items() if port))


async def _open(protocol: str, port: int, jobs: Jobs) -> None:
    try:
        door = await asyncio.to_thread(importlib.import_module, f"xdna_dictate.doors.{protocol}")
        await door.serve(HOST, port, jobs)
    except ImportError as error:
        hint = "pip install 'xdna-dictate[doors]'"
        log.warning("%s_port is set, but the package %s is missing; get it with: %s", protocol, error.name, hint)
    except OSError as error:
        log.warning("%s_port: can't be opened (%s)", protocol, error.strerror or error)


def private_file() -> IO[bytes]:
    """A file without a name: gone with the request, whatever happens."""
    return tempfile.TemporaryFile()


def path_of(file: IO[bytes]) -> str:
    """Where the recogniser's process finds `file`."""
    file.flush()
    return f"/proc/{os.getpid()}/fd/{file.fileno()}"
