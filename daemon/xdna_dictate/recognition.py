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
from xdna_asr.transcribe import Transcriber
from xdna_asr.types import WhisperRuntime
from xdna_asr.vad import SileroModel, SpeechDetector, on_onnxruntime
from xdna_asr.window_decoder import Options, WindowDecoder

PRECISIONS = {"int8": QUANTISED, "float32": FLOAT32}


@dataclass(frozen=True)
class Recogniser:
    """A loaded model, and what it runs on."""

    runtime: WhisperRuntime
    vocabulary: Vocabulary
    voice_activity: SileroModel
    model: str
    choice: Choice

    def decoder(self, options: Options) -> WindowDecoder:
        """Decodes windows. Raises UnsupportedLanguage."""
        return WindowDecoder(self.runtime, self.vocabulary, options)

    def transcriber(self, options: Options) -> Transcriber:
        """Transcribes whole signals. Raises UnsupportedLanguage."""
        return Transcriber(self.decoder(options), SpeechDetector(self.voice_activity))


def open_recogniser(store: ModelStore, model_id: str, choice: Choice, *, precision: str, threads: int) -> Recogniser:
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
        voice_activity, runtime = pool.submit(on_onnxruntime), pool.submit(CpuWhisper, graphs, dims, threads)
        return Recogniser(runtime.result(), vocabulary, voice_activity.result(), model_id, choice)
