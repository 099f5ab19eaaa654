"""The settings as they are now: the file, flags over it, what was chosen over D-Bus on top; follows the file as it changes."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from xdna_dictate.config import Config, read_config
from xdna_dictate.errors import ConfigError, InvalidArgs

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 2.0


class Settings:
    """Holds the present `Config`; raises ConfigError if the file is wrong at the start, later it keeps what it had."""

    def __init__(self, path: Path, flags: Mapping[str, Any]) -> None:
        self._path, self._flags = path, dict(flags)
        self._chosen: dict[str, Any] = {}
        self._stamp = self._stat()
        self._read = read_config(path)
        self.now = self._read.with_values(self._flags)

    @property
    def effective(self) -> Config:
        """What holds: the chosen profile laid over the settings, and over both what was chosen by hand."""
        chosen = {name: value for name, value in self._chosen.items() if name != "profile"}
        return self.now.in_profile().with_values(chosen)

    def choose(self, name: str, value: Any) -> None:
        """Change a setting until the service ends. Raises InvalidArgs."""
        try:
            self.now = self._read.with_values({**self._flags, **self._chosen, name: value})
        except ConfigError as error:
            raise InvalidArgs(str(error)) from error
        self._chosen[name] = value

    def reload(self) -> bool:
        """Read the file again; returns whether anything changed. A setting changed in the file is no longer a chosen one."""
        try:
            fresh = read_config(self._path)
            chosen = {name: value for name, value in self._chosen.items() if getattr(fresh, name) == getattr(self._read, name)}
            now = fresh.with_values({**self._flags, **chosen})
        except ConfigError as error:
            log.error("the settings stay as they were: %s", error)  # noqa: TRY400  a person's mistake, not ours
            return False
        changed = now != self.now
        self._read, self._chosen, self.now = fresh, chosen, now
        return changed

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` whenever the file has changed; for ever."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            stamp = self._stat()
            if stamp != self._stamp:
                self._stamp = stamp
                if self.reload():
                    on_change()

    def _stat(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino
