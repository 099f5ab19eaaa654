"""The sound server's list of microphones, through `pactl` of PulseAudio and PipeWire; PortAudio's list where there is none."""

import asyncio
import json
import logging
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from xdna_dictate.children import kill

log = logging.getLogger(__name__)

_SECONDS: Final = 3.0
_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 30.0
_CHANGES: Final = re.compile(rb"'(new|remove)' on source #|'change' on server")
"""Events of `pactl subscribe` that change the list; a source also changes whenever somebody records."""


@dataclass(frozen=True)
class Microphone:
    """One source of sound."""

    name: str
    description: str
    default: bool
    monitor: bool
    """Whether it hears what a loudspeaker plays."""


async def microphones() -> list[Microphone]:
    """Every microphone, the default one first."""
    if shutil.which("pactl") is None:
        return await asyncio.to_thread(_portaudio_microphones)
    sources, server = await _pactl_json("list", "sources"), await _pactl_json("info")
    default = server.get("default_source_name", "") if isinstance(server, dict) else ""
    found = [
        Microphone(
            name=str(source.get("name", "")),
            description=str(source.get("description", "")),
            default=source.get("name") == default,
            monitor=bool(source.get("monitor_source")) or str(source.get("name", "")).endswith(".monitor"),
        )
        for source in (sources if isinstance(sources, list) else [])
    ]
    return sorted(found, key=lambda microphone: (not microphone.default, microphone.monitor, microphone.description))


async def has_source(name: str) -> bool:
    """Whether the sound server has a source called `name`."""
    if shutil.which("pactl") is None or shutil.which("parec") is None:
        return False
    return any(microphone.name == name for microphone in await microphones())


async def only_null() -> bool:
    """Whether the sound server has nothing left but its stand-in for a device, which is silent for ever."""
    if shutil.which("pactl") is None:
        return False
    found = await microphones()
    return not found or found[0].name.startswith("auto_null")


async def _pactl_json(*arguments: str) -> Any:
    """What `pactl` answers; {} if there is no server. Names that are not UTF-8 get replacement characters."""
    process = await asyncio.create_subprocess_exec(
        "pactl",
        "--format=json",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_SECONDS):
            out, _ = await process.communicate()
        return json.loads(out.decode("utf-8", "replace"))
    except (TimeoutError, ValueError):
        return {}
    finally:
        if process.returncode is None:
            kill(process)
            await process.wait()


def _portaudio_microphones() -> list[Microphone]:
    try:
        import sounddevice
    except OSError:
        return []
    default = sounddevice.default.device[0]
    devices = [device for device in sounddevice.query_devices() if device["max_input_channels"] > 0]
    return [Microphone(device["name"], device["name"], device["index"] == default, monitor=False) for device in devices]


async def watch(on_change: Callable[[], None]) -> None:
    """Call `on_change` whenever a microphone comes or goes or another becomes the default; for ever."""
    if shutil.which("pactl") is None:
        return
    wait = _FIRST_WAIT
    while True:
        process = await asyncio.create_subprocess_exec(
            "pactl",
            "subscribe",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )
        try:
            while process.stdout and (line := await process.stdout.readline()):
                wait = _FIRST_WAIT
                if _CHANGES.search(line):
                    on_change()
        finally:
            if process.returncode is None:
                kill(process)
            await process.wait()
        on_change()
        await asyncio.sleep(wait)
        wait = min(wait * 2, _LONGEST_WAIT)
