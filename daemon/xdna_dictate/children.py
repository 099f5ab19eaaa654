"""Child processes of the daemon."""

import asyncio
import contextlib
import os
import signal


def kill(process: asyncio.subprocess.Process) -> None:
    """Kill a child, if it runs. asyncio's own `kill` also polls, and so takes the exit code from asyncio's watcher."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
