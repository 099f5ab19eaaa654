"""Errors of the program, and what they mean to the shell and on D-Bus.

DictateError                     one line for a person; exit code 2
├── AudioError                   a file is not audio, or can't be read
├── UsageError                   options that don't go together
├── ConfigError                  a setting is unknown or has a value that is not allowed
├── BusError                     no session bus, or another instance has the name; exit code 3
└── ServiceError                 refused over D-Bus under a name of its own; exit code 3
    ├── NoMicrophone  MicrophoneBusy
    ├── Busy  NotActive  Suspended  ModelLoading
    ├── NoSpeech  Cancelled  Timeout
    ├── UnsupportedFormat  InsertFailed  SecureField
    └── InvalidArgs  FileNotFound  AccessDenied  Failed

xdna_asr.errors.AsrError         from the recognition library; exit code 3, UnsupportedLanguage 2
"""

from typing import Final

from xdna_asr.errors import AsrError, BackendUnavailable, ModelError, UnsupportedLanguage

EXIT_OK: Final = 0
EXIT_BAD_INPUT: Final = 2
EXIT_UNAVAILABLE: Final = 3
EXIT_INTERRUPTED: Final = 130


class DictateError(Exception):
    """Base of the program's own errors; the message is one line for a person."""


class AudioError(DictateError):
    """A file is not audio, or can't be read."""


class UsageError(DictateError):
    """Options that don't go together."""


class ConfigError(DictateError):
    """A setting is unknown or has a value that is not allowed."""


class BusError(DictateError):
    """There is no session bus, or its name is taken."""


class ServiceError(DictateError):
    """A request was refused; the class name is the error's name on D-Bus."""


class NoMicrophone(ServiceError):
    """There is no microphone, or it delivers nothing."""


class MicrophoneBusy(ServiceError):
    """Another program keeps the microphone for itself."""


class Busy(ServiceError):
    """A dictation is on already."""


class NotActive(ServiceError):
    """There is nothing to stop, cancel or try again."""


class Suspended(ServiceError):
    """The computer is about to sleep."""


class ModelLoading(ServiceError):
    """The model is not ready yet."""


class NoSpeech(ServiceError):
    """Nobody spoke."""


class Cancelled(ServiceError):
    """The dictation was cancelled."""


class Timeout(ServiceError):
    """The time that the caller gave is over."""


class UnsupportedFormat(ServiceError):
    """A transcript can't be written in that form, or a file is not audio."""


class InsertFailed(ServiceError):
    """Text could not be put where the cursor is."""


class SecureField(ServiceError):
    """The cursor is in a password field."""


class InvalidArgs(ServiceError):
    """An argument has a value that is not allowed."""


class FileNotFound(ServiceError):
    """There is no such file."""


class AccessDenied(ServiceError):
    """The file may not be read."""


class Failed(ServiceError):
    """Anything else; the log says more."""


def exit_code(error: Exception) -> int:
    """The exit code that stands for `error`."""
    if isinstance(error, (AsrError, ServiceError, BusError)) and not isinstance(error, (UnsupportedLanguage, InvalidArgs)):
        return EXIT_UNAVAILABLE
    return EXIT_BAD_INPUT


def bus_name(error: Exception) -> str:
    """The last part of the D-Bus error that stands for `error`."""
    if isinstance(error, ServiceError):
        return type(error).__name__
    if isinstance(error, UnsupportedLanguage):
        return "UnsupportedLanguage"
    if isinstance(error, ModelError):
        return "ModelMissing"
    if isinstance(error, BackendUnavailable):
        return "BackendUnavailable"
    if isinstance(error, AudioError):
        return "UnsupportedFormat"
    return "InvalidArgs" if isinstance(error, DictateError) else "Failed"
