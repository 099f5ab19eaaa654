"""From samples to text: voice activity finds windows, each is decoded for itself."""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from xdna_asr.features import FRAMES_PER_SECOND, HOP, MelStream
from xdna_asr.types import F32, Segment
from xdna_asr.vad import WINDOW as STEP_SAMPLES
from xdna_asr.vad import SpeechDetector
from xdna_asr.window_decoder import Clip, WindowDecoder
from xdna_asr.windows import STEPS_PER_SECOND, Window, Windower

BLOCK: Final = 8_000


def _even(blocks: Iterable[F32]) -> Iterator[F32]:
    """The same signal in blocks of BLOCK samples, so that the windows do not depend on how it arrived."""
    pending = np.zeros(0, np.float32)
    for block in blocks:
        pending = np.concatenate([pending, block])
        whole = len(pending) // BLOCK * BLOCK
        yield from np.split(pending[:whole], range(BLOCK, whole, BLOCK)) if whole else ()
        pending = pending[whole:]
    yield pending


def _clip(mel: MelStream, window: Window) -> Clip:
    begin, end = (step * STEP_SAMPLES // HOP for step in (window.begin, window.end))
    frames = mel.frames(begin, min(end, mel.available))
    return Clip(frames, begin / FRAMES_PER_SECOND, window.certain, window.open_end)


class Transcriber:
    """Transcribes whole signals, one at a time."""

    def __init__(self, decoder: WindowDecoder, detector: SpeechDetector) -> None:
        self._decoder, self._detector = decoder, detector

    def transcribe(self, blocks: Iterable[F32]) -> Iterator[Segment]:
        """Segments of the signal in `blocks` (mono, 16 kHz), each as soon as it is final; nothing for silence."""
        mel, windower, language = MelStream(self._decoder.n_mels), Windower(), self._decoder.language
        self._decoder.rewind()
        self._detector.reset()
        for window in self._windows(blocks, mel, windower):
            decoded = self._decoder.decode(_clip(mel, window), language)
            if decoded.segments and window.certain:
                language = decoded.language
            yield from decoded.segments
            windower.advance(window.end if decoded.resume is None else int(decoded.resume * STEPS_PER_SECOND))

    def _windows(self, blocks: Iterable[F32], mel: MelStream, windower: Windower) -> Iterator[Window]:
        """Windows as they become complete; the caller advances `windower` past each."""
        for block in _even(blocks):
            mel.push(block)
            windower.push(self._detector.push(block).tolist())
            while window := windower.next(finished=False):
                yield window
            mel.forget(windower.first * STEP_SAMPLES // HOP)
        mel.finish()
        windower.push(self._detector.push(np.zeros(STEP_SAMPLES - 1, np.float32)).tolist())
        while window := windower.next(finished=True):
            yield window
