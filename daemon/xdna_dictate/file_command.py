"""`xdna-dictate --file`: audio files to transcripts."""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from xdna_asr.features import SAMPLE_RATE
from xdna_asr.runtime.select import choose
from xdna_asr.store import ModelStore
from xdna_asr.transcribe import Transcriber
from xdna_asr.window_decoder import Options
from xdna_dictate.audio.files import F32, AudioFile, open_audio
from xdna_dictate.errors import EXIT_OK, AudioError, UsageError, exit_code
from xdna_dictate.output.formats import writer
from xdna_dictate.paths import models_folder
from xdna_dictate.recognition import Recogniser, open_recogniser


def run_files(arguments: argparse.Namespace) -> int:
    """Transcribe every file; a bad one is reported and the others still done. Returns the exit code."""
    targets = _targets(arguments)
    began = time.monotonic()
    recogniser = open_recogniser(
        ModelStore(models_folder()),
        arguments.model,
        choose(arguments.backend),
        precision=arguments.precision,
        threads=arguments.threads,
    )
    transcriber = recogniser.transcriber(_options(arguments))
    if arguments.verbose:
        loaded = f"loaded in {time.monotonic() - began:.2f} s"
        _say(f"{recogniser.model} on {recogniser.choice.backend} ({recogniser.choice.detail}), {loaded}")
    code = EXIT_OK
    for name, target in targets.items():
        try:
            with open_audio(name) as audio:
                _transcribe(arguments, recogniser, transcriber, name, audio, target)
        except AudioError as error:
            _say(str(error))
            code = exit_code(error)
    return code


def _options(arguments: argparse.Namespace) -> Options:
    return Options(
        language=arguments.language,
        task="translate" if arguments.translate else "transcribe",
        timestamps=arguments.timestamps or arguments.format in ("srt", "vtt"),
        words=arguments.words,
        prompt=arguments.prompt,
        context=arguments.context,
    )


def _targets(arguments: argparse.Namespace) -> dict[str, Path | None]:
    """Where each file's transcript goes; None is standard output."""
    names, output = list(dict.fromkeys(arguments.file)), arguments.output
    if output is None:
        return dict.fromkeys(names)
    suffix = ".txt" if arguments.format == "text" else f".{arguments.format}"
    folder = Path(output)
    if len(names) == 1 and not folder.is_dir():
        if folder.exists() and Path(names[0]).exists() and folder.samefile(names[0]):
            raise UsageError(f"{output}: is the recording itself; name another file")
        return {names[0]: folder}
    if not folder.is_dir():
        raise UsageError(f"{output}: for several files --output must be an existing folder")
    targets = {name: folder / f"{Path(name).stem if name != '-' else 'stdin'}{suffix}" for name in names}
    if len(set(targets.values())) < len(targets):
        raise UsageError(f"{output}: two of the files would be written under one name there")
    return dict(targets)


def _transcribe(
    arguments: argparse.Namespace,
    recogniser: Recogniser,
    transcriber: Transcriber,
    name: str,
    audio: AudioFile,
    target: Path | None,
) -> None:
    began, details = time.monotonic(), {"model": recogniser.model, "backend": recogniser.choice.backend}
    with _opened(target) as output, _progress(arguments, name, audio) as blocks:
        if target is None and arguments.format != "json" and len(arguments.file) > 1:
            output.stream.write(f"==> {name} <==\n")
        form = writer(arguments.format, output.stream, name, details, times=arguments.timestamps, words=arguments.words)
        language, samples, spoke = "", 0, False

        def counted() -> Iterator[F32]:
            nonlocal samples
            for block in blocks:
                samples += len(block)
                yield block

        try:
            for segment in transcriber.transcribe(counted()):
                if segment.text:
                    form.segment(segment)
                    spoke, language, output.keep = True, segment.language, True
        finally:
            form.close()
    if arguments.verbose:
        heard = f"language {language}" if spoke else "no speech"
        _say(f"{name}: {samples / SAMPLE_RATE:.2f} s of sound, {heard}, done in {time.monotonic() - began:.2f} s")
    elif not spoke and not arguments.quiet:
        _say(f"{name}: no speech")


class _Output:
    """Where one transcript goes: standard output, a device or pipe, or a file that appears when there is text to keep."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.keep = stream, False


@contextlib.contextmanager
def _opened(target: Path | None) -> Iterator[_Output]:
    """An output for `target`; on an error or interrupt a file keeps what was finished, or stays as it was if nothing was."""
    if target is None:
        yield _Output(sys.stdout)
        return
    try:
        if target.exists() and not target.is_file():
            with target.open("w", encoding="utf-8", errors="backslashreplace") as device:
                yield _Output(device)
            return
        folder = target.resolve().parent
        descriptor, part = tempfile.mkstemp(dir=folder, prefix=f".{target.name}.")
    except OSError as error:
        raise UsageError(f"{target}: can't be written ({(error.strerror or str(error)).lower()})") from error
    output = _Output(os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace"))
    try:
        with output.stream:
            yield output
            output.keep = True
    finally:
        if output.keep:
            os.replace(part, target.resolve())
        else:
            os.unlink(part)


@contextlib.contextmanager
def _progress(arguments: argparse.Namespace, name: str, audio: AudioFile) -> Iterator[Iterator[F32]]:
    """The blocks of `audio`, with a bar on a terminal."""
    if arguments.quiet or not sys.stderr.isatty():
        yield audio.blocks
        return
    from tqdm import tqdm

    total = round(audio.seconds, 1) if audio.seconds else None
    with tqdm(total=total, desc=Path(name).name, unit="s", leave=False, file=sys.stderr) as bar:

        def watched() -> Iterator[F32]:
            for block in audio.blocks:
                yield block
                bar.update(round(len(block) / SAMPLE_RATE, 3))

        yield watched()


def _say(message: str) -> None:
    print(f"xdna-dictate: {message}", file=sys.stderr)
