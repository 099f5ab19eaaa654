"""The log: standard error, which is the journal under systemd. Never what was said."""

import logging
import os
import sys
from typing import Final

STDERR: Final = os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2)
"""Standard error under a number of its own: while PortAudio starts, number 2 leads to nowhere."""


def start(*, verbose: bool) -> None:
    """Log to standard error."""
    form = "%(levelname)s: %(message)s" if "JOURNAL_STREAM" in os.environ else "%(asctime)s %(levelname)s: %(message)s"
    stream = os.fdopen(STDERR, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    logging.basicConfig(stream=stream, level=logging.DEBUG if verbose else logging.INFO, format=form)
    for noisy in ("asyncio", "dbus_fast"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
