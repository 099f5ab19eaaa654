"""Settings: one table gives the TOML file's keys, the daemon's flags, the defaults and the help.

Order of precedence: flags of `xdna-dictate daemon`, the file, the defaults. D-Bus properties change a setting until the
daemon ends.
"""

import argparse
import dataclasses
import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from xdna_asr.registry import DEFAULT_MODEL
from xdna_asr.runtime.select import BACKENDS
from xdna_dictate.errors import ConfigError
from xdna_dictate.session import Mode

PRECISIONS: Final = ("int8", "float32")
_PROFILES: Final = "profiles"


def _setting(
    default: Any,
    text: str,
    *,
    choices: tuple[str, ...] = (),
    within: tuple[float, float] | None = None,
) -> Any:
    metadata = {"help": text, "choices": choices, "within": within}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Config:
    """Every setting and its value. Seconds are seconds."""

    model: str = _setting(DEFAULT_MODEL, "which model recognises; see xdna-dictate models list")
    language: str = _setting("", "what is spoken, such as en or ru; empty: heard from the sound")
    languages: tuple[str, ...] = _setting((), "with an empty language: the only ones that may be heard; empty: all")
    hotwords: tuple[str, ...] = _setting((), "names and terms made likelier, spelled as they are to be written")
    replacements: dict[str, str] = _setting({}, "what is written in place of what was heard, whole words, any case")
    spoken_commands: bool = _setting(False, 'write a new line for "new line", a comma for "comma" and so on')
    mode: str = _setting("toggle", "what Toggle and a plain Start do", choices=tuple(Mode))
    max_seconds: float = _setting(300.0, "longest dictation; 0: no limit", within=(0, 86_400))
    silence_seconds: float = _setting(0.0, "silence that ends a dictation; 0: 1 s in mode once, else never", within=(0, 600))
    partials: bool = _setting(True, "publish text while somebody still speaks")
    microphone: str = _setting("", "its name; empty: the desktop's default, also when that changes")
    warm_microphone: bool = _setting(False, "keep the microphone open, so that the first word is never too early")
    pre_roll: float = _setting(0.3, "sound from before the start that a warm microphone adds", within=(0, 2))
    backend: str = _setting("auto", "what computes; auto: NPU if usable, else CPU", choices=BACKENDS)
    precision: str = _setting("int8", "arithmetic on the CPU", choices=PRECISIONS)
    threads: int = _setting(2, "processor threads", within=(1, 256))
    recognition_limit: float = _setting(
        60.0, "time that one piece of speech may take before recognition is started anew", within=(1, 3_600)
    )
    unload_after: float = _setting(300.0, "idle time after which the model leaves memory; 0: never", within=(0, 86_400))
    publish: str = _setting(
        "broadcast",
        "who gets text signals: everybody on the session bus, the caller, or nobody",
        choices=("broadcast", "owner", "off"),
    )
    insert: bool = _setting(True, "hand finished text to the inserter, where there is one")
    inserter: str = _setting("auto", "which registered inserter takes the text")
    keep_audio: str = _setting(
        "until-delivered", "how long a dictation's sound is kept for RetryLast", choices=("until-delivered", "last", "never")
    )
    profile: str = _setting("", "section of the file's profiles that is laid over these settings")
    http_port: int = _setting(
        0, "loopback port for POST /v1/audio/transcriptions, opened at the start; 0: off", within=(0, 65_535)
    )
    wyoming_port: int = _setting(0, "loopback port for the Wyoming protocol, opened at the start; 0: off", within=(0, 65_535))
    profiles: dict[str, dict[str, Any]] = _setting({}, "named sets of settings: [profiles.NAME]")

    def with_values(self, values: Mapping[str, Any]) -> "Config":
        """These settings with some changed. Raises ConfigError with the value and what is allowed."""
        checked = {name: check(name, value) for name, value in values.items()}
        changed = dataclasses.replace(self, **checked)
        if changed.profile and changed.profile not in changed.profiles:
            known = ", ".join(changed.profiles) or "none is defined"
            raise ConfigError(f"profile = {changed.profile!r}: no such profile ({known})")
        return changed

    def in_profile(self) -> "Config":
        """These settings with the chosen profile's laid over them."""
        return self.with_values(self.profiles[self.profile]) if self.profile else self


SETTINGS: Final = {entry.name: entry for entry in dataclasses.fields(Config)}
FLAGS: Final = tuple(entry for entry in SETTINGS.values() if entry.name not in ("replacements", _PROFILES))


def check(name: str, value: Any) -> Any:
    """`value` as the setting `name` holds it. Raises ConfigError."""
    if name not in SETTINGS:
        near = difflib.get_close_matches(name, SETTINGS, 1)
        raise ConfigError(f"unknown setting {name!r}" + (f"; did you mean {near[0]}?" if near else ""))
    default, metadata = default_of(name), SETTINGS[name].metadata
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if isinstance(default, tuple) and isinstance(value, list):
        value = tuple(value)
    if isinstance(value, str):
        value = str(value)
    if type(value) is not type(default) or not _texts(value):
        raise ConfigError(f"{name} = {value!r}: must be {_KINDS[type(default)]}")
    if metadata["choices"] and value not in metadata["choices"]:
        raise ConfigError(f"{name} = {value!r}: must be one of {', '.join(metadata['choices'])}")
    if metadata["within"] and not metadata["within"][0] <= value <= metadata["within"][1]:
        low, high = metadata["within"]
        raise ConfigError(f"{name} = {value!r}: must be between {low:g} and {high:g}")
    if name == _PROFILES:
        return {key: _profile(key, settings) for key, settings in value.items()}
    return value


_KINDS: Final = {
    str: "text in quotes",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    tuple: "a list of texts",
    dict: "a table of texts",
}


def _texts(value: Any) -> bool:
    """Whether a list or table holds what it may hold."""
    if isinstance(value, tuple):
        return all(isinstance(item, str) for item in value)
    if isinstance(value, dict):
        return all(isinstance(item, (str, dict)) for item in value.values())
    return True


def _profile(name: str, settings: Any) -> dict[str, Any]:
    if not isinstance(settings, dict) or not {"profile", _PROFILES}.isdisjoint(settings):
        raise ConfigError(f"profiles.{name}: must be a table of settings, without profiles in it")
    return {key: check(key, value) for key, value in settings.items()}


def default_of(name: str) -> Any:
    """The default of a setting."""
    return getattr(Config(), name)


def read_config(path: Path) -> Config:
    """Settings from the TOML file at `path`, the defaults if there is none. Raises ConfigError with file and line."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read ({error})") from error
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from error
    try:
        return Config().with_values(values)
    except ConfigError as error:
        raise ConfigError(f"{path}:{_line(text, str(error))}: {error}") from error


def _line(text: str, message: str) -> int:
    """Number of the line that `message` is about: the one that begins with the first setting it names."""
    begins = [match.group(1) if (match := re.match(r"\s*\[?([\w.]+)", line)) else "" for line in text.splitlines()]
    return next((begins.index(word) + 1 for word in re.findall(r"[\w.]+", message) if word in begins), 1)


def template() -> str:
    """A configuration file that says everything and changes nothing."""
    lines = ["# Settings of xdna-dictate; all are optional, these are the defaults."]
    for entry in SETTINGS.values():
        default, metadata = default_of(entry.name), entry.metadata
        allowed = f" ({', '.join(metadata['choices'])})" if metadata["choices"] else ""
        lines.append(f"\n# {metadata['help']}{allowed}")
        lines.append(f"#{entry.name} = {toml_value(default)}" if not isinstance(default, dict) else f"#[{_table(entry.name)}]")
    return "\n".join(lines) + "\n"


def _table(name: str) -> str:
    return f"{name}.NAME" if name == _PROFILES else name


def toml_value(value: Any) -> str:
    """`value` as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{toml_value(key)} = {toml_value(item)}' for key, item in value.items())} }}" if value else "{}"
    return f"{value:g}" if isinstance(value, float) and value.is_integer() else str(value)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """A flag for every setting that fits one."""
    for entry in FLAGS:
        default, metadata, flag = default_of(entry.name), entry.metadata, f"--{entry.name.replace('_', '-')}"
        text = f"{metadata['help']} (default: {toml_value(default)})".replace("%", "%%")
        if isinstance(default, bool):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
        elif isinstance(default, tuple):
            parser.add_argument(flag, type=lambda words: tuple(filter(None, words.split(","))), metavar="A,B", help=text)
        else:
            kind = "TEXT" if isinstance(default, str) else "N"
            shown = {"choices": metadata["choices"]} if metadata["choices"] else {"metavar": kind}
            parser.add_argument(flag, type=type(default), help=text, **shown)


def flags_given(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings that flags changed."""
    given = {entry.name: getattr(arguments, entry.name, None) for entry in FLAGS}
    return {name: value for name, value in given.items() if value is not None}
