"""Commands that need no daemon: doctor, config, install."""

import argparse
import asyncio
import dataclasses
import os
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Final

from xdna_dictate.config import Config, default_of, read_config, template, toml_value
from xdna_dictate.errors import EXIT_OK, EXIT_UNAVAILABLE, UsageError
from xdna_dictate.paths import config_file

_MARKS: Final = {"ok": "✓", "note": "•", "trouble": "✗"}
_PLAIN: Final = {"ok": "ok  ", "note": "note", "trouble": "!!  "}
ACTIVATION: Final = "io.github.xdna_dictate.Dictate1.service"
UNIT: Final = "xdna-dictate.service"


def run_doctor(arguments: argparse.Namespace) -> int:
    """Say what works; exit code 3 if something keeps dictation from working."""
    from xdna_dictate.doctor import findings, report

    config = read_config(config_file()).in_profile()
    if arguments.json:
        text = asyncio.run(report(config))
        print(text)
        return EXIT_OK if text.startswith('{"ok": true') else EXIT_UNAVAILABLE
    found = asyncio.run(findings(config))
    marks = _MARKS if sys.stdout.isatty() else _PLAIN
    width = max(len(finding.what) for finding in found)
    for finding in found:
        print(f"{marks[finding.verdict]} {finding.what.ljust(width)}  {finding.said}")
        if finding.next_step:
            print(f"{' ' * (len(marks['ok']) + width + 3)}-> {finding.next_step}")
    return EXIT_UNAVAILABLE if any(finding.verdict == "trouble" for finding in found) else EXIT_OK


def run_config(arguments: argparse.Namespace) -> int:
    """Show the settings, or a file that explains all of them. Raises ConfigError for a file with a mistake."""
    if arguments.template:
        print(template(), end="")
        return EXIT_OK
    path = config_file()
    config = read_config(path)
    print(f"# {path}{'' if path.exists() else ' (not there: these are the defaults)'}")
    for entry in dataclasses.fields(Config):
        value = getattr(config, entry.name)
        changed = "" if value == default_of(entry.name) else "    # changed"
        print(f"{entry.name} = {toml_value(value)}{changed}")
    return EXIT_OK


def run_install(arguments: argparse.Namespace) -> int:
    """Let the first call on the session bus start this very program; for installations into a venv or by pipx."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    targets = {data / "dbus-1/services" / ACTIVATION: "dbus", settings / "systemd/user" / UNIT: "systemd"}
    if arguments.remove:
        for path in targets:
            path.unlink(missing_ok=True)
            print(f"removed {path}")
        return EXIT_OK
    program = _program()
    for path, kind in targets.items():
        text = _service_file(path.name, kind).replace("/usr/bin/xdna-dictate", program)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        print(f"wrote {path}")
    if shutil.which("systemctl"):
        subprocess.run(["systemctl", "--user", "daemon-reload"], check=False, capture_output=True, timeout=10)
    print("the first call now starts the daemon; try: xdna-dictate status")
    return EXIT_OK


def _program() -> str:
    """This program as somebody else would start it."""
    beside = Path(sys.executable).with_name("xdna-dictate")
    if beside.exists():
        return str(beside)
    found = shutil.which("xdna-dictate")
    if found is None:
        raise UsageError("xdna-dictate is not installed as a program; install it with pipx or pip first")
    return str(Path(found).absolute())


def _service_file(name: str, kind: str) -> str:
    """A service file: from the installed package, else from the source tree."""
    installed = files("xdna_dictate") / "service" / name
    if installed.is_file():
        return installed.read_text("utf-8")
    root = Path(__file__).parents[2]
    return (root / ("packaging/dbus" if kind == "dbus" else "systemd") / name).read_text("utf-8")
