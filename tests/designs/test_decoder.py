"""The decoder overlay in the simulator: tokens that feed each other on the device, against float32 one token at a time."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from iron_recorder import Recorder
from numpy.typing import NDArray
from simulation import Simulation

from npusim.array import Run
from recordings import SPEECH
from xdna_asr.context import continue_with_silence, sparse_tail
from xdna_asr.features import log_mel, silent_mel
from xdna_asr.models.whisper import WhisperDims
from xdna_asr.runtime.eager import NumpyWhisper
from xdna_asr.store import InstalledModel
from xdna_asr.weights.npu_decoder import decoder_overlay, pack_audio, pack_decoder
from xdna_designs import cost
from xdna_designs import kernels as objects
from xdna_designs.bf16 import rounded
from xdna_designs.checks import problems
from xdna_designs.decoder import layout
from xdna_designs.decoder.design import RECORD, Decoder
from xdna_designs.decoder.reference import Reference
from xdna_designs.device import NPU1, NPU2, Device
from xdna_designs.iron import GENERATIONS, emit
from xdna_designs.taps import DesignError

Floats = NDArray[np.float32]
PROMPT = [5, 17, 3]
DEVICES = pytest.mark.parametrize("device", [NPU1, NPU2], ids=["npu1", "npu2"])


class Small:
    """A decoder of two layers with random weights, on the overlay and as reference."""

    def __init__(self, device: Device) -> None:
        rng = np.random.default_rng(0)
        d, layers, vocabulary, audio = (192 if device is NPU1 else 384), 2, 1000, 100

        def normal(*shape: int, scale: float = 1.0) -> Floats:
            return rounded((rng.standard_normal(shape) * scale).astype(np.float32))

        def affine(inputs: int, outputs: int, *, norm: bool) -> layout.Affine:
            scales = (1 + normal(inputs, scale=0.1), normal(inputs, scale=0.1)) if norm else None
            return layout.Affine(normal(inputs, outputs, scale=inputs**-0.5), normal(outputs, scale=0.1), scales)

        self.layers = [
            layout.Layer(
                affine(d, 3 * d, norm=True),
                affine(d, d, norm=False),
                affine(d, d, norm=True),
                affine(d, d, norm=False),
                affine(d, 4 * d, norm=True),
                affine(4 * d, d, norm=False),
            )
            for _ in range(layers)
        ]
        self.norm = 1 + normal(d, scale=0.1), normal(d, scale=0.1)
        self.embedding, self.positions = normal(vocabulary, d, scale=2 * d**-0.5), normal(64, d, scale=0.5)
        self.cross = [(normal(audio, d), normal(audio, d)) for _ in range(layers)]
        self.key_bias = normal(audio, scale=0.1)
        self.decoder = Decoder(device, width=d, layers=layers, vocabulary=1024, audio=128, context=64)
        self.suppressed: list[int] = []

    def reference(self) -> Reference:
        return Reference(self.layers, self.norm, self.embedding, self.positions, self.cross, self.key_bias)

    def buffers(self) -> list[Any]:
        bias = np.zeros(len(self.embedding), np.float32)
        bias[self.suppressed] = layout.SUPPRESSED
        arena = layout.pack(self.decoder, self.layers, self.norm, self.embedding, self.positions, bias)
        cross = layout.pack_cross(self.decoder, [k for k, _ in self.cross], [v for _, v in self.cross], self.key_bias)
        size = self.decoder.workers * self.decoder.layers * 2 * self.decoder.self_blocks * self.decoder.object
        return [arena, np.zeros(size, np.uint16), cross]

    def expected(self, count: int) -> tuple[list[int], list[Floats]]:
        """`count` tokens after the prompt, and the scores they were chosen from."""
        reference, tokens, scores = self.reference(), list(PROMPT), []
        for step in range(len(PROMPT) + count - 1):
            found = reference.step(tokens[step])
            found[self.suppressed] = -np.inf
            if step + 1 >= len(PROMPT):
                scores.append(found)
                tokens.append(int(found.argmax()))
        return tokens[len(PROMPT) :], scores

    def decode(self, count: int, each: int, **options: Any) -> tuple[list[int], NDArray[np.int32], list[Run]]:
        """The same on the overlay, `each` steps a dispatch; what was told, and the runs."""
        buffers, tokens, told, runs = self.buffers(), list(PROMPT), [], []
        simulation: Simulation | None = None
        position = 0
        while len(tokens) < len(PROMPT) + count:
            forced = tokens[position:]
            steps = min(len(forced) - 1 + each, len(PROMPT) + count - 1 - position)
            program = self.decoder.program(position, forced, steps)
            simulation = simulation or Simulation(program, **options)
            out = np.zeros((steps, RECORD), np.int32)
            runs.append(simulation.run([*buffers, out], program))
            told += out[len(forced) - 1 :].tolist()
            tokens += out[len(forced) - 1 :, 0].tolist()
            position += steps
        return tokens[len(PROMPT) :], np.array(told, np.int32), runs


def scores_told(told: NDArray[np.int32]) -> tuple[Floats, Floats]:
    """(score of the token, log of the sum of all) of each step."""
    order = told[:, 1]
    best = (order ^ ((order >> 31) & 0x7FFFFFFF)).astype(np.int32).view(np.float32)
    highest, total = np.ascontiguousarray(told[:, 2]).view(np.float32), np.ascontiguousarray(told[:, 3]).view(np.float32)
    return best, highest + np.log(total)


@DEVICES
def test_tokens_scores_and_probabilities_are_the_references(device: Device) -> None:
    small = Small(device)
    wanted, scores = small.expected(6)
    tokens, told, runs = small.decode(6, 8)
    assert tokens == wanted
    best, total = scores_told(told)
    np.testing.assert_allclose(best, [found.max() for found in scores], rtol=1e-2)
    np.testing.assert_allclose(total, [np.log(np.exp(found.astype(np.float64)).sum()) for found in scores], rtol=1e-2)
    assert len(runs) == 1


def test_one_or_many_steps_a_dispatch_and_any_schedule_give_the_same_tokens() -> None:
    small = Small(NPU1)
    wanted = small.decode(12, 16)[0]
    for each in (1, 4, 8):
        assert small.decode(12, each)[0] == wanted
    for seed in (1, 2):
        assert small.decode(12, 8, seed=seed, equal_takes=bool(seed % 2))[0] == wanted


@pytest.mark.long
def test_two_hundred_schedules_give_the_same_tokens() -> None:
    small = Small(NPU1)
    wanted = small.decode(3, 8)[0]
    assert all(small.decode(3, 8, seed=seed)[0] == wanted for seed in range(200))


def test_a_suppressed_token_never_comes() -> None:
    small = Small(NPU1)
    small.suppressed = [small.decode(2, 8)[0][1]]
    wanted, _ = small.expected(4)
    assert small.decode(4, 8)[0] == wanted
    assert small.suppressed[0] not in wanted


@DEVICES
def test_it_passes_all_checks_and_speaks_both_generations_of_iron(device: Device) -> None:
    program = Small(device).decoder.program(7, [5], 4)
    assert problems(program) == []
    for generation in GENERATIONS:
        with Recorder(generation).installed() as recorder:
            emit(program, generation)
        assert recorder.count("Kernel.__call__") == 7 * len(program.workers) + 1


@pytest.mark.parametrize("name", ["decoder_begin", "decoder_work", "decoder_exchange"])
def test_a_kernel_that_does_not_set_rounding_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "kernels"
    shutil.copytree(objects.sources(), copy)
    path = copy / f"{name}.cc"
    path.write_text(path.read_text().replace("aie::set_rounding(aie::rounding_mode::conv_even);", ""))
    monkeypatch.setattr(objects, "sources", lambda: copy)
    found = problems(Small(NPU1).decoder.program(0, [1], 1))
    assert any(problem.startswith(f"check 14: {name}.cc: decoder_") for problem in found)


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DesignError, match="a width of 400 on npu2, it must be a multiple of 128"):
        Decoder(NPU2, width=400)
    with pytest.raises(DesignError, match="8 steps from 445 with 1 given tokens, there are 448 positions"):
        Decoder(NPU2).program(445, [1], 8)


@pytest.mark.long
@pytest.mark.parametrize(("width", "layers"), [(384, 4), (512, 6), (768, 12)], ids=["tiny", "base", "small"])
def test_predicted_time_is_close_to_the_bytes(width: int, layers: int) -> None:
    """At most 1.25 times what its bytes need at the memory's bandwidth. Predicted; weights do not matter."""
    decoder = Decoder(NPU2, width=width, layers=layers)
    program = decoder.program(20, [5], 1)
    arrays = [np.full(kind.count, 0x3C00, np.uint16) for kind in program.runtime.types[:3]] + [np.zeros((1, RECORD), np.int32)]
    run = Simulation(program).run(arrays)
    seconds = run.cycles / cost.clock(NPU2)
    assert seconds <= 1.25 * sum(run.host_bytes.values()) / cost.value("ddr_bandwidth")


@pytest.mark.long
def test_tiny_en_writes_what_it_writes_on_the_processor(tiny: InstalledModel) -> None:
    arena = tiny.arena()
    dims = WhisperDims.of(arena, heads=arena.meta["heads"])
    model = NumpyWhisper(arena, dims, [(0, 0)])
    mel = log_mel(soundfile.read(SPEECH / "en-jfk.flac", dtype="float32")[0][: 4 * 16000])
    heard = sparse_tail(len(mel))
    audio = model.encode(continue_with_silence(mel, heard, silent_mel(mel)), heard)
    prompt, run, wanted = [50257, 50362], model.decoder(audio), []
    scores = run.step(prompt).logits[-1]
    for _ in range(12):
        wanted.append(int(scores.argmax()))
        scores = run.step(wanted[-1:]).logits[-1]
    decoder = decoder_overlay(NPU2, dims, len(heard.positions))
    program = decoder.program(0, prompt, 13)
    size = decoder.workers * decoder.layers * 2 * decoder.self_blocks * decoder.object
    told = np.zeros((13, RECORD), np.int32)
    cross = pack_audio(decoder, audio.handle, heard.key_bias)
    Simulation(program).run([pack_decoder(decoder, arena), np.zeros(size, np.uint16), cross, told])
    assert told[1:, 0].tolist() == wanted
    assert len(set(wanted)) > 5
