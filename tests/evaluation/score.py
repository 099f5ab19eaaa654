"""Scores a model and back end on a manifest of recordings. `make eval MANIFEST=... EVAL="--language en"`.

A manifest is a tab-separated table with the columns file, language, score (wer, digits, empty) and reference.
"""

import argparse
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from scoring import Score

from recordings import table
from xdna_asr.runtime.select import choose
from xdna_asr.store import ModelStore
from xdna_asr.transcribe import Transcriber
from xdna_asr.window_decoder import Options
from xdna_dictate.audio.files import open_audio
from xdna_dictate.paths import models_folder
from xdna_dictate.recognition import open_recogniser


def evaluate(
    transcriber: Transcriber, rows: list[dict[str, str]], folder: Path, *, noise: float | None = None, verbose: bool = False
) -> tuple[Score, float]:
    """The score over `rows`, with white noise of `noise` dB relative to full scale; and processor seconds per second of sound."""
    score, processor, seconds = Score(), 0.0, 0.0
    rng = np.random.default_rng(0)
    for row in rows:
        with open_audio(str(folder / row["file"])) as audio:
            blocks = list(audio.blocks)
        if noise is not None:
            blocks = [block + rng.normal(0, 10 ** (noise / 20), len(block)).astype(np.float32) for block in blocks]
        began = time.process_time()
        text = " ".join(segment.text for segment in transcriber.transcribe(blocks))
        processor += time.process_time() - began
        seconds += audio.seconds or 0.0
        errors = score.add(row, text)
        if verbose and errors:
            print(f"{errors:3d}  {row['file']}\n     said:  {row['reference']}\n     heard: {text}")
    return score, processor / max(seconds, 1e-9)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--model", default="whisper-tiny.en")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--context", default="sparse")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--language", default="en", help="only these rows, and those without speech")
    parser.add_argument("--noise", type=float, metavar="DB", help="add white noise of this level relative to full scale")
    parser.add_argument("--verbose", action="store_true", help="show every clip with errors")
    wanted = parser.parse_args()
    rows = [row for row in table(wanted.manifest) if row["language"] in (wanted.language, "none")]
    options = Options(language=wanted.language, context=wanted.context)
    recogniser = open_recogniser(
        ModelStore(models_folder()),
        wanted.model,
        choose(wanted.backend),
        precision=wanted.precision,
        threads=wanted.threads,
    )
    score, effort = evaluate(
        recogniser.transcriber(options), rows, wanted.manifest.parent, noise=wanted.noise, verbose=wanted.verbose
    )
    how = f"{recogniser.choice.backend} {wanted.precision} {wanted.context}"
    print(f"{wanted.model} {how}, {wanted.language}, {len(rows)} clips: {score}")
    print(f"processor time per second of sound: {effort:.4f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
