"""Opens a model on a back end."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from xdna_asr.models.whisper import WhisperDims
from xdna_asr.ops.graph import FLOAT32, QUANTISED
from xdna_asr.runtime.cpu import CpuWhisper
from xdna_asr.runtime.graphs import cached_graphs
from xdna_asr.runtime.select import Choice
from xdna_asr.store import ModelStore
from xdna_asr.text.vocabulary import Vocabulary
from xdna_asr.transcribe import Options, Transcriber
from xdna_asr.vad import SpeechDetector

PRECISIONS = {"int8": QUANTISED, "float32": FLOAT32}


@dataclass(frozen=True)
class Recogniser:
    """A transcriber, and what it runs on."""

    transcriber: Transcriber
    model: str
    choice: Choice


def open_recogniser(
    store: ModelStore, model_id: str, choice: Choice, options: Options, *, precision: str, threads: int
) -> Recogniser:
    """Load the installed model `model_id`; its graphs are prepared at the first use and kept.

    Raises a ModelError or BackendUnavailable with what to do.
    """
    model = store.open(model_id)
    arena = model.arena()
    dims = WhisperDims.of(arena, arena.meta["heads"])
    vocabulary = Vocabulary(arena, arena.meta, dims.vocabulary, model.tokenizer)
    heads = [(int(layer), int(head)) for layer, head in arena.meta["alignment_heads"] or dims.default_alignment_heads]
    folder = model.folder / f"cpu-{precision}"
    graphs = cached_graphs(folder, arena, arena.meta["fingerprint"], dims, heads, PRECISIONS[precision])
    with ThreadPoolExecutor() as pool:
        detector, runtime = pool.submit(SpeechDetector), pool.submit(CpuWhisper, graphs, dims, threads)
        transcriber = Transcriber(runtime.result(), vocabulary, detector.result(), options)
    return Recogniser(transcriber, model_id, choice)
