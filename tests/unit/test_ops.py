"""Each operator: traced into a graph and run by ONNX Runtime, it gives what numpy gives."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from recordings import speech
from xdna_asr.models.silero import CONTEXT, speech_probability
from xdna_asr.ops import Ops, quantize
from xdna_asr.ops.eager import NumpyOps, erf
from xdna_asr.ops.graph import FLOAT32, QUANTISED, GraphOps, Precision
from xdna_asr.ops.onnx_file import OnnxGraph
from xdna_asr.runtime.cpu import session
from xdna_asr.types import F32
from xdna_asr.vad import SpeechDetector, on_numpy, on_onnxruntime, silero_weights, stft_frames
from xdna_asr.weights.arena import AnyArray

RNG = np.random.default_rng(5)


def normal(*shape: int) -> F32:
    return RNG.standard_normal(shape).astype(np.float32)


WEIGHTS: dict[str, AnyArray] = {
    "l.w": normal(24, 64), "l.b": normal(24), "enc.l.w": normal(24, 64), "enc.l.b": normal(24),
    "enc.0.ff.2.w": normal(24, 64), "enc.0.ff.2.b": normal(24),
    "c.w": normal(10, 6, 3), "c.b": normal(10), "n.g": normal(64), "n.b": normal(64),
    "e": normal(300, 64).astype(np.float16), "p": normal(9, 64),
    "r.wi": normal(20, 8), "r.wh": normal(20, 5), "r.b": normal(20),
}  # fmt: skip
X, HEADS = normal(7, 64), normal(3, 7, 16)
INDICES = np.array([3, 0, 8, 3])


def run_graph(
    build: Callable[[Ops[str], list[str]], list[str]], inputs: list[AnyArray], precision: Precision, ranks: list[int]
) -> list[F32]:
    """Trace `build` with free dimensions, check the model with onnx, and run it."""
    graph, baked = OnnxGraph("test"), dict[str, AnyArray]()
    names = [
        graph.input(f"x{i}", value.dtype.name, [f"d{i}_{axis}" for axis in range(value.ndim)]) for i, value in enumerate(inputs)
    ]
    outputs = build(GraphOps(graph, WEIGHTS, precision, baked), names)
    for name, tensor in baked.items():
        graph.constant(tensor, name)
    for i, output in enumerate(outputs):
        graph.output(output, f"y{i}", "float32", [f"o{i}_{axis}" for axis in range(ranks[i])])
    model = graph.encode()
    onnx.checker.check_model(onnx.load_from_string(model))
    return list(session(model, 1).run(None, dict(zip(names, inputs, strict=True))))


CASES: dict[str, tuple[Callable[[Any, Any], Any], list[AnyArray]]] = {
    "linear": (lambda ops, x: [ops.linear(x[0], "l")], [X]),
    "conv1d": (lambda ops, x: [ops.conv1d(x[0], "c", pad=1)], [normal(11, 6)]),
    "conv1d stride 2": (lambda ops, x: [ops.conv1d(x[0], "c", stride=2, pad=1)], [normal(11, 6)]),
    "conv1d even length": (lambda ops, x: [ops.conv1d(x[0], "c", stride=2, pad=1)], [normal(12, 6)]),
    "conv1d batched": (lambda ops, x: [ops.conv1d(x[0], "c", stride=2, pad=1)], [normal(4, 5, 6)]),
    "layer_norm": (lambda ops, x: [ops.layer_norm(x[0], "n")], [X * 50 + 3]),
    "add": (lambda ops, x: [ops.add(x[0], x[1])], [X, normal(64)]),
    "gelu": (lambda ops, x: [ops.gelu(x[0])], [X * 3]),
    "relu": (lambda ops, x: [ops.relu(x[0])], [X]),
    "sigmoid": (lambda ops, x: [ops.sigmoid(x[0])], [X]),
    "hypot": (lambda ops, x: [ops.hypot(x[0], x[1])], [X, normal(7, 64)]),
    "concat": (lambda ops, x: [ops.concat([x[0], x[1]], axis=0)], [X, normal(2, 64)]),
    "split": (lambda ops, x: ops.split(x[0], 4), [X]),
    "flatten": (lambda ops, x: [ops.flatten(x[0])], [HEADS]),
    "embedding half": (lambda ops, x: [ops.embedding("e", x[0])], [INDICES]),
    "embedding": (lambda ops, x: [ops.embedding("p", x[0])], [INDICES]),
    "rows": (lambda ops, x: [ops.rows(x[0], x[1])], [X, np.array([6, 0])]),
    "split_heads": (lambda ops, x: [ops.split_heads(x[0], 4)], [X]),
    "merge_heads": (lambda ops, x: [ops.merge_heads(x[0])], [HEADS]),
    "attention": (lambda ops, x: list(ops.attention(*x, 0.25)), [HEADS, normal(3, 9, 16), normal(3, 9, 16), normal(7, 9)]),
    "attention by key": (lambda ops, x: list(ops.attention(*x, 0.25)), [HEADS, normal(3, 9, 16), normal(3, 9, 16), normal(9)]),
    "attention by head": (
        lambda ops, x: [ops.attention_by_head(*x, 0.25, 4)],
        [X, normal(9, 64), normal(9, 64), normal(9)],
    ),
    "heads": (lambda ops, x: [ops.heads(x[0], [2, 0])], [HEADS]),
    "lstm": (lambda ops, x: list(ops.lstm(x[0], "r", x[1], x[2])), [normal(6, 8), normal(1, 5), normal(1, 5)]),
    "tied_logits": (lambda ops, x: [ops.tied_logits(x[0], "e")], [X]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_graph_equals_numpy(case: str) -> None:
    build, inputs = CASES[case]
    expected = build(NumpyOps(WEIGHTS), inputs)
    got = run_graph(build, inputs, FLOAT32, [value.ndim for value in expected])
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.shape == theirs.shape
        assert np.allclose(mine, theirs, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(("name", "limit"), [("enc.l", 0.02), ("enc.0.ff.2", 0.02), ("l", 0.015)])
def test_quantised_products_stay_close(name: str, limit: float) -> None:
    uneven = X * np.logspace(-3, 1, len(X), dtype=np.float32)[:, None] if ".ff." in name else X
    [got] = run_graph(lambda ops, x: [ops.linear(x[0], name)], [uneven], QUANTISED, [2])
    expected = NumpyOps(WEIGHTS).linear(uneven, name)
    error = np.linalg.norm(got - expected, axis=1) / np.linalg.norm(expected - WEIGHTS[f"{name}.b"], axis=1)
    assert error.max() < limit


def test_the_best_logits_of_a_rounded_table_are_exact() -> None:
    [got] = run_graph(lambda ops, x: [ops.tied_logits(x[0], "e")], [X], QUANTISED, [2])
    expected = NumpyOps(WEIGHTS).tied_logits(X, "e")
    assert np.array_equal(got.argmax(axis=1), expected.argmax(axis=1))
    assert np.allclose(got.max(axis=1), expected.max(axis=1), rtol=1e-5)


@pytest.mark.parametrize("bits", [7, 8])
def test_integer_columns_round_to_the_nearest_step(bits: int) -> None:
    weight = normal(5, 40)
    codes, scale = quantize.columns(weight, bits)
    assert np.abs(codes).max() == (1 << (bits - 1)) - 1
    assert np.abs(codes.T * scale[:, None] - weight).max() <= scale.max() / 2 + 1e-6


def test_eight_bits_only_where_sums_are_wide(tmp_path: Any) -> None:
    for flags, bits in (("flags : sse avx2 avx_vnni", 8), ("flags : sse avx2", 7), ("Features : fp asimddp", 8)):
        (tmp_path / "cpuinfo").write_text(flags)
        assert quantize.int8_bits(tmp_path / "cpuinfo") == bits
    assert quantize.int8_bits(tmp_path / "none") == 7


def test_erf_is_right_to_its_stated_error() -> None:
    assert erf(np.array([0.0, 0.5, 1.0, -2.0])) == pytest.approx([0, 0.5204998778, 0.8427007929, -0.9953222650], abs=1.5e-7)


def test_silero_in_onnx_runtime_equals_numpy_and_does_not_depend_on_blocks() -> None:
    samples = speech("en-sb-spk1-snt3.flac")
    whole = len(samples) // 512 * 512
    frames, zeros = stft_frames(np.pad(samples[:whole], (CONTEXT, 0))), np.zeros((1, 128), np.float32)
    truth, _, _ = speech_probability(NumpyOps(silero_weights()), frames, zeros, zeros)
    assert truth.max() > 0.9
    for model in (on_onnxruntime(), on_numpy()):
        detector = SpeechDetector(model)
        blocks = np.concatenate([detector.push(block) for block in np.array_split(samples, 17)])
        assert np.allclose(blocks, truth[:, 0], atol=1e-4)
