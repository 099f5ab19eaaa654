"""Cuts a growing signal into windows of at most 20 s that begin and end in pauses. Pure: probabilities in, windows out.

Times are counted in VAD steps of 32 ms from the start of the signal.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from xdna_asr.vad import WINDOW as STEP_SAMPLES

STEPS_PER_SECOND: Final = 16_000 / STEP_SAMPLES


def _steps(seconds: float) -> int:
    return round(seconds * STEPS_PER_SECOND)


MAX_WINDOW: Final = _steps(20.0)
"""Longest window. Whisper takes 30 s, but skips more the more sentences it hears at once."""
LONG_PAUSE: Final = _steps(2.0)
"""A pause that ends a window even if more speech would fit."""
SHORT_PAUSE: Final = _steps(0.13)
"""Silence shorter than this does not part two stretches of speech."""
PADDING: Final = _steps(0.35)
"""What is kept before and after speech: soft first and last sounds lie there."""
ONSET: Final = 0.5
OFFSET: Final = 0.35
"""Speech begins where the probability passes ONSET and ends where it falls below OFFSET (snakers4/silero-vad)."""
DOUBTFUL_ONSET: Final = 0.3
"""Weaker evidence: worth a decode, but its text must be likely to be believed."""


@dataclass(frozen=True)
class Speech:
    """A stretch of speech [begin, end) in VAD steps; `peak` is its highest probability."""

    begin: int
    end: int
    peak: float


@dataclass(frozen=True)
class Window:
    """A part [begin, end) of the signal, in VAD steps, to be decoded at once."""

    begin: int
    end: int
    certain: bool
    """Whether voice activity leaves no doubt that somebody speaks."""
    open_end: bool
    """The window had to be cut inside running speech: decode it with timestamps and go on at its last one."""


def speech_regions(probabilities: Sequence[float], first: int = 0) -> list[Speech]:
    """Stretches of speech in `probabilities`, whose first one belongs to step `first`."""
    regions: list[Speech] = []
    begin, peak, quiet = -1, 0.0, 0
    for step, probability in enumerate(probabilities, start=first):
        if begin < 0:
            if probability >= DOUBTFUL_ONSET:
                begin, peak, quiet = step, probability, 0
            continue
        peak = max(peak, probability)
        quiet = quiet + 1 if probability < (OFFSET if peak >= ONSET else DOUBTFUL_ONSET) else 0
        if quiet > SHORT_PAUSE:
            regions.append(Speech(begin, step - quiet + 1, peak))
            begin = -1
    if begin >= 0:
        regions.append(Speech(begin, first + len(probabilities) - quiet, peak))
    return regions


@dataclass
class Windower:
    """Collects VAD probabilities and yields windows as soon as it is clear where they end."""

    long_pause: int = LONG_PAUSE
    """Steps of silence that end a window."""
    _probabilities: list[float] = field(default_factory=list)
    _first: int = 0

    @property
    def first(self) -> int:
        """Step before which nothing is needed any more."""
        return self._first

    @property
    def end(self) -> int:
        """Number of steps seen."""
        return self._first + len(self._probabilities)

    def push(self, probabilities: Sequence[float]) -> None:
        """Take the probabilities of the next steps."""
        self._probabilities.extend(probabilities)

    def advance(self, step: int) -> None:
        """Forget what lies before `step`."""
        drop = min(max(step - self._first, 0), len(self._probabilities))
        del self._probabilities[:drop]
        self._first += drop

    def if_finished(self) -> Window | None:
        """The window that would come next if the signal ended here."""
        return replace(self, _probabilities=list(self._probabilities)).next(finished=True)

    def next(self, *, finished: bool) -> Window | None:
        """The next window, or None while more of the signal is needed (or nothing is left)."""
        regions = speech_regions(self._probabilities, self._first)
        if not regions:
            self.advance(self.end if finished else self.end - PADDING)
            return None
        begin = max(self._first, regions[0].begin - PADDING)
        limit = begin + MAX_WINDOW
        pauses = [after.begin - before.end for before, after in pairwise(regions)]
        pauses.append(self.long_pause + 1 if finished else self.end - regions[-1].end)
        fitting = [index for index, region in enumerate(regions) if region.end + PADDING <= limit]
        for index in fitting:
            if pauses[index] > self.long_pause:
                return self._window(begin, regions, index)
        if self.end <= limit and not finished:
            return None
        if not fitting:
            return Window(begin, min(limit, self.end), regions[0].peak >= ONSET, open_end=True)
        late = [index for index in fitting if regions[index].end - begin >= MAX_WINDOW / 2]
        return self._window(begin, regions, max(late or fitting, key=lambda index: pauses[index]))

    def _window(self, begin: int, regions: Sequence[Speech], last: int) -> Window:
        """The window from `begin` to the pause after region number `last`."""
        end = min(regions[last].end + PADDING, self.end)
        if last + 1 < len(regions):
            end = min(end, (regions[last].end + regions[last + 1].begin + 1) // 2)
        return Window(begin, end, any(region.peak >= ONSET for region in regions[: last + 1]), open_end=False)
