"""Layouts give back what went in, folds change nothing, and a layout that does not is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xdna_asr.errors import ModelDamaged, ModelMissing
from xdna_asr.weights.device_arena import Weight, bake, open_device_arena
from xdna_designs import folds
from xdna_designs.argmax import layout as argmax
from xdna_designs.bf16 import narrow
from xdna_designs.device import NPU1, NPU2
from xdna_designs.gemm import layout as gemm
from xdna_designs.gemm.design import Epilogue, Gemm
from xdna_designs.gemv import layout as gemv

RNG = np.random.default_rng(8)
W, BIAS = RNG.standard_normal((128, 1024)).astype(np.float32), RNG.standard_normal(1024).astype(np.float32)


@pytest.mark.parametrize("epilogue", [Epilogue.BIAS, Epilogue.GLU])
@pytest.mark.parametrize("overlay", [Gemm(NPU1), Gemm(NPU2), Gemm(NPU2, 32, 32, 16)])
def test_gemm_tiles(overlay: Gemm, epilogue: Epilogue) -> None:
    packed = gemm.pack(overlay, W, BIAS, epilogue)
    assert packed.size == overlay.packed(128, 1024)
    bits, bias = gemm.unpack(overlay, packed, 128, 1024, epilogue)
    assert np.array_equal(bits, narrow(W))
    assert np.array_equal(bias, BIAS)


def test_tapes() -> None:
    assert np.array_equal(gemv.unpack(gemv.pack(W), 1024), narrow(W))
    bits, bias = argmax.unpack(argmax.pack(W.T.copy(), BIAS), 128)
    assert np.array_equal(bits, narrow(W.T))
    assert np.array_equal(bias, BIAS)


def weight(unpack: Callable[[Any], Any] | None = None, matrix: Any = W) -> Weight:
    overlay = Gemm(NPU2)
    return Weight(
        "w", matrix, BIAS, lambda: gemm.pack(overlay, W, BIAS), unpack or (lambda packed: gemm.unpack(overlay, packed, 128, 1024))
    )


def test_a_baked_arena_opens_and_says_what_parity_it_had(tmp_path: Path) -> None:
    path = tmp_path / "npu2.arena"
    bake(path, [weight()], device="npu2", fingerprint="abc")
    arena = open_device_arena(path, device="npu2", fingerprint="abc")
    assert np.array_equal(arena["w"], gemm.pack(Gemm(NPU2), W, BIAS))
    assert 0 < arena.meta["parity"]["w"] <= 2**-8
    assert arena.location("w")[0] % 64 == 0
    for device, fingerprint in (("npu1", "abc"), ("npu2", "abd")):
        with pytest.raises(ModelDamaged, match="baked again"):
            open_device_arena(path, device=device, fingerprint=fingerprint)
    with pytest.raises(ModelMissing):
        open_device_arena(tmp_path / "none", device="npu2", fingerprint="abc")


def _swapped(packed: Any) -> Any:
    bits, bias = gemm.unpack(Gemm(NPU2), packed, 128, 1024)
    bits[[0, 1]] = bits[[1, 0]]
    return bits, bias


@pytest.mark.parametrize(
    "bad",
    [
        weight(_swapped),
        weight(lambda packed: (narrow(W), BIAS + 1)),
        weight(lambda packed: (narrow(W), None)),
        weight(lambda packed: (narrow(W)[:-1], BIAS)),
        weight(matrix=W * 1.01),
        weight(lambda packed: (np.full_like(narrow(W), 0x7F80), BIAS)),
    ],
    ids=["rows swapped", "bias changed", "bias lost", "rows lost", "another matrix", "infinities"],
)
def test_parity_that_is_off_is_refused_and_nothing_written(tmp_path: Path, bad: Weight) -> None:
    path = tmp_path / "npu2.arena"
    with pytest.raises(ModelDamaged, match="packing changes w by"):
        bake(path, [bad], device="npu2", fingerprint="abc")
    assert not path.exists()


def test_folds_change_nothing() -> None:
    x = RNG.standard_normal((5, 128)).astype(np.float32)
    gamma, beta = RNG.standard_normal((2, 128)).astype(np.float32)
    folded, bias = folds.fold_layer_norm(W, BIAS, gamma, beta)
    np.testing.assert_allclose(x @ folded + bias, (x * gamma + beta) @ W + BIAS, rtol=1e-4, atol=1e-4)
    scaled, scaled_bias = folds.fold_attention_scale(W, BIAS, 64)
    scores = x @ W + BIAS
    np.testing.assert_allclose(np.exp2(x @ scaled + scaled_bias), np.exp(scores / 8), rtol=1e-4)
    taps, conv_bias = RNG.standard_normal((3, 128)).astype(np.float32), RNG.standard_normal(128).astype(np.float32)
    mean, variance = RNG.standard_normal(128).astype(np.float32), RNG.uniform(0.5, 2, 128).astype(np.float32)
    new_taps, new_bias = folds.fold_batch_norm(taps, conv_bias, gamma, beta, mean, variance, 1e-5)
    before = (x[:3] * taps).sum(axis=0) + conv_bias
    wanted = (before - mean) / np.sqrt(variance + 1e-5) * gamma + beta
    np.testing.assert_allclose((x[:3] * new_taps).sum(axis=0) + new_bias, wanted, rtol=1e-4, atol=1e-4)
