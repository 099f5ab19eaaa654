"""Voice activity while somebody may speak at any time: a cheap gate lets Silero sleep in silence."""

from typing import Final

import numpy as np
import webrtcvad
from numpy.typing import NDArray

from xdna_asr.features import SAMPLE_RATE
from xdna_asr.vad import WINDOW, SileroModel, SpeechDetector

F32 = NDArray[np.float32]

_FRAME: Final = SAMPLE_RATE // 50
_MOST_WILLING: Final = 0
_STAYS_OPEN: Final = 2 * SAMPLE_RATE
_LEAD_IN: Final = 16 * WINDOW
"""What Silero hears of the past when it wakes: half a second."""
_STIRRING: Final = 0.1
"""A probability that keeps the gate open."""


class Voice:
    """Probability of speech for each WINDOW samples of a growing signal; 0 while the gate is closed.

    The gate is WebRTC's detector in its most willing mode: it takes hum and keys for speech, so it is no judge, but it hardly
    ever sleeps through a word. Silero decides.
    """

    def __init__(self, model: SileroModel) -> None:
        self._silero, self._webrtc = SpeechDetector(model), webrtcvad.Vad(_MOST_WILLING)
        self._pending = np.zeros(0, np.float32)
        self._past = np.zeros(_LEAD_IN, np.float32)
        self._open = _STAYS_OPEN

    def push(self, samples: F32) -> list[float]:
        """Take `samples` (mono, 16 kHz, any number)."""
        self._pending = np.concatenate([self._pending, samples])
        whole = len(self._pending) // WINDOW * WINDOW
        steps, self._pending = self._pending[:whole].reshape(-1, WINDOW), self._pending[whole:]
        return [self._probability(step) for step in steps]

    def finish(self) -> list[float]:
        """The last, incomplete step."""
        return self.push(np.zeros(-len(self._pending) % WINDOW, np.float32))

    def _probability(self, step: F32) -> float:
        woken = self._stirs(step)
        if woken and not self._open:
            self._silero.reset()
            self._silero.push(self._past)
        self._open = _STAYS_OPEN if woken else max(self._open - WINDOW, 0)
        self._past = np.concatenate([self._past[WINDOW:], step])
        if not self._open:
            return 0.0
        probability = float(self._silero.push(step)[0])
        if probability > _STIRRING:
            self._open = _STAYS_OPEN
        return probability

    def _stirs(self, step: F32) -> bool:
        frame = (np.clip(step[-_FRAME:], -1, 1) * 32767).astype(np.int16)
        return bool(self._webrtc.is_speech(frame.tobytes(), SAMPLE_RATE))
