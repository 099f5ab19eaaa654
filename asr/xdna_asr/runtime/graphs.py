"""Traces Whisper into ONNX graphs, once a model and precision; the result is cached beside the model's arena.

<folder>/encoder.onnx   mel, source, positions, key_bias -> audio.k.L, audio.v.L
<folder>/decoder.onnx   tokens, positions, causal_bias, wanted, key_bias, text.*, audio.* -> logits, alignment, new_text.*
<folder>/weights.arena  the matrices in the precision the graphs want; meta says what they were made from
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from xdna_asr.errors import ModelError
from xdna_asr.locking import locked
from xdna_asr.models import whisper
from xdna_asr.models.whisper import DecoderInputs, LayerCache, WhisperDims
from xdna_asr.ops.graph import GraphOps, Precision
from xdna_asr.ops.onnx_file import ExternalTensor, OnnxGraph
from xdna_asr.weights.arena import Arena, write_arena

ENCODER: Final = "encoder.onnx"
DECODER: Final = "decoder.onnx"
WEIGHTS: Final = "weights.arena"
_PATIENCE: Final = 600.0
"""Seconds to wait for another process that prepares the same model."""
GRAPH_VERSION: Final = 2
"""Raise it when a change here, in `ops.graph` or in a model makes cached graphs stale."""

Tensors = Mapping[str, NDArray[Any]]


def cached_graphs(
    folder: Path, tensors: Tensors, fingerprint: str, dims: WhisperDims, heads: Sequence[tuple[int, int]], precision: Precision
) -> Path:
    """`folder`, filled with graphs of the model `fingerprint` if it does not hold them yet.

    They are built in a folder beside it that then takes its place, so an interrupted build leaves nothing behind.
    Raises ModelError when they can't be written.
    """
    wanted = {"fingerprint": fingerprint, "graph_version": GRAPH_VERSION, "precision": str(precision)}
    if _is_current(folder, wanted):
        return folder
    try:
        with (
            locked(folder.parent, _PATIENCE),
            tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as scratch,
        ):
            if _is_current(folder, wanted):
                return folder
            built = Path(scratch) / "graphs"
            _build(built, tensors, dims, heads, precision, wanted)
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(built, folder)
    except OSError as error:
        raise ModelError(
            f"{folder}: can't write the prepared model ({error.strerror}); free space or fix its permissions"
        ) from error
    return folder


def _is_current(folder: Path, wanted: Mapping[str, Any]) -> bool:
    try:
        return (
            Arena(folder / WEIGHTS).meta == wanted
            and (folder / ENCODER).stat().st_size > 0
            and (folder / DECODER).stat().st_size > 0
        )
    except (ModelError, OSError):
        return False


def _build(
    folder: Path,
    tensors: Tensors,
    dims: WhisperDims,
    heads: Sequence[tuple[int, int]],
    precision: Precision,
    meta: Mapping[str, Any],
) -> None:
    baked: dict[str, NDArray[Any]] = {}
    graphs = {ENCODER: OnnxGraph("encoder"), DECODER: OnnxGraph("decoder")}
    encoder, decoder = (GraphOps(graph, tensors, precision, baked) for graph in graphs.values())
    _trace_encoder(graphs[ENCODER], encoder, dims)
    _trace_decoder(graphs[DECODER], decoder, dims, heads)
    write_arena(folder / WEIGHTS, baked, meta)
    arena = Arena(folder / WEIGHTS)
    for (name, graph), ops in zip(graphs.items(), (encoder, decoder), strict=True):
        for tensor in sorted(ops.used):
            offset, nbytes = arena.location(tensor)
            graph.external(ExternalTensor(tensor, baked[tensor].dtype.name, baked[tensor].shape, WEIGHTS, offset, nbytes))
        (folder / name).write_bytes(graph.encode())


def _trace_encoder(graph: OnnxGraph, ops: GraphOps, dims: WhisperDims) -> None:
    mel = graph.input("mel", "float32", ("frames", dims.n_mels))
    source, positions = (graph.input(name, "int64", ("states",)) for name in ("source", "positions"))
    key_bias = graph.input("key_bias", "float32", ("states",))
    caches = whisper.cross_cache(ops, dims, whisper.encode(ops, dims, mel, source, positions, key_bias))
    _each_layer(caches, lambda value, name: graph.output(value, f"audio.{name}", "float32", _cache_shape(dims, "states")))


def _trace_decoder(graph: OnnxGraph, ops: GraphOps, dims: WhisperDims, heads: Sequence[tuple[int, int]]) -> None:
    def caches(kind: str, length: str) -> list[LayerCache[str]]:
        def declare(part: str, layer: int) -> str:
            return graph.input(f"{kind}.{part}.{layer}", "float32", _cache_shape(dims, length))

        return [LayerCache(declare("k", layer), declare("v", layer)) for layer in range(dims.decoder_layers)]

    inputs = DecoderInputs[str](
        tokens=graph.input("tokens", "int64", ("n",)),
        positions=graph.input("positions", "int64", ("n",)),
        causal_bias=graph.input("causal_bias", "float32", ("n", "all")),
        wanted=graph.input("wanted", "int64", ("m",)),
        text=caches("text", "past"),
        audio=caches("audio", "states"),
        key_bias=graph.input("key_bias", "float32", ("states",)),
    )
    outputs = whisper.decode(ops, dims, inputs, heads)
    graph.output(outputs.logits, "logits", "float32", ("m", dims.vocabulary))
    graph.output(outputs.alignment, "alignment", "float32", (len(heads), "n", "states"))
    _each_layer(outputs.text, lambda value, name: graph.output(value, f"new_text.{name}", "float32", _cache_shape(dims, "all")))


def _cache_shape(dims: WhisperDims, length: str) -> tuple[int, str, int]:
    return dims.heads, length, dims.d_model // dims.heads


def _each_layer(caches: Sequence[LayerCache[str]], visit: Callable[[str, str], None]) -> None:
    for layer, cache in enumerate(caches):
        visit(cache.k, f"k.{layer}")
        visit(cache.v, f"v.{layer}")
