"""`xdna-dictate listen`: text in a terminal as it is spoken."""

import argparse
import asyncio
import contextlib
import shutil
import signal
import sys
from typing import Any, Final

from xdna_dictate.client import Client
from xdna_dictate.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_UNAVAILABLE, BusError
from xdna_dictate.service.bus import CallError, variant

_METER: Final = 24
_METER_FLOOR: Final = -60.0
_INTERRUPT: Final = "interrupt"


async def listen(client: Client, arguments: argparse.Namespace) -> int:
    """Finished text on standard output until Ctrl-C; a level meter and unfinished text on a terminal's last line."""
    queue = await client.signals("Partial", "Text", "Finished", "Failed", "Level")
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, queue.put_nowait, (_INTERRUPT, []))
    session = await client.call("StartWithOptions", "a{sv}", {"mode": variant(arguments.mode), "bind-to-caller": variant(True)})
    shown = _Shown()
    if shown.on_terminal:
        await client.call("WatchLevel", "b", True)
    ending = False
    while shown.code is None:
        member, body = await queue.get()
        if member == _INTERRUPT:
            with contextlib.suppress(CallError):
                await client.call("Cancel" if ending else "Stop")
            ending = True
        elif member == "":
            shown.clear()
            raise BusError("the daemon has ended; what was said is kept, try: xdna-dictate recover")
        elif member == "Level" or body[0] == session:
            getattr(shown, member.lower())(*body)
    return shown.code


class _Shown:
    """What is on the terminal; one method a signal."""

    def __init__(self) -> None:
        self.on_terminal = sys.stderr.isatty()
        self.code: int | None = None
        self._failed = False
        self._finished_letters = 0
        self._meter, self._unfinished = "", ""

    def level(self, rms_dbfs: float, _peak_dbfs: float) -> None:
        filled = round(_METER * (1 - max(min(rms_dbfs, 0.0), _METER_FLOOR) / _METER_FLOOR))
        self._meter = "▕" + "█" * filled + " " * (_METER - filled) + "▏"
        self._draw()

    def partial(self, _session: str, _revision: int, stable: str, unstable: str) -> None:
        self._unfinished = (stable + unstable)[self._finished_letters :].strip()
        self._draw()

    def text(self, _session: str, _segment: int, text: str, _info: dict[str, Any]) -> None:
        self.clear()
        print(text, flush=True)
        self._finished_letters += len(text) + 1
        self._unfinished = ""

    def failed(self, _session: str, _error: str, message: str) -> None:
        self.clear()
        print(f"xdna-dictate: {message}", file=sys.stderr)
        self._failed = True

    def finished(self, _session: str, reason: str, _text: str) -> None:
        self.clear()
        if reason == "no-speech" and not self._failed:
            print("xdna-dictate: no speech", file=sys.stderr)
        self.code = EXIT_UNAVAILABLE if self._failed else EXIT_INTERRUPTED if reason == "cancelled" else EXIT_OK

    def clear(self) -> None:
        """Leave nothing behind on the last line."""
        if self.on_terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _draw(self) -> None:
        if self.on_terminal:
            room = shutil.get_terminal_size().columns - len(self._meter) - 2
            text = self._unfinished[-room:] if room > 0 else ""
            print(f"\r\033[K{self._meter} {text}", end="", file=sys.stderr, flush=True)
