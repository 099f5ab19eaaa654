"""Every kernel against its reference, on both generations and with both compilers; and the faults it must show."""

import math
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_calls import ROUNDING, KernelCalls, aligned
from numpy.typing import NDArray

from npusim.kernels import POISON, build
from xdna_designs import kernels as objects
from xdna_designs.bf16 import narrow, rounded, widen
from xdna_designs.device import NPU1, NPU2
from xdna_designs.gemm import layout as gemm_layout
from xdna_designs.gemm import reference as gemm_reference
from xdna_designs.gemm.design import Epilogue, Gemm
from xdna_designs.kernels import kernel_object, sources
from xdna_designs.layer_norm.reference import layer_norm
from xdna_designs.softmax.reference import softmax

ARCHES = {"aie2": 20, "aie2p": 21}
RNG = np.random.Generator(np.random.PCG64(4))
Floats = NDArray[np.float32]
HALF_ULP = 2.0**-8
"""bfloat16 to nearest: half a unit in the last of 8 places."""


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    RNG.bit_generator.state = np.random.PCG64(4).state


def normal(*shape: int) -> Floats:
    return rounded(RNG.standard_normal(shape))


def relative(got: Floats, wanted: Floats) -> float:
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


def _gemm(call: KernelCalls, arch: int) -> float:
    device = NPU1 if arch == 20 else NPU2
    defines = dict(call.object.defines)
    gemm = Gemm(device, defines["DIM_M"], defines["DIM_K"], defines["DIM_N"])
    r, s, t = gemm.block
    m, k, n = gemm.m, gemm.k, gemm.n
    a, b, bias, rest = normal(m, 2 * k), normal(2 * k, n) / np.float32(8), normal(n), normal(m, n)
    b = rounded(b)
    worst = 0.0
    for epilogue in Epilogue:
        acc, state, c = (
            aligned(np.zeros((m, n), np.float32)),
            aligned(np.zeros(8, np.int32)),
            aligned(np.zeros((m, n), np.uint16)),
        )
        objects = gemm_layout.pack(Gemm(_one_column(device), m, k, n), b, bias, Epilogue.NONE).reshape(3, k * n)
        call.gemm_zero(acc)
        for piece in range(2):
            left = a[:, piece * k : piece * k + k].reshape(m // r, r, k // s, s).transpose(0, 2, 1, 3)
            call.gemm_accumulate(aligned(narrow(left)), aligned(objects[piece]), acc)
        call.gemm_bias(aligned(objects[2]), acc, int(epilogue))
        if epilogue is Epilogue.RESIDUAL:
            for row in range(3):
                for piece in range(m // k):
                    part = rest[piece * k : piece * k + k] if row == 1 else normal(k, n)
                    call.gemm_residual(aligned(narrow(part)), acc, state, 1, 3)
        call.gemm_store(acc, c, state, int(epilogue))
        got = widen(c).reshape(m // r, n // t, r, t).transpose(0, 2, 1, 3).reshape(m, n)
        wanted = gemm_reference.product(a, b, bias, epilogue, rest)
        worst = max(worst, relative(got[:, : wanted.shape[1]], wanted))
    return worst


def _one_column(device: Any) -> Any:
    from dataclasses import replace

    return replace(device, columns=1)


def _gemv(call: KernelCalls, arch: int) -> float:
    w, x = normal(64, 512), normal(512)
    y, out, state = aligned(np.zeros(64, np.float32)), aligned(np.zeros(64, np.uint16)), aligned(np.zeros(8, np.int32))
    for first in range(0, 64, 8):
        call.gemv_rows(aligned(narrow(w[first : first + 8])), aligned(narrow(x)), y, state, 8, 512)
    call.gemv_store(y, out, state)
    assert state[0] == 0
    return max(relative(y, w @ x) * 100, relative(widen(out), w @ x))


def _layer_norm(call: KernelCalls, arch: int) -> float:
    width = dict(call.object.defines)["DIM_D"]
    x, affine = normal(1, width) * np.float32(3) + np.float32(50), RNG.standard_normal((2, width)).astype(np.float32)
    x, y = rounded(x), aligned(np.zeros(width, np.uint16))
    call.layer_norm(aligned(narrow(x)), aligned(affine), y)
    return relative(widen(y), layer_norm(x, affine[0], affine[1])[0])


def _softmax(call: KernelCalls, arch: int) -> float:
    x, y = normal(1, 512) * np.float32(8), aligned(np.full(512, 0x1234, np.uint16))
    x = rounded(x)
    call.softmax(aligned(narrow(x)), y, 437)
    assert not y[437:].any()
    return relative(widen(y), softmax(x, 437)[0])


def attention(call: KernelCalls, arch: int, keys: int, valid: int, peak: float = 1.0) -> tuple[Floats, Floats]:
    """(got, wanted) of flash attention over `keys` keys, the last of them not valid."""
    defines = dict(call.object.defines)
    q_rows, step, d = defines["DIM_Q"], defines["DIM_S"], defines["DIM_D"]
    r, s, t = (4, 8, 4) if arch == 20 else (8, 8, 8)
    q, k, v = normal(q_rows, d), normal(keys, d), normal(keys, d)
    q *= np.float32(peak)
    scaled = rounded(q * np.float32(math.log2(math.e) / math.sqrt(d)))
    rows, o = aligned(np.zeros((4, q_rows), np.float32)), aligned(np.zeros((q_rows, d), np.float32))
    scores, chances = aligned(np.zeros((q_rows, step), np.float32)), aligned(np.zeros((q_rows, step), np.uint16))
    out = aligned(np.zeros((q_rows, d), np.uint16))
    q_blocks = aligned(narrow(scaled.reshape(q_rows // r, r, d // s, s).transpose(0, 2, 1, 3)))
    call.attention_start(rows, o)
    for first in range(0, keys, step):
        k_blocks = narrow(k[first : first + step].reshape(step // t, t, d // s, s).transpose(0, 2, 1, 3))
        v_blocks = narrow(v[first : first + step].reshape(step // s, s, d // t, t).transpose(0, 2, 1, 3))
        left = min(step, valid - first)
        call.attention_step(q_blocks, aligned(k_blocks), aligned(v_blocks), scores, chances, rows, o, left)
    call.attention_finish(rows, o, out)
    got = widen(out).reshape(q_rows // r, d // t, r, t).transpose(0, 2, 1, 3).reshape(q_rows, d)
    powers = scaled.astype(np.float64) @ k[:valid].T.astype(np.float64)
    weights = np.exp2(powers - powers.max(axis=1, keepdims=True))
    return got, (weights / weights.sum(axis=1, keepdims=True) @ v[:valid]).astype(np.float32)


def _attention(call: KernelCalls, arch: int) -> float:
    return relative(*attention(call, arch, 192, 150))


def _activation(call: KernelCalls, arch: int) -> float:
    x = np.concatenate([np.linspace(-12, 12, 4096), RNG.standard_normal(4096)]).astype(np.float32)
    worst = 0.0
    for name, wanted in (("gelu", gemm_reference.gelu(x)), ("silu", x * gemm_reference.sigmoid(x))):
        y = aligned(np.zeros(len(x), np.uint16))
        getattr(call, name)(aligned(x), y, len(x))
        allowed = (7e-5 if name == "gelu" else 6e-5 * np.abs(x) + 1e-7) + 1.01 * HALF_ULP * np.abs(wanted)
        worst = max(worst, float(np.max(np.abs(widen(y) - wanted) / allowed)))
    return worst


def _depthwise(call: KernelCalls, arch: int) -> float:
    x, taps = normal(24, 64), RNG.standard_normal((10, 64)).astype(np.float32) / 3
    worst = 0.0
    for silu in (0, 1):
        y = aligned(np.zeros((16, 64), np.uint16))
        call.depthwise_conv1d(aligned(narrow(x)), aligned(taps), y, silu)
        wanted = np.stack([(x[i : i + 9] * taps[:9]).sum(axis=0) + taps[9] for i in range(16)])
        wanted = wanted * gemm_reference.sigmoid(wanted) if silu else wanted
        worst = max(worst, relative(widen(y), wanted))
    return worst


def _rel_shift(call: KernelCalls, arch: int) -> float:
    scores, position = RNG.standard_normal((16, 64)).astype(np.float32), RNG.standard_normal((16, 128)).astype(np.float32)
    got = aligned(scores)
    call.rel_shift(got, aligned(position), 32)
    wanted = np.stack([[scores[i, j] + position[i, 63 - (32 + i) + j] for j in range(64)] for i in range(16)])
    return relative(got, wanted)


def _rotary(call: KernelCalls, arch: int) -> float:
    x, angle = normal(64), RNG.uniform(0, 6, 32).astype(np.float32)
    y = aligned(np.zeros(64, np.uint16))
    call.rotary(aligned(narrow(x)), aligned(np.concatenate([np.cos(angle), np.sin(angle)])), y)
    turned = (x[:32] + 1j * x[32:]) * np.exp(1j * angle)
    return relative(widen(y), np.concatenate([turned.real, turned.imag]).astype(np.float32))


def _lstm(call: KernelCalls, arch: int) -> float:
    gates, cell = RNG.standard_normal((4, 64)).astype(np.float32) * 2, RNG.standard_normal(64).astype(np.float32)
    state, hidden = aligned(cell), aligned(np.zeros(64, np.uint16))
    call.lstm_cell(aligned(gates), state, hidden)
    i, f, g, o = gates
    wanted = gemm_reference.sigmoid(f) * cell + gemm_reference.sigmoid(i) * np.tanh(g)
    return max(relative(state, wanted) * 10, relative(widen(hidden), gemm_reference.sigmoid(o) * np.tanh(wanted)))


def _argmax(call: KernelCalls, arch: int) -> float:
    w, x, bias = normal(64, 384), normal(384), np.zeros(64, np.float32)
    w[17] = w[3]  # equals: the first wins
    best_row = int(np.argmax(w @ x))
    bias[best_row] = -1e30
    wanted = int(np.argmax(w @ x + bias))
    best = aligned(np.zeros(32 + 384, np.uint16))
    call.argmax_start(best, 1000)
    for first in range(0, 64, 8):
        tail = np.zeros(16, np.float32)
        tail[:8] = bias[first : first + 8]
        call.argmax_rows(
            aligned(np.concatenate([narrow(w[first : first + 8]).reshape(-1), tail.view(np.uint16)])), aligned(narrow(x)), best
        )
    assert best[:4].view(np.int32)[1] == 1000 + wanted
    return relative(widen(best[32:]), w[wanted])


def _kv_append(call: KernelCalls, arch: int) -> float:
    key, value, row = (
        RNG.standard_normal(64).astype(np.float32),
        RNG.standard_normal(64).astype(np.float32),
        aligned(np.zeros(128, np.uint16)),
    )
    call.kv_append(aligned(key), aligned(value), row, 64)
    return 0.0 if np.array_equal(row, narrow(np.concatenate([key, value]))) else 1.0


def _cast(call: KernelCalls, arch: int) -> float:
    x, y = RNG.standard_normal(4096).astype(np.float32), aligned(np.zeros(4096, np.uint16))
    call.cast(aligned(x), y, len(x))
    return 0.0 if np.array_equal(y, narrow(x)) else 1.0


CASES: dict[str, tuple[str, Callable[[KernelCalls, int], float], dict[int, float]]] = {
    # name: (object, error against the reference, tolerance by __AIE_ARCH__)
    # GEMM on aie2p: two operands in blocks of eight with 7 bits and a sign, 1/64 to 1/128 of the largest: 1 % for normal values.
    "gemm": (kernel_object("gemm", DIM_M=64, DIM_K=64, DIM_N=64), _gemm, {20: 3e-3, 21: 1.2e-2}),
    "gemm-narrow": (kernel_object("gemm", DIM_M=32, DIM_K=32, DIM_N=96), _gemm, {20: 3e-3, 21: 1.2e-2}),
    # One rounding to bfloat16 is 1.7e-3 of a normal value on average; what came before is float32.
    "gemv": (kernel_object("gemv"), _gemv, {20: 2.5e-3, 21: 2.5e-3}),
    "layer_norm": (kernel_object("layer_norm", DIM_D=384), _layer_norm, {20: 2.5e-3, 21: 2.5e-3}),
    "layer_norm-wide": (kernel_object("layer_norm", DIM_D=1280), _layer_norm, {20: 2.5e-3, 21: 2.5e-3}),
    "softmax": (kernel_object("softmax", DIM_COLUMNS=512), _softmax, {20: 2.5e-3, 21: 2.5e-3}),
    # As GEMM, twice, with probabilities that cost another bfloat16 rounding.
    "flash_attention": (kernel_object("flash_attention", DIM_Q=32, DIM_S=64, DIM_D=64), _attention, {20: 6e-3, 21: 2e-2}),
    # In units of the stated error.
    "activation": (kernel_object("activation"), _activation, {20: 1.0, 21: 1.0}),
    "depthwise_conv1d": (kernel_object("depthwise_conv1d", DIM_T=16, DIM_C=64, DIM_TAPS=9), _depthwise, {20: 2.5e-3, 21: 2.5e-3}),
    "rel_shift": (kernel_object("rel_shift", DIM_Q=16, DIM_S=64), _rel_shift, {20: 1e-7, 21: 1e-7}),
    "rotary": (kernel_object("rotary", DIM_D=64), _rotary, {20: 2.5e-3, 21: 2.5e-3}),
    "lstm_cell": (kernel_object("lstm_cell", DIM_H=64), _lstm, {20: 2.5e-3, 21: 2.5e-3}),
    "argmax": (kernel_object("argmax", DIM_D=384, DIM_ROWS=8), _argmax, {20: 0.0, 21: 0.0}),
    "kv_append": (kernel_object("kv_append"), _kv_append, {20: 0.0, 21: 0.0}),
    "cast": (kernel_object("cast"), _cast, {20: 0.0, 21: 0.0}),
}


@pytest.fixture(scope="session")
def compiled() -> None:
    """Everything that is compiled with g++, on all processors at once."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(
            pool.map(lambda job: build(*job, cxx="g++"), [(case[0], arch) for case in CASES.values() for arch in ARCHES.values()])
        )


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("cxx", ["g++", pytest.param("clang++", marks=pytest.mark.long)])
@pytest.mark.parametrize("arch", ARCHES.values(), ids=ARCHES)
@pytest.mark.parametrize("name", CASES)
def test_kernel_computes_its_reference(name: str, arch: int, cxx: str) -> None:
    file_name, error, tolerance = CASES[name]
    call = KernelCalls(file_name, arch, cxx)
    assert error(call, arch) <= tolerance[arch]
    assert not call.fault
    assert call.core.rounding == ROUNDING["conv_even"]


@pytest.mark.parametrize("arch", ARCHES.values(), ids=ARCHES)
def test_attention_survives_peaked_rows_and_one_valid_key(arch: int) -> None:
    call = KernelCalls(CASES["flash_attention"][0], arch)
    got, wanted = attention(call, arch, 128, 128, peak=200.0)
    assert np.isfinite(got).all()
    assert float(np.median(np.abs(got - wanted))) < 0.02
    got, wanted = attention(call, arch, 64, 1)
    assert relative(got, wanted) < 1e-2


def test_every_kernel_has_a_case() -> None:
    together = {"decoder_begin", "decoder_work", "decoder_exchange"}  # test_decoder.py
    assert {path.stem for path in sources().glob("*.cc")} == {name.partition("-")[0] for name in CASES} | together


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    """Replaces text of a kernel in a copy of all of them."""
    copy = tmp_path / "kernels"
    shutil.copytree(sources(), copy)
    monkeypatch.setattr(objects, "sources", lambda: copy)

    def edit(kernel: str, old: str, new: str) -> None:
        path = copy / f"{kernel}.cc"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return edit


SHOWN_BY_NUMBERS = ("gemm", "gemv", "layer_norm", "depthwise_conv1d", "rotary", "lstm_cell", "cast", "kv_append")


@pytest.mark.parametrize("name", [name for name in CASES if "-" not in name])
def test_a_kernel_that_does_not_set_rounding_is_found_out(
    name: str, edited: Callable[[str, str, str], None], tmp_path: Path
) -> None:
    edited(name, "aie::set_rounding(aie::rounding_mode::conv_even);", "")
    file_name, error, tolerance = CASES[name]
    call = KernelCalls(file_name, 20, folder=tmp_path)
    found = error(call, 20)
    assert call.core.rounding != ROUNDING["conv_even"]
    assert name not in SHOWN_BY_NUMBERS or found > tolerance[20]


def test_a_misaligned_load_is_a_fault() -> None:
    call = KernelCalls(kernel_object("cast"), 21)
    x = aligned(np.zeros(48, np.float32))
    call.cast(x[4:], aligned(np.zeros(16, np.uint16)), 16)
    assert call.fault.startswith("misaligned vector access")


def test_reading_what_nobody_wrote_is_a_fault() -> None:
    call = KernelCalls(kernel_object("cast"), 21)
    x = aligned(np.zeros(16, np.float32))
    x.view(np.uint32)[5] = POISON
    call.cast(x, aligned(np.zeros(16, np.uint16)), 16)
    assert call.fault.startswith("read of memory nobody wrote")


def test_exp2_and_tanh_errors_of_four_per_cent_do_not_matter() -> None:
    """No kernel uses the two instructions whose values are unknown."""
    for name, (file_name, error, tolerance) in CASES.items():
        for perturbation in (-0.04, 0.04):
            call = KernelCalls(file_name, 21)
            call.core.perturbation = perturbation
            RNG.bit_generator.state = np.random.PCG64(4).state
            assert error(call, 21) <= tolerance[21], name


@pytest.mark.parametrize("mode", [0, 1, 2, 3, 8, 9, 10, 11, 12, 13])
def test_narrowing_follows_the_rounding_mode(mode: int) -> None:
    call = KernelCalls("probe.o", 21)
    x = np.array([1.0, 1 + 2**-9, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 3 * 2**-9, 1e-40, 3e-39, np.inf], np.float32)
    x = aligned(np.concatenate([x, -x]))
    y = aligned(np.zeros(16, np.uint16))
    call.core.rounding = mode
    call.narrow(x, y)
    exact, low, high = x.astype(np.float64), widen(_bits_below(x)).astype(np.float64), widen(_bits_above(x)).astype(np.float64)
    with np.errstate(invalid="ignore"):
        nearer_low, nearer_high = exact - low < high - exact, exact - low > high - exact
    even = np.where(_bits_below(x) & 1, high, low)
    ties = {
        8: low,
        9: high,
        10: np.where(x > 0, low, high),
        11: np.where(x > 0, high, low),
        12: even,
        13: np.where(even == low, high, low),
    }
    toward = {0: low, 1: high, 2: np.where(x > 0, low, high), 3: np.where(x > 0, high, low)}
    wanted = toward[mode] if mode in toward else np.where(nearer_low, low, np.where(nearer_high, high, ties[mode]))
    same = low == high
    np.testing.assert_array_equal(widen(y), np.where(same, exact, wanted).astype(np.float32))


def _bits_below(x: Floats) -> NDArray[np.uint16]:
    """The largest bfloat16 not above x."""
    words = x.view(np.uint32)
    below: NDArray[np.uint16] = ((words >> 16) + ((words >> 31) & ((words & 0xFFFF) != 0))).astype(np.uint16)
    return below


def _bits_above(x: Floats) -> NDArray[np.uint16]:
    return (_bits_below(-x) ^ 0x8000).astype(np.uint16)


@pytest.fixture(autouse=True)
def probe(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels and one more that only narrows, in the mode it finds."""
    if not request.node.name.startswith("test_narrowing"):
        return
    copy = tmp_path / "kernels"
    shutil.copytree(sources(), copy)
    (copy / "probe.cc").write_text(
        '#include <kernel_math.hpp>\nextern "C" void narrow(const float* x, bfloat16* y) '
        "{ aie::store_v(y, kernel_math::narrowed(aie::load_v<16>(x))); }\n"
    )
    monkeypatch.setattr(objects, "sources", lambda: copy)


def test_the_chips_compiler_gets_the_stock_flags(tmp_path: Path) -> None:
    wanted = objects.parse_object(kernel_object("gemm", DIM_M=64, DIM_N=96))
    for device in (NPU1, NPU2):
        command = objects.peano_command(wanted, device, tmp_path / "peano", tmp_path / "aie", tmp_path / "gemm.o")
        assert command[0] == str(tmp_path / "peano" / "bin" / "clang++")
        assert {"-O2", "-std=c++20", f"--target={device.generation}-none-unknown-elf", "-DDIM_M=64", "-DDIM_N=96"} <= set(command)
        assert f"-I{tmp_path / 'aie' / 'include'}" in command
        assert not any("include/host" in part for part in command)
        assert ("-DAIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16" in command) == (device is NPU2)
