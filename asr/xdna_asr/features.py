"""Log-mel front ends: samples in, mel frames out, computed as the audio arrives."""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

SAMPLE_RATE: Final = 16_000
WINDOW: Final = 400
HOP: Final = 160
FRAMES_PER_SECOND: Final = SAMPLE_RATE // HOP
_PAD: Final = WINDOW // 2
_LOG_FLOOR: Final = 1e-10
_DECADES: Final = 8.0


def _hz_to_mel(hz: NDArray[np.float64]) -> NDArray[np.float64]:
    """Slaney's scale: linear below 1 kHz, logarithmic above (Auditory Toolbox, 1998; librosa's default)."""
    return np.where(hz < 1000, hz * 3 / 200, 15 + np.log(np.maximum(hz, 1e-9) / 1000) * 27 / np.log(6.4))


def _mel_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * np.log(6.4) / 27))


@lru_cache
def mel_filters(n_mels: int) -> F32:
    """(WINDOW / 2 + 1, n_mels) triangles of unit area between 0 and 8 kHz, Slaney scale and norm."""
    bins = np.linspace(0, SAMPLE_RATE / 2, WINDOW // 2 + 1)
    corners = _mel_to_hz(np.linspace(0, _hz_to_mel(np.array([SAMPLE_RATE / 2.0]))[0], n_mels + 2))
    low, centre, high = corners[:-2], corners[1:-1], corners[2:]
    rising = (bins[:, None] - low) / (centre - low)
    falling = (high - bins[:, None]) / (high - centre)
    return (np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)).astype(np.float32)


@lru_cache
def _hann() -> F32:
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)).astype(np.float32)


class MelStream:
    """Whisper's log-mel spectrogram of a growing signal.

    Each frame is computed as soon as its window of WINDOW samples is complete; frame f is centred on sample f * HOP.
    Normalisation is relative to the loudest bin of the stretch asked for, so it waits until then.
    Source: openai/whisper `audio.py` (log10, eight decades below the maximum, (x + 4) / 4).
    """

    def __init__(self, n_mels: int = 80) -> None:
        self._filters = mel_filters(n_mels)
        self._signal = np.zeros(0, np.float32)
        self._mirrored = False
        self._samples = 0
        self._first = 0
        self._frames = np.zeros((0, n_mels), np.float32)

    def push(self, samples: F32) -> None:
        """Take `samples` (mono, 16 kHz, any number)."""
        self._samples += len(samples)
        self._signal = np.concatenate([self._signal, samples])
        if not self._mirrored and len(self._signal) > _PAD:
            self._signal = np.concatenate([self._signal[_PAD:0:-1], self._signal])
            self._mirrored = True
        if self._mirrored:
            self._compute()

    def finish(self) -> int:
        """Let silence follow; returns the number of frames up to the last one that hears any of the signal."""
        count = -(-(self._samples + _PAD) // HOP)
        self.push(np.zeros(count * HOP + WINDOW - self._samples, np.float32))
        return count

    @property
    def available(self) -> int:
        """Number of frames computed so far."""
        return self._first + len(self._frames)

    def frames(self, begin: int, end: int) -> F32:
        """(end - begin, n_mels) normalised frames; none may be forgotten or yet to come."""
        if not self._first <= begin <= end <= self.available:
            raise ValueError(f"frames {begin} to {end} of {self._first} to {self.available}")
        log_power = self._frames[begin - self._first : end - self._first]
        loudest = log_power.max(initial=np.log10(_LOG_FLOOR))
        return np.asarray((np.maximum(log_power, loudest - _DECADES) + 4) / 4, np.float32)

    def forget(self, before: int) -> None:
        """Drop frames earlier than `before`."""
        drop = min(max(before - self._first, 0), len(self._frames))
        self._frames = self._frames[drop:].copy()
        self._first += drop

    def _compute(self) -> None:
        count = (len(self._signal) - WINDOW) // HOP + 1
        if count <= 0:
            return
        windows = np.lib.stride_tricks.sliding_window_view(self._signal, WINDOW)[: count * HOP : HOP]
        spectrum = np.fft.rfft(windows * _hann(), axis=1)
        power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32)
        self._frames = np.concatenate([self._frames, np.log10(np.maximum(power @ self._filters, _LOG_FLOOR))])
        self._signal = self._signal[count * HOP :]


def log_mel(samples: F32, n_mels: int = 80) -> F32:
    """(frames, n_mels) normalised log-mel spectrogram of a whole signal that silence follows."""
    stream = MelStream(n_mels)
    stream.push(samples)
    return stream.frames(0, stream.finish())


def silent_mel(mel: F32) -> float:
    """The value that silence after `mel` has under its normalisation: eight decades below its loudest bin."""
    floor = (np.log10(_LOG_FLOOR) + 4) / 4
    return float(max(mel.max(initial=floor) - _DECADES / 4, floor))
