"""The bundled recordings, and the larger public set where it lies beside the repository."""

import csv
from pathlib import Path

import numpy as np
import soundfile

from xdna_asr.types import F32

DATA = Path(__file__).parent / "data"
SPEECH = DATA / "speech"
PUBLIC = Path(__file__).parents[2] / "shared" / "data" / "speech"


def speech(name: str) -> F32:
    """Samples of a bundled clip."""
    samples, _ = soundfile.read(SPEECH / name, dtype="float32")
    return np.asarray(samples, np.float32)


def table(path: Path) -> list[dict[str, str]]:
    """Rows of a tab-separated table."""
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))
