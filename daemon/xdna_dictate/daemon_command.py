"""`xdna-dictate daemon`: the service from its start to its end."""

import argparse
import asyncio
import logging
import os
import signal
import threading
from collections.abc import Coroutine
from typing import Any, Final

from xdna_dictate.audio import pulse
from xdna_dictate.config import flags_given
from xdna_dictate.doors import open_doors
from xdna_dictate.engine import Spawn
from xdna_dictate.errors import EXIT_OK, BusError
from xdna_dictate.kept import undelivered
from xdna_dictate.log import start as start_log
from xdna_dictate.paths import config_file
from xdna_dictate.service.bus import NAME, Bus
from xdna_dictate.service.service import Service
from xdna_dictate.settings import Settings
from xdna_dictate.systemd import keep_alive, notify

log = logging.getLogger("xdna_dictate")

CLOSE_SECONDS: Final = 4.0
_LOGIND: Final = "org.freedesktop.login1"


def run_daemon(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM, SIGINT or the end of the bus; returns the exit code. Raises ConfigError or BusError."""
    start_log(verbose=arguments.verbose)
    os.umask(0o077)
    settings = Settings(config_file(), flags_given(arguments))
    asyncio.run(_Daemon(settings).run())
    return EXIT_OK


class _Daemon:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._end = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        bus = await Bus.connect()
        try:
            await self._serve(bus)
        except* _Ended:
            pass
        except* BusError as group:
            raise group.exceptions[0] from None

    async def _serve(self, bus: Bus) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            service = Service(bus, self._settings, _guarded(tasks))
            await bus.take_name(NAME)
            notify("READY=1\nSTATUS=idle")
            log.info("ready on the session bus as %s", NAME)
            loop.add_signal_handler(signal.SIGHUP, self._reload, service)
            _say_undelivered()
            service.engine.keep_warm()
            for helper in self._helpers(bus, service):
                _guarded(tasks)(helper)
            await self._end_of(bus)
            notify("STOPPING=1")
            _end_anyway_in(CLOSE_SECONDS + 0.5)
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await service.engine.close()
            except TimeoutError:
                log.warning("not everything ended in time")
            bus.close()
            raise _Ended

    def _helpers(self, bus: Bus, service: Service) -> list[Coroutine[Any, Any, None]]:
        return [
            service.watch_callers(bus),
            self._settings.follow(service.engine.settings_changed),
            pulse.watch(service.microphones_changed),
            keep_alive(),
            _watch_sleep(service),
            open_doors(self._settings.now, service.jobs),
        ]

    async def _end_of(self, bus: Bus) -> None:
        """Wait for a signal, or for the end of the bus: whoever starts the bus anew starts this service anew."""
        closed, asked = asyncio.ensure_future(bus.closed()), asyncio.ensure_future(self._end.wait())
        await asyncio.wait((closed, asked), return_when=asyncio.FIRST_COMPLETED)
        if closed.done():
            log.info("the session bus has gone")
        closed.cancel()
        asked.cancel()

    def _stop(self) -> None:
        if self._end.is_set():
            os._exit(1)
        self._end.set()

    def _reload(self, service: Service) -> None:
        if self._settings.reload():
            service.engine.settings_changed()


def _end_anyway_in(seconds: float) -> None:
    """A thread inside PortAudio may never return, and Python would wait for it."""
    last = threading.Timer(seconds, os._exit, (EXIT_OK,))
    last.daemon = True
    last.start()


class _Ended(Exception):
    """Ends the task group and everything in it."""


def _guarded(tasks: asyncio.TaskGroup) -> Spawn:
    """Starts tasks whose failure is logged and does not end the service."""

    async def guard(coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        except Exception:
            log.exception("a task failed")

    return lambda coroutine: tasks.create_task(guard(coroutine))


def _say_undelivered() -> None:
    count = len(undelivered())
    if count:
        what = "one dictation was" if count == 1 else f"{count} dictations were"
        log.warning("%s not delivered before; get the text with: xdna-dictate recover", what)


async def _watch_sleep(service: Service) -> None:
    """Follow logind's announcements of sleep; without a system bus there are none."""
    try:
        bus = await Bus.connect(system=True)
    except BusError as error:
        log.info("sleep is not noticed: %s", error)
        return

    def on_sleep(_sender: str, body: list[Any]) -> None:
        service.engine.sleep(about_to=body[0])

    try:
        await bus.watch(f"sender='{_LOGIND}',interface='{_LOGIND}.Manager'", "PrepareForSleep", on_sleep)
        await bus.closed()
    finally:
        bus.close()
