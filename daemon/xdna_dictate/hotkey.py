"""A key's edges as commands: a tap toggles, holding dictates while the key is down. Pure; the time is passed in.

Some desktops report both edges, some only presses, repeated while the key is held. Where no release was ever reported, a
repeating press means "held" and its falling silent "released".
"""

from enum import Enum, auto
from typing import Final

HOLD_SECONDS: Final = 0.4
"""A key that was down for longer was held, not tapped."""
REPEAT_SECONDS: Final = 0.7
"""Two presses without a release closer than this are one key repeating (first repeats come after 0.25 to 0.66 s)."""
STUCK_SECONDS: Final = 10.0
"""A press so long after the last is a new one, even if the release between them was missed."""
QUIET_SECONDS: Final = 0.3
"""A repeating key that is silent for so long was released."""


class Command(Enum):
    """What a key edge asks for."""

    START = auto()
    STOP = auto()


class Hotkey:
    """Remembers one key."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._last = 0.0
        self._started = self._repeats = self._reports_releases = False

    @property
    def deadline(self) -> float | None:
        """When to call `tick`."""
        repeating = self._since is not None and self._repeats and not self._reports_releases
        return self._last + QUIET_SECONDS if repeating else None

    def press(self, now: float, *, active: bool) -> Command | None:
        """The key went down, or repeats; `active` tells whether a dictation is on."""
        if self._since is not None and now - self._last <= (STUCK_SECONDS if self._reports_releases else REPEAT_SECONDS):
            self._last, self._repeats = now, True
            return None
        self._since = self._last = now
        self._repeats, self._started = False, not active
        return Command.STOP if active else Command.START

    def release(self, now: float) -> Command | None:
        """The key went up."""
        self._reports_releases = True
        return self._up(now)

    def tick(self, now: float) -> Command | None:
        """Time has passed."""
        if self.deadline is None or now < self.deadline:
            return None
        return self._up(now)

    def _up(self, now: float) -> Command | None:
        since, self._since = self._since, None
        held = since is not None and now - since >= HOLD_SECONDS
        return Command.STOP if held and self._started else None
