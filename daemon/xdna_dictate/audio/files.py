"""Audio files and pipes as 16 kHz mono blocks, in bounded memory."""

import contextlib
import importlib.util
import os
import shutil
import stat
import struct
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from xdna_asr.features import SAMPLE_RATE
from xdna_dictate.audio.channels import mix
from xdna_dictate.errors import AudioError

F32 = NDArray[np.float32]

STANDARD_INPUT: Final = "-"
_BLOCK_SECONDS: Final = 2
_MAX_CHANNELS: Final = 64
_LOUDEST: Final = 1e4
"""Samples beyond this are errors, not sound."""
_OUTLIERS: Final = 0.999
"""A recording that is too loud is scaled by this quantile: a few wild samples must not mute the rest."""
_OFFSET: Final = 0.02


@dataclass(frozen=True)
class AudioFile:
    """An opened file: `blocks` gives its sound once; `seconds` is None where the file does not say."""

    seconds: float | None
    blocks: Iterator[F32]


@contextlib.contextmanager
def open_audio(source: str, shown: str | None = None) -> Iterator[AudioFile]:
    """Open the file `source` ("-": standard input) of any kind libsndfile reads, or FFmpeg where PyAV is installed.

    Raises AudioError with the name `shown`, by default `source`, and the reason.
    """
    name = source if shown is None else shown
    with contextlib.ExitStack() as stack:
        try:
            path = _seekable(stack, source, name)
            audio = _open(stack, path, name)
        except OSError as error:
            raise AudioError(f"{name}: {(error.strerror or str(error)).lower()}") from error
        yield audio


def _seekable(stack: contextlib.ExitStack, source: str, name: str) -> Path:
    """The path of `source`, or of a private copy of it if it is a pipe."""
    if source == STANDARD_INPUT:
        return stack.enter_context(_copied(sys.stdin.buffer))
    try:
        mode = os.stat(source).st_mode
    except ValueError as error:
        raise AudioError(f"{name!r}: not a file name ({error})") from error
    if stat.S_ISDIR(mode):
        raise AudioError(f"{name}: is a folder, not an audio file")
    with open(source, "rb") as file:
        return Path(source) if stat.S_ISREG(mode) else stack.enter_context(_copied(file))


def _open(stack: contextlib.ExitStack, path: Path, name: str) -> AudioFile:
    try:
        file = _open_soundfile(stack, path)
    except soundfile.LibsndfileError as error:
        return _open_with_pyav(stack, path, name, str(error.error_string))
    if file.channels > _MAX_CHANNELS:
        raise AudioError(f"{name}: {file.channels} channels can't be right")
    return AudioFile(file.frames / file.samplerate, _mono_16k(_soundfile_blocks(file, name), file.samplerate))


@contextlib.contextmanager
def _copied(pipe: Any) -> Iterator[Path]:
    """A private copy that has no name from the start, so that nothing of it outlives this process."""
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(pipe, copy)
        copy.flush()
        yield Path(f"/proc/self/fd/{copy.fileno()}")


def _open_soundfile(stack: contextlib.ExitStack, path: Path) -> soundfile.SoundFile:
    file = stack.enter_context(soundfile.SoundFile(os.fsencode(path)))
    if file.frames == 0 and file.format in ("WAV", "WAVEX"):
        repaired = stack.enter_context(_with_true_size(path))
        if repaired is not None:
            return stack.enter_context(soundfile.SoundFile(os.fsencode(repaired)))
    return file


@contextlib.contextmanager
def _with_true_size(path: Path) -> Iterator[Path | None]:
    """A copy of a WAV file whose recorder died before it wrote how much sound follows; None if none follows."""
    with path.open("rb") as file:
        position = 12
        while True:
            file.seek(position)
            head = file.read(8)
            if len(head) < 8:
                yield None
                return
            kind, size = struct.unpack("<4sI", head)
            if kind == b"data":
                break
            position += 8 + size + size % 2
        missing = path.stat().st_size - position - 8
        if size != 0 or missing <= 0:
            yield None
            return
        file.seek(0)
        with _copied(file) as copy:
            with copy.open("r+b") as out:
                out.seek(position + 4)
                out.write(struct.pack("<I", min(missing, 0xFFFFFFFF)))
            yield copy


def _soundfile_blocks(file: soundfile.SoundFile, name: str) -> Iterator[F32]:
    try:
        while len(block := file.read(file.samplerate * _BLOCK_SECONDS, dtype="float32", always_2d=True)):
            yield block
    except soundfile.LibsndfileError as error:
        raise AudioError(f"{name}: can't be read to its end ({error.error_string})") from error


def _open_with_pyav(stack: contextlib.ExitStack, path: Path, name: str, refusal: str) -> AudioFile:
    """Second try, with FFmpeg's decoders."""
    if path.stat().st_size == 0:
        raise AudioError(f"{name}: the file is empty")
    if importlib.util.find_spec("av") is None:
        hint = "; if it is, this may help: pip install 'xdna-dictate[ffmpeg]'"
        raise AudioError(f"{name}: not an audio file that libsndfile can read ({refusal.strip(' .')}){hint}")
    import av

    try:
        container = stack.enter_context(av.open(str(path.absolute())))
        stream = container.streams.audio[0]
        seconds = float(stream.duration * stream.time_base) if stream.duration and stream.time_base else None
    except (av.FFmpegError, IndexError, UnicodeError) as error:
        raise AudioError(f"{name}: not an audio file ({refusal.strip(' .')})") from error
    if stream.codec_context is None or stream.codec_context.sample_rate <= 0:
        raise AudioError(f"{name}: its sound is in a format that FFmpeg can't decode")
    rate = stream.codec_context.sample_rate

    def frames() -> Iterator[F32]:
        resampler = av.AudioResampler(format="fltp", rate=rate)
        try:
            for frame in container.decode(stream):
                for part in resampler.resample(frame):
                    yield np.asarray(part.to_ndarray(), np.float32).T
        except (av.FFmpegError, ValueError) as error:
            raise AudioError(f"{name}: can't be read to its end ({error})") from error

    return AudioFile(seconds, _mono_16k(_gathered(frames(), rate * _BLOCK_SECONDS), rate))


def _gathered(frames: Iterator[F32], size: int) -> Iterator[F32]:
    """Short (n, channels) frames joined to blocks of at least `size`, the last one less."""
    held: list[F32] = []
    for frame in frames:
        if held and held[0].shape[1] != frame.shape[1]:
            yield np.concatenate(held)
            held = []
        held.append(frame)
        if sum(map(len, held)) >= size:
            yield np.concatenate(held)
            held = []
    if held:
        yield np.concatenate(held)


def _mono_16k(blocks: Iterator[F32], rate: int) -> Iterator[F32]:
    """(n, channels) blocks at `rate` -> (m,) blocks at 16 kHz, within [-1, 1], NaN and infinity silenced."""
    resampler = None if rate == SAMPLE_RATE else soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32")
    scale = 1.0
    for block in blocks:
        clean = np.clip(np.nan_to_num(block, nan=0.0, posinf=0.0, neginf=0.0), -_LOUDEST, _LOUDEST)
        mono = _without_offset(mix(clean))
        scale = max(scale, float(np.quantile(np.abs(mono), _OUTLIERS)) if len(mono) else 0.0)
        mono = np.clip(mono / np.float32(scale), -1, 1)
        yield mono if resampler is None else np.asarray(resampler.resample_chunk(mono), np.float32)
    if resampler is not None:
        yield np.asarray(resampler.resample_chunk(np.zeros(0, np.float32), last=True), np.float32)


def _without_offset(mono: F32) -> F32:
    """`mono` centred on zero if it is far from it, as from a cheap sound card; voice activity would not hear it."""
    offset = float(np.median(mono)) if len(mono) else 0.0
    return np.asarray(mono - offset, np.float32) if abs(offset) > _OFFSET else mono
