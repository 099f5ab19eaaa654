"""Commands that ask the daemon: thin, without numpy. The bus starts the daemon where activation is installed."""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from xdna_dictate.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_UNAVAILABLE, BusError
from xdna_dictate.service.bus import DBUS, NAME, PATH, PROPERTIES, Bus, CallError, variant

_METER: Final = 24
_METER_FLOOR: Final = -60.0
_RECOVER_SECONDS: Final = 6 * 3600.0
_NOT_RUNNING: Final = (
    "the daemon is not running and the bus does not know how to start it; run: xdna-dictate daemon, or once: xdna-dictate install"
)


class Client:
    """Calls and signals of the service."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def call(self, member: str, signature: str = "", *body: Any, limit: float | None = 25.0) -> Any:
        """Call a method of the main interface; its result, if it has one. Raises BusError."""
        return await self._call(NAME, member, signature, body, limit)

    async def properties(self) -> dict[str, Any]:
        """Every property."""
        values: dict[str, Any] = await self._call(PROPERTIES, "GetAll", "s", (NAME,), 25.0)
        return values

    async def _call(self, interface: str, member: str, signature: str, body: tuple[Any, ...], limit: float | None) -> Any:
        try:
            result = await self._bus.call(NAME, PATH, interface, member, signature, *body, limit=limit)
        except CallError as error:
            if error.name in ("ServiceUnknown", "NameHasNoOwner"):
                raise BusError(_NOT_RUNNING) from error
            raise
        return result[0] if result else None

    async def signals(self, *members: str) -> "asyncio.Queue[tuple[str, list[Any]]]":
        """Signals of the main interface as they come; ("", []) when the daemon leaves the bus."""
        queue: asyncio.Queue[tuple[str, list[Any]]] = asyncio.Queue()
        for member in members:
            await self._bus.watch(
                f"sender='{NAME}',interface='{NAME}'",
                member,
                lambda _, body, member=member: queue.put_nowait((member, body)),  # type: ignore[misc]
            )

        def on_owner(_sender: str, body: list[Any]) -> None:
            if body[0] == NAME and not body[2]:
                queue.put_nowait(("", []))

        await self._bus.watch(f"sender='{DBUS}',interface='{DBUS}',arg0='{NAME}'", "NameOwnerChanged", on_owner)
        return queue


@contextlib.asynccontextmanager
async def _connected() -> AsyncIterator[Client]:
    bus = await Bus.connect()
    try:
        yield Client(bus)
    finally:
        bus.close()


def run_client(arguments: argparse.Namespace) -> int:
    """Carry out one command; returns the exit code. Raises BusError."""
    command: Callable[[Client, argparse.Namespace], Awaitable[int]] = _COMMANDS[arguments.command]

    async def run() -> int:
        async with _connected() as client:
            return await command(client, arguments)

    return asyncio.run(run())


async def _toggle(client: Client, _arguments: argparse.Namespace) -> int:
    print(await client.call("Toggle"))
    return EXIT_OK


async def _start(client: Client, arguments: argparse.Namespace) -> int:
    options = {
        "mode": arguments.mode,
        "language": arguments.language,
        "model": arguments.model,
        "max-seconds": arguments.max_seconds,
    }
    given = {name: variant(value) for name, value in options.items() if value is not None}
    print(await client.call("StartWithOptions", "a{sv}", given))
    return EXIT_OK


async def _stop(client: Client, _arguments: argparse.Namespace) -> int:
    print(await client.call("Stop"))
    return EXIT_OK


async def _cancel(client: Client, _arguments: argparse.Namespace) -> int:
    await client.call("Cancel")
    return EXIT_OK


async def _press(client: Client, _arguments: argparse.Namespace) -> int:
    await client.call("Press")
    return EXIT_OK


async def _release(client: Client, _arguments: argparse.Namespace) -> int:
    await client.call("Release")
    return EXIT_OK


async def _dictate(client: Client, arguments: argparse.Namespace) -> int:
    try:
        print(await client.call("Dictate", "u", round(arguments.seconds * 1000), limit=None))
    except asyncio.CancelledError:
        await client.call("Cancel")
        raise
    return EXIT_OK


async def _listen(client: Client, arguments: argparse.Namespace) -> int:
    """Text as it is spoken, until Ctrl-C; finished text on standard output, the rest on a terminal's last line."""
    queue = await client.signals("Partial", "Text", "Finished", "Failed", "Level")
    interrupts = iter((_Interrupt.STOP, _Interrupt.CANCEL))
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGINT, lambda: queue.put_nowait((next(interrupts, _Interrupt.CANCEL), []))
    )
    session = await client.call("StartWithOptions", "a{sv}", {"mode": variant(arguments.mode)})
    line = _LastLine()
    if line.shown:
        await client.call("WatchLevel", "b", True)
    code = EXIT_OK
    while True:
        member, body = await queue.get()
        if member == _Interrupt.STOP:
            await client.call("Stop")
        elif member == _Interrupt.CANCEL:
            await client.call("Cancel")
        elif member == "":
            line.clear()
            raise BusError("the daemon has ended; what was said is kept, try: xdna-dictate recover")
        elif member == "Level":
            line.level(body[0])
        elif body[0] == session:
            if member == "Partial":
                line.text((body[2] + body[3])[line.written :])
            elif member == "Text":
                line.finish(body[2])
            elif member == "Failed":
                line.clear()
                print(f"xdna-dictate: {body[2]}", file=sys.stderr)
                code = EXIT_UNAVAILABLE
            else:
                line.clear()
                if body[1] == "no-speech" and code == EXIT_OK:
                    print("xdna-dictate: no speech", file=sys.stderr)
                return EXIT_INTERRUPTED if body[1] == "cancelled" else code


class _Interrupt:
    STOP, CANCEL = "interrupt", "second interrupt"


class _LastLine:
    """A level meter and unfinished text on the last line of a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        self.shown = sys.stderr.isatty()
        self.written = 0
        self._level, self._text = "", ""

    def level(self, dbfs: float) -> None:
        """Loudness in dB relative to full scale."""
        filled = round(_METER * (1 - max(min(dbfs, 0.0), _METER_FLOOR) / _METER_FLOOR))
        self._level = "▕" + "█" * filled + " " * (_METER - filled) + "▏"
        self._draw()

    def text(self, text: str) -> None:
        """Unfinished text."""
        self._text = text.strip()
        self._draw()

    def finish(self, text: str) -> None:
        """Finished text: to standard output."""
        self.clear()
        print(text, flush=True)
        self.written += len(text) + 1
        self._text = ""

    def clear(self) -> None:
        """Leave nothing behind."""
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _draw(self) -> None:
        if self.shown:
            import shutil

            room = shutil.get_terminal_size().columns - len(self._level) - 2
            print(f"\r\033[K{self._level} {self._text[-room:] if room > 0 else ''}", end="", file=sys.stderr, flush=True)


async def _status(client: Client, arguments: argparse.Namespace) -> int:
    values = await client.properties()
    if arguments.json:
        print(json.dumps(values, ensure_ascii=False))
        return EXIT_OK
    session = f" ({values['Mode']}, {values['Session']})" if values["Session"] else ""
    print(f"state       {values['State']}{session}")
    print(f"model       {values['Model']}, {values['ModelState']}")
    print(
        f"back end    {values['Backend'] or 'not chosen yet'}"
        + (f" ({values['BackendDetail']})" if values["BackendDetail"] else "")
    )
    print(f"language    {values['Language'] or 'as heard'}")
    print(f"microphone  {values['Microphone'] or 'the default one'}")
    if values["LastError"][0]:
        print(f"last error  {values['LastError'][0]}: {values['LastError'][1]}")
    return EXIT_OK


async def _recover(client: Client, arguments: argparse.Namespace) -> int:
    """Text of every dictation that was kept because it was not delivered."""
    queue = await client.signals("Finished", "Failed")
    options = {"language": arguments.language, "model": arguments.model}
    given = {name: variant(value) for name, value in options.items() if value is not None}
    recovered = 0
    while True:
        try:
            session = await client.call("RetryLast", "a{sv}", given)
        except CallError as error:
            if error.name == "NotActive":
                break
            raise
        async with asyncio.timeout(_RECOVER_SECONDS):
            while True:
                member, body = await queue.get()
                if member == "":
                    raise BusError("the daemon has ended; what was said is still kept")
                if member == "Failed" and body[0] == session:
                    raise BusError(body[2])
                if member == "Finished" and body[0] == session:
                    break
        print(body[2], flush=True)
        recovered += 1
        if arguments.last or (await client.properties())["State"] != "idle":
            break
    if not recovered:
        print("xdna-dictate: nothing is kept: every dictation was delivered", file=sys.stderr)
    return EXIT_OK


_COMMANDS: Final[dict[str, Callable[[Client, argparse.Namespace], Awaitable[int]]]] = {
    "toggle": _toggle,
    "start": _start,
    "stop": _stop,
    "cancel": _cancel,
    "press": _press,
    "release": _release,
    "dictate": _dictate,
    "listen": _listen,
    "status": _status,
    "recover": _recover,
}
CLIENT_COMMANDS: Final = tuple(_COMMANDS)
