"""The Whisper model on both op sets, with small random weights of every vocabulary kind."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from random_whisper import KINDS, checkpoint
from xdna_asr.context import continue_with_silence, full_window, sparse_tail
from xdna_asr.errors import ModelDamaged
from xdna_asr.models.whisper import WhisperDims
from xdna_asr.ops.graph import FLOAT32, QUANTISED
from xdna_asr.runtime.causal import causal_bias
from xdna_asr.runtime.cpu import CpuWhisper
from xdna_asr.runtime.eager import NumpyWhisper
from xdna_asr.runtime.graphs import ENCODER, WEIGHTS, cached_graphs
from xdna_asr.types import DecoderRun
from xdna_asr.weights.whisper import from_huggingface

HEADS = [(1, 0), (1, 1)]


def greedy(run: DecoderRun, prompt: list[int], count: int) -> list[int]:
    tokens, output = [], run.step(prompt)
    for _ in range(count):
        tokens.append(int(output.logits[-1].argmax()))
        output = run.step(tokens[-1:])
    return tokens


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_equal_numpy_for_every_vocabulary(kind: str, tmp_path: Path) -> None:
    vocabulary, mels = KINDS[kind]
    tensors = from_huggingface(checkpoint(vocabulary, mels))
    dims = WhisperDims.of(tensors, heads=2)
    assert (dims.vocabulary, dims.n_mels, dims.encoder_layers, dims.decoder_layers) == (vocabulary, mels, 2, 2)
    eager = NumpyWhisper(tensors, dims, HEADS)
    graphs = {
        name: cached_graphs(tmp_path / name, tensors, "f", dims, HEADS, precision)
        for name, precision in (("f", FLOAT32), ("q", QUANTISED))
    }
    mel = np.random.default_rng(3).standard_normal((300, mels)).astype(np.float32)
    for layout in (sparse_tail(300), full_window(300)):
        frames = continue_with_silence(mel, layout, -1.0)
        expected = eager.encode(frames, layout)
        tokens = greedy(eager.decoder(expected), [vocabulary - 1507, 7, 9], 8)
        for name, limit in (("f", 1e-5), ("q", 2e-2)):
            model = CpuWhisper(graphs[name], dims)
            audio = model.encode(frames, layout)
            truth = np.concatenate([cache.k.ravel() for cache in expected.handle])
            got = np.concatenate([audio.handle[f"audio.k.{layer}"].numpy().ravel() for layer in range(2)])
            assert np.linalg.norm(got - truth) / np.linalg.norm(truth) < limit
            if name == "f":
                assert greedy(model.decoder(audio), [vocabulary - 1507, 7, 9], 8) == tokens


def test_a_prompt_at_once_equals_token_by_token() -> None:
    tensors = from_huggingface(checkpoint(*KINDS[".en"]))
    model = NumpyWhisper(tensors, WhisperDims.of(tensors, heads=2), HEADS)
    layout = sparse_tail(100)
    audio = model.encode(continue_with_silence(np.zeros((100, 80), np.float32), layout, -1.0), layout)
    at_once = model.decoder(audio).step([5, 6, 7, 8], wanted=[0, 1, 2, 3])
    run = model.decoder(audio)
    single = [run.step([token]) for token in (5, 6, 7, 8)]
    assert np.allclose(at_once.logits, np.concatenate([output.logits for output in single]), atol=1e-4)
    assert np.allclose(at_once.alignment, np.concatenate([output.alignment for output in single], axis=1), atol=1e-5)


def test_causal_bias_hides_only_the_future() -> None:
    assert (causal_bias(2, 3) == 0).tolist() == [[True] * 3 + [False] * 2, [True] * 4 + [False], [True] * 5]


def test_a_checkpoint_without_a_tensor_is_refused_by_its_name() -> None:
    source = checkpoint(*KINDS[".en"])
    del source["model.decoder.layers.1.fc2.bias"]
    with pytest.raises(ModelDamaged, match=r"layers\.1\.fc2\.bias"):
        from_huggingface(source)


def test_prepared_graphs_are_kept_until_they_are_stale_or_damaged(tmp_path: Path) -> None:
    tensors = from_huggingface(checkpoint(*KINDS[".en"]))
    dims = WhisperDims.of(tensors, heads=2)

    def prepare(fingerprint: str) -> int:
        return (cached_graphs(tmp_path / "g", tensors, fingerprint, dims, HEADS, FLOAT32) / ENCODER).stat().st_mtime_ns

    first = prepare("a")
    assert prepare("a") == first
    assert prepare("b") > first
    (tmp_path / "g" / WEIGHTS).write_bytes(b"short")
    assert prepare("b") > first
    assert CpuWhisper(tmp_path / "g", dims)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "g"]


def test_two_processes_may_prepare_one_model_at_once(tmp_path: Path) -> None:
    tensors = from_huggingface(checkpoint(*KINDS[".en"]))
    dims = WhisperDims.of(tensors, heads=2)
    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(cached_graphs, tmp_path / "g", tensors, "f", dims, HEADS, FLOAT32) for _ in range(4)]
        assert {job.result() for job in work} == {tmp_path / "g"}
    assert CpuWhisper(tmp_path / "g", dims)
