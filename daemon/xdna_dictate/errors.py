"""Errors of the program, and what they mean to the shell.

DictateError                     one line for a person; exit code 2
├── AudioError                   a file is not audio, or can't be read
└── UsageError                   options that don't go together

xdna_asr.errors.AsrError         from the recognition library; exit code 3, UnsupportedLanguage 2
"""

from typing import Final

from xdna_asr.errors import AsrError, UnsupportedLanguage

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


def exit_code(error: Exception) -> int:
    """The exit code that stands for `error`."""
    if isinstance(error, AsrError) and not isinstance(error, UnsupportedLanguage):
        return EXIT_UNAVAILABLE
    return EXIT_BAD_INPUT
