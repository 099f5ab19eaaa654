"""Cuts what the microphone hears into windows for the recogniser while it goes on. Pure: samples in, windows out."""

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xdna_asr.vad import WINDOW, SileroModel
from xdna_asr.windows import OFFSET, ONSET, PADDING, STEPS_PER_SECOND, Window, Windower
from xdna_dictate.audio.voice import Voice

F32 = NDArray[np.float32]

LONG_PAUSE: Final = round(1.5 * STEPS_PER_SECOND)
"""A pause that ends a window: its text is final while the speaker thinks. Shorter ones cost words (docs/live.md)."""
HANGOVER: Final = round(0.32 * STEPS_PER_SECOND)
"""Quiet steps after which nobody speaks any more."""
HUSH: Final = 4
"""Quiet steps after which the last word is complete."""
HANGOVER_SECONDS: Final = HANGOVER / STEPS_PER_SECOND


@dataclass(frozen=True)
class Heard:
    """What changed with the last samples."""

    started: bool = False
    ended: bool = False


class Segmenter:
    """Windows of one dictation, in order; times in VAD steps of 32 ms."""

    def __init__(self, voice_activity: SileroModel) -> None:
        self._voice, self._windower = Voice(voice_activity), Windower(LONG_PAUSE)
        self._blocks: deque[F32] = deque()
        self._first_sample = 0
        self.samples = 0
        """How many samples were heard."""
        self.finished = self.speaking = False
        self._quiet = 0

    def push(self, samples: F32) -> Heard:
        """Take `samples` (mono, 16 kHz, any number)."""
        self._keep(samples)
        return self._hear(self._voice.push(samples))

    def finish(self) -> Heard:
        """No more samples will come."""
        self.finished = True
        heard = self._hear(self._voice.finish())
        return Heard(heard.started, heard.ended or self.speaking)

    def window(self) -> Window | None:
        """The next complete window; the same until `advance`."""
        window = self._windower.next(finished=self.finished)
        self._forget()
        return window

    def paused(self) -> Window | None:
        """In a pause long enough to hold all of the last word: the window that would be complete if nothing followed."""
        if self.speaking or self._quiet <= PADDING:
            return None
        return self._windower.if_finished()

    def growing(self) -> Window | None:
        """The window that is being spoken, as far as it was heard."""
        return self._windower.if_finished() if self.speaking else None

    def sound(self, window: Window) -> F32:
        """The samples of `window`."""
        begin, end = window.begin * WINDOW - self._first_sample, window.end * WINDOW - self._first_sample
        return np.concatenate(self._blocks)[max(begin, 0) : end]

    def advance(self, window: Window, resume: float | None) -> None:
        """`window` was decoded: go on after it, or `resume` seconds into it."""
        self._windower.advance(window.end if resume is None else window.begin + int(resume * STEPS_PER_SECOND))
        self._forget()

    def _hear(self, probabilities: list[float]) -> Heard:
        started = ended = False
        self._windower.push(probabilities)
        for probability in probabilities:
            self._quiet = 0 if probability >= (OFFSET if self.speaking else ONSET) else self._quiet + 1
            if not self.speaking and self._quiet == 0:
                self.speaking = started = True
            elif self.speaking and self._quiet >= HANGOVER:
                self.speaking, ended = False, True
        return Heard(started, ended)

    def _keep(self, samples: F32) -> None:
        self._blocks.append(samples)
        self.samples += len(samples)

    def _forget(self) -> None:
        needed = self._windower.first * WINDOW
        while self._blocks and self._first_sample + len(self._blocks[0]) <= needed:
            self._first_sample += len(self._blocks.popleft())

    @property
    def voiced(self) -> bool:
        """Whether somebody speaks at this very moment."""
        return self.speaking and self._quiet < HUSH

    @property
    def unread(self) -> int:
        """How many samples may still be asked for."""
        return self.samples - self._first_sample
