"""A program that uses the service, as any other might: calls and signals over the bus."""

import asyncio
from typing import Any, Final

from xdna_dictate.errors import BusError
from xdna_dictate.service.bus import DBUS, NAME, PATH, PROPERTIES, Bus, CallError

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
