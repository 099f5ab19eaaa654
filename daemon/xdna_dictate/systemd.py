"""What a service manager is told: ready, alive, stopping. The protocol is one datagram a message (systemd, sd_notify(3))."""

import asyncio
import contextlib
import os
import socket


def notify(message: str) -> None:
    """Send `message`, if a service manager listens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.settimeout(1.0)
        sock.connect("\0" + address[1:] if address.startswith("@") else address)
        sock.send(message.encode())


async def keep_alive() -> None:
    """Say, as often as the watchdog wants, that the event loop runs; for ever."""
    microseconds = int(os.environ.get("WATCHDOG_USEC") or 0)
    while microseconds:
        notify("WATCHDOG=1")
        await asyncio.sleep(microseconds / 2_000_000)
