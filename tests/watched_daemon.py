"""The program, with an event loop that complains when a callback keeps it from anything else for 50 ms of processor time."""

import asyncio
import sys
import time
from typing import Any

LONGEST = 0.05


def watch() -> None:
    """Measure every callback of every loop in the thread's processor time: a busy machine is not our fault."""
    run = asyncio.events.Handle._run  # type: ignore[attr-defined]

    def timed(handle: Any) -> None:
        began = time.thread_time()
        run(handle)
        spent = time.thread_time() - began
        if spent > LONGEST:
            print(f"blocked the loop for {spent * 1000:.0f} ms: {handle!r}", file=sys.stderr, flush=True)

    asyncio.events.Handle._run = timed  # type: ignore[attr-defined]


if __name__ == "__main__":
    watch()
    from xdna_dictate.cli import main

    sys.exit(main())
