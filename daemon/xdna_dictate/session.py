"""One dictation as a state machine. Pure: events and the time go in, actions come out.

    starting --samples flow--> listening --stop, silence, limits--> finishing --drained--> ended
        |                          |                                    |
        +------ cancel, lost microphone, no samples in time ------------+----------------> ended

The microphone is opened by whoever makes a `Session`, and closed once by CLOSE (keep what was heard) or DISCARD.
`deadline` is the time at which `tick` has something to do.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final


class State(StrEnum):
    """Where a dictation is; `idle` and `suspended` are the service's own."""

    IDLE = "idle"
    STARTING = "starting"
    LISTENING = "listening"
    FINISHING = "finishing"
    SUSPENDED = "suspended"


class Mode(StrEnum):
    """What ends a dictation, besides Stop."""

    TOGGLE = "toggle"
    """Nothing but the longest time."""
    HOLD = "hold"
    """The same; the key's release stops it."""
    ONCE = "once"
    """Silence after speech, or no speech at all."""
    CONTINUOUS = "continuous"
    """Nothing, unless a length of silence is set."""


class Reason(StrEnum):
    """Why a dictation ended."""

    STOPPED = "stopped"
    SILENCE = "silence"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    NO_SPEECH = "no-speech"
    ERROR = "error"


class Action(Enum):
    """What the caller must do."""

    CLOSE = auto()
    """Stop capturing, hand everything heard to the recogniser, then call `drained`."""
    DISCARD = auto()
    """Stop capturing and throw away what was heard."""
    END = auto()
    """The dictation is over; `reason` says why. Always the last action."""


@dataclass(frozen=True)
class Limits:
    """Times in seconds; None: no limit."""

    longest: float | None = 300.0
    """From the first sample."""
    silence: float | None = None
    """Silence after speech that ends the dictation."""
    wait: float | None = None
    """How long to wait for the first speech."""
    opening: float = 6.0
    """How long to wait for the first sample; Bluetooth headsets take up to three seconds."""
    post_roll: float = 0.3
    """Longest sound after Stop while somebody still speaks: the end of the last word."""


ONCE_SILENCE: Final = 1.0
ONCE_WAIT: Final = 8.0


def limits_of(mode: Mode, longest: float | None, silence: float | None) -> Limits:
    """The limits of a `mode`; `longest` and `silence` are what the user set."""
    if mode is Mode.ONCE:
        return Limits(longest, silence or ONCE_SILENCE, ONCE_WAIT)
    return Limits(None if mode is Mode.CONTINUOUS else longest, silence)


class Session:
    """One dictation from the request to its end."""

    def __init__(self, mode: Mode, limits: Limits, now: float) -> None:
        self.mode, self.state, self.reason = mode, State.STARTING, Reason.STOPPED
        self._limits = limits
        self._speaking = self._closed = False
        self._longest: float | None = None
        self._quiet: float | None = None
        self._other: float | None = now + limits.opening

    @property
    def ended(self) -> bool:
        """Whether END was given."""
        return self.state is State.IDLE

    @property
    def deadline(self) -> float | None:
        """When to call `tick`, if nothing happens before."""
        return min((time for time in (self._longest, self._quiet, self._other) if time is not None), default=None)

    def samples_flow(self, now: float) -> list[Action]:
        """The first samples arrived."""
        if self.state is not State.STARTING:
            return []
        self.state, self._other = State.LISTENING, None
        self._longest = None if self._limits.longest is None else now + self._limits.longest
        self._quiet = None if self._limits.wait is None else now + self._limits.wait
        return []

    def speech_started(self, now: float) -> list[Action]:  # noqa: ARG002  every event brings its time
        """Somebody began to speak."""
        self._quiet = None
        return []

    def voice(self, now: float, *, voiced: bool) -> list[Action]:  # noqa: ARG002
        """Whether somebody speaks at this very moment; not, when the last word is surely complete."""
        self._speaking = voiced
        return self._close() if self.state is State.FINISHING and not voiced else []

    def speech_ended(self, now: float) -> list[Action]:
        """Nobody speaks any more, since `now`."""
        if self.state is State.LISTENING and self._limits.silence is not None:
            self._quiet = now + self._limits.silence
        return []

    def stop(self, now: float) -> list[Action]:
        """The user asked for the text. Nothing happens if it is already on its way."""
        if self.state is State.FINISHING:
            return []
        return self._finish(Reason.STOPPED, now)

    def cancel(self, now: float) -> list[Action]:  # noqa: ARG002
        """The user does not want the text."""
        return self._abandon(Reason.CANCELLED)

    def microphone_lost(self, now: float) -> list[Action]:  # noqa: ARG002
        """No more samples will come; what was heard is kept."""
        if self.state is State.STARTING:
            return self._abandon(Reason.ERROR)
        if self.state is State.LISTENING:
            self.reason = Reason.ERROR
        return self._close()

    def failed(self, now: float) -> list[Action]:  # noqa: ARG002
        """What was heard can't be recognised now."""
        return self._abandon(Reason.ERROR)

    def drained(self, now: float, *, text: bool) -> list[Action]:  # noqa: ARG002
        """After CLOSE, everything heard was recognised; `text` tells whether anything was written."""
        if self.state is not State.FINISHING or not self._closed:
            return []
        if not text and self.reason is not Reason.ERROR:
            self.reason = Reason.NO_SPEECH
        return self._end()

    def tick(self, now: float) -> list[Action]:
        """Time has passed."""
        if self._other is not None and now >= self._other:
            return self._abandon(Reason.ERROR) if self.state is State.STARTING else self._close()
        if self._longest is not None and now >= self._longest:
            return self._finish(Reason.TIMEOUT, now)
        if self._quiet is not None and now >= self._quiet:
            return self._finish(Reason.SILENCE, now)
        return []

    def _finish(self, reason: Reason, now: float) -> list[Action]:
        if self.ended:
            return []
        if self.state is State.STARTING:
            return self._abandon(Reason.NO_SPEECH)
        self.reason, self.state = reason, State.FINISHING
        self._longest = self._quiet = None
        if not self._speaking:
            return self._close()
        self._other = now + self._limits.post_roll
        return []

    def _close(self) -> list[Action]:
        if self.ended or self._closed:
            return []
        self.state, self._closed = State.FINISHING, True
        self._longest = self._quiet = self._other = None
        return [Action.CLOSE]

    def _abandon(self, reason: Reason) -> list[Action]:
        if self.ended:
            return []
        self.reason = reason
        return [*([] if self._closed else [Action.DISCARD]), *self._end()]

    def _end(self) -> list[Action]:
        self.state = State.IDLE
        self._longest = self._quiet = self._other = None
        return [Action.END]
