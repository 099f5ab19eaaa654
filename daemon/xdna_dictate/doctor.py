"""What works on this computer, in plain words, and what to do about the rest."""

import asyncio
import contextlib
import importlib.util
import json
import os
import resource
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from xdna_asr.errors import AsrError
from xdna_asr.runtime.npu import NODE as NPU_NODE
from xdna_asr.runtime.select import choose
from xdna_asr.store import ModelStore
from xdna_dictate.audio import pulse
from xdna_dictate.audio.capture import Resampler
from xdna_dictate.audio.sources import open_microphone
from xdna_dictate.config import Config
from xdna_dictate.errors import DictateError
from xdna_dictate.paths import models_folder

LISTEN_SECONDS: Final = 0.5
_ANSWER_SECONDS: Final = 6.0
_MEMLOCK: Final = 64 << 20
_ACTIVATION: Final = "dbus-1/services/io.github.xdna_dictate.Dictate1.service"
_DATA_FOLDERS: Final = "/usr/local/share:/usr/share"

Verdict = Literal["ok", "note", "trouble"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: `note` limits something, `trouble` keeps dictation from working."""

    what: str
    verdict: Verdict
    said: str
    next_step: str = ""


def _npu() -> Iterator[Finding]:
    """Driver, rights, locked memory, XRT, overlays: what keeps the NPU from being used, each for itself."""
    if not NPU_NODE.exists():
        yield Finding(
            "NPU driver",
            "note",
            f"there is no {NPU_NODE}: no AMD XDNA device, or its driver is not loaded",
            "nothing to do: the processor is used; with a Ryzen AI processor take Linux 6.14 or newer with amdxdna",
        )
        return
    yield Finding("NPU driver", "ok", f"{NPU_NODE} is there")
    if os.access(NPU_NODE, os.R_OK | os.W_OK):
        yield Finding("NPU rights", "ok", "it may be opened")
    else:
        yield Finding(
            "NPU rights", "note", f"{NPU_NODE} may not be opened by this user", "sudo usermod -aG render $USER, then log in again"
        )
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    enough = soft == resource.RLIM_INFINITY or soft >= _MEMLOCK
    yield Finding(
        "locked memory",
        "ok" if enough else "note",
        "unlimited" if soft == resource.RLIM_INFINITY else f"{soft >> 20} MB",
        "" if enough else "put '* - memlock unlimited' into /etc/security/limits.d/99-xdna.conf, then log in again",
    )
    firmware = Path("/sys/class/accel/accel0/device/fw_version")
    with contextlib.suppress(OSError):
        yield Finding("NPU firmware", "ok", firmware.read_text("ascii").strip())
    if importlib.util.find_spec("pyxrt") is None:
        yield Finding(
            "XRT", "note", "the Python module pyxrt is missing", "install your distribution's packages of XRT for this Python"
        )
    else:
        yield Finding("XRT", "ok", "pyxrt is there")
    yield Finding("NPU overlays", "note", "this version has none", "nothing to do: the processor is used")


def _recognition(config: Config) -> Iterator[Finding]:
    try:
        choice = choose(config.backend)
        yield Finding("back end", "ok", f"{choice.backend} ({choice.detail})")
    except AsrError as error:
        yield Finding("back end", "trouble", str(error), "set backend to auto")
    try:
        model = ModelStore(models_folder()).open(config.model)
        yield Finding("model", "ok", f"{model.id} is whole")
    except AsrError as error:
        yield Finding("model", "trouble", str(error), f"xdna-dictate models download {config.model}")


async def _microphone(config: Config) -> Finding:
    """Half a second of the microphone that a dictation would use."""
    found = await pulse.microphones()
    named = next(
        (item.description for item in found if item.name == config.microphone or (not config.microphone and item.default)), ""
    )
    called = named or config.microphone or "the default microphone"
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            source = await open_microphone(config.microphone)
            try:
                resampler, heard = Resampler(source.rate, source.channels), [np.zeros(1, np.float32)]
                while sum(map(len, heard)) < LISTEN_SECONDS * 16_000 and (block := await source.read()):
                    heard.append(resampler.push(block))
            finally:
                await source.close()
    except (DictateError, TimeoutError) as error:
        reason = str(error).removesuffix("; see xdna-dictate doctor") or "it delivers nothing"
        step = "plug one in, or look at your desktop's sound settings; sound server: is PipeWire or PulseAudio running?"
        return Finding("microphone", "trouble", reason, step)
    level = 20 * np.log10(max(float(np.sqrt(np.mean(np.concatenate(heard) ** 2))), 1e-5))
    if level <= -99:
        return Finding(
            "microphone", "note", f"{called}: digital silence", "is it muted? (if nobody spoke and nothing hums, all is well)"
        )
    return Finding("microphone", "ok", f"{called}: {level:.0f} dBFS over {LISTEN_SECONDS:g} s")


async def _bus(*, service: bool) -> list[Finding]:
    from xdna_dictate.service.bus import DBUS, NAME, Bus

    if service:
        return [Finding("session bus", "ok", "this answer came over it")]
    try:
        bus = await Bus.connect()
    except DictateError as error:
        return [Finding("session bus", "trouble", str(error), "log in to a desktop session")]
    [running] = await bus.call(DBUS, "/org/freedesktop/DBus", DBUS, "NameHasOwner", "s", NAME)
    bus.close()
    said = "the daemon is running" if running else "the daemon is not running"
    return [Finding("session bus", "ok", "it answers"), Finding("daemon", "ok", said)]


def _desktop() -> Iterator[Finding]:
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local/share")
    folders = [home, *(os.environ.get("XDG_DATA_DIRS") or _DATA_FOLDERS).split(":")]
    if any((Path(folder) / _ACTIVATION).is_file() for folder in folders if folder):
        yield Finding("activation", "ok", "the first call starts the daemon")
    else:
        yield Finding("activation", "note", "the daemon is not started by the first call", "xdna-dictate install")
    desktop = os.environ.get("XDG_CURRENT_DESKTOP", "") or "unknown"
    session = os.environ.get("XDG_SESSION_TYPE", "") or "no graphical session"
    yield Finding("desktop", "ok", f"{desktop}, {session}")
    yield Finding(
        "text insertion",
        "note",
        "this version hands text to inserters that register over D-Bus; it brings none yet",
        "take the text from D-Bus, or from: xdna-dictate dictate",
    )
    if shutil.which("pactl") is None:
        yield Finding(
            "sound server tools",
            "note",
            "pactl is missing: microphones are listed by PortAudio",
            "install pulseaudio-utils (it also serves PipeWire)",
        )


async def findings(config: Config, *, service: bool = False) -> list[Finding]:
    """Everything there is to say; takes a second."""
    found = [*_npu(), *await asyncio.to_thread(lambda: list(_recognition(config)))]
    return [*found, await _microphone(config), *await _bus(service=service), *_desktop()]


async def report(config: Config, *, service: bool = False) -> str:
    """`findings` as JSON, for machines."""
    found = await findings(config, service=service)
    return json.dumps(
        {"ok": all(finding.verdict != "trouble" for finding in found), "findings": [asdict(finding) for finding in found]}
    )
