"""The program, with an event loop that complains when a callback keeps it from anything else for 50 ms of processor time."""

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

LONGEST = 0.05


def timed(complain: Callable[[str], Any]) -> Callable[[Any], None]:
    """`Handle._run`, measured in the thread's processor time: a busy machine is not our fault."""
    run = asyncio.events.Handle._run

    def _run(handle: Any) -> None:
        began = time.thread_time()
        run(handle)
        spent = time.thread_time() - began
        if spent > LONGEST:
            complain(f"blocked the loop for {spent * 1000:.0f} ms: {handle!r}")

    return _run


if __name__ == "__main__":
    asyncio.events.Handle._run = timed(lambda text: print(text, file=sys.stderr, flush=True))  # type: ignore[method-assign,assignment]
    from xdna_dictate.cli import main

    sys.exit(main())
