"""Errors of the recognition library.

AsrError                      every error raised on purpose by this package
├── ModelError                something is wrong with a model's files
│   ├── ModelMissing          the model, or one of its files, is not on this machine
│   └── ModelDamaged          a file is truncated, swapped, malformed or of another version
├── BackendUnavailable        the asked-for device or runtime can't be used here
├── NpuFault                  the NPU failed at work and a second try did not help
└── UnsupportedLanguage       the model can't write that language

Each message is one line for a person: what, which file or value, and what to do next.
"""


class AsrError(Exception):
    """Base of the errors a person can act on; the message is one line."""


class ModelError(AsrError):
    """Something is wrong with a model's files."""


class ModelMissing(ModelError, FileNotFoundError):
    """The model, or one of its files, is not on this machine."""


class ModelDamaged(ModelError, ValueError):
    """A model file is truncated, swapped, malformed or of another version."""


class BackendUnavailable(AsrError, RuntimeError):
    """The asked-for device or runtime can't be used here."""


class NpuFault(AsrError, RuntimeError):
    """The NPU failed at work and a second try in a fresh context did not help."""


class UnsupportedLanguage(AsrError, ValueError):
    """The model can't write that language."""
