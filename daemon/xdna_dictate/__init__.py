"""xdna-dictate: private dictation for Linux."""

__version__ = "0.1.0"
