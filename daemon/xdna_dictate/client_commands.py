"""Commands that ask the daemon: thin, without numpy. The bus starts the daemon where activation is installed."""

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from xdna_dictate.client import Client
from xdna_dictate.errors import EXIT_OK, BusError
from xdna_dictate.listen_command import listen
from xdna_dictate.service.bus import Bus, CallError, variant

_RECOVER_SECONDS: Final = 6 * 3600.0


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
    given |= {"undelivered": variant(True), "insert": variant(False)}
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
    "listen": listen,
    "status": _status,
    "recover": _recover,
}
CLIENT_COMMANDS: Final = tuple(_COMMANDS)
