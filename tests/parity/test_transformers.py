"""Against transformers' Whisper with the same weights: mel, encoder, tokens."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from random_whisper import KINDS, checkpoint
from recordings import PUBLIC, SPEECH, speech, table
from xdna_asr.context import continue_with_silence, full_window
from xdna_asr.features import log_mel, silent_mel
from xdna_asr.models import whisper
from xdna_asr.models.whisper import WhisperDims
from xdna_asr.ops.graph import FLOAT32, QUANTISED, GraphOps, Precision
from xdna_asr.ops.onnx_file import OnnxGraph
from xdna_asr.runtime.cpu import CpuWhisper, session
from xdna_asr.runtime.eager import NumpyWhisper
from xdna_asr.runtime.graphs import cached_graphs
from xdna_asr.store import InstalledModel
from xdna_asr.types import F32, DecoderRun, EncodedAudio
from xdna_asr.weights.arena import AnyArray
from xdna_asr.weights.whisper import from_huggingface

pytestmark = [pytest.mark.timeout(1800), pytest.mark.filterwarnings("default")]

START, NO_TIMESTAMPS, END = 50_257, 50_362, 50_256


def reference(state: dict[str, AnyArray], heads: int, mels: int) -> Any:
    """transformers' model with the weights `state`."""
    vocabulary, d = state["model.decoder.embed_tokens.weight"].shape
    layers = len({name.split(".")[3] for name in state if name.startswith("model.encoder.layers.")})
    config = transformers.WhisperConfig(
        vocab_size=vocabulary, num_mel_bins=mels, d_model=d, encoder_layers=layers, decoder_layers=layers,
        encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=4 * d, decoder_ffn_dim=4 * d,
        decoder_start_token_id=START, bos_token_id=END, eos_token_id=END, pad_token_id=END,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval()
    tensors = {name: torch.tensor(tensor.astype(np.float32)) for name, tensor in state.items()}
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert unexpected == []
    assert set(missing) <= {"proj_out.weight"}
    model.tie_weights()
    return model


def to_huggingface(tensors: dict[str, AnyArray]) -> dict[str, AnyArray]:
    """Canonical tensors under transformers' names."""
    out: dict[str, AnyArray] = {}
    parts = {"enc": "model.encoder", "dec": "model.decoder"}
    blocks = {"attn": "self_attn", "self": "self_attn", "cross": "encoder_attn"}
    norms = {
        ("enc", "ln1"): "self_attn",
        ("enc", "ln2"): "final",
        ("dec", "ln1"): "self_attn",
        ("dec", "ln2"): "encoder_attn",
        ("dec", "ln3"): "final",
    }
    for name, tensor in tensors.items():
        words = name.split(".")
        part, kind = parts[words[0]], {"w": "weight", "g": "weight", "b": "bias"}.get(words[-1], "")
        if words[1] in ("conv1", "conv2"):
            out[f"{part}.{words[1]}.{kind}"] = tensor
        elif words[1] == "ln":
            out[f"{part}.layer_norm.{kind}"] = tensor
        elif words[1] in ("pos", "emb"):
            out[f"{part}.{'embed_positions' if words[1] == 'pos' else 'embed_tokens'}.weight"] = tensor
        elif words[2].startswith("ln"):
            out[f"{part}.layers.{words[1]}.{norms[words[0], words[2]]}_layer_norm.{kind}"] = tensor
        elif words[2] == "ff":
            out[f"{part}.layers.{words[1]}.fc{words[3]}.{kind}"] = tensor
        else:
            roles = ["out"] if words[3] == "o" else list(words[3])
            for role, piece in zip(roles, np.split(tensor, len(roles)), strict=True):
                if not (role == "k" and kind == "bias"):
                    out[f"{part}.layers.{words[1]}.{blocks[words[2]]}.{role}_proj.{kind}"] = piece
    return out


def greedy(run: DecoderRun, prompt: Sequence[int], count: int) -> list[int]:
    tokens: list[int] = []
    output = run.step(prompt)
    while len(tokens) < count and (not tokens or tokens[-1] != END):
        tokens.append(int(output.logits[-1].argmax()))
        output = run.step(tokens[-1:])
    return tokens


def greedy_reference(model: Any, states: Any, prompt: Sequence[int], count: int) -> list[int]:
    tokens = list(prompt)
    with torch.no_grad():
        while len(tokens) < len(prompt) + count and (len(tokens) == len(prompt) or tokens[-1] != END):
            logits = model(encoder_outputs=(states,), decoder_input_ids=torch.tensor([tokens])).logits
            tokens.append(int(logits[0, -1].argmax()))
    return tokens[len(prompt) :]


def relative(got: AnyArray, truth: AnyArray) -> float:
    return float(np.linalg.norm(got - truth) / np.linalg.norm(truth))


def padded_mel(samples: F32, mels: int = 80) -> F32:
    mel = log_mel(samples, mels)
    return continue_with_silence(mel, full_window(len(mel)), silent_mel(mel))


def clips() -> list[Path]:
    """At least 20 clips: the public set where it is, and the bundled ones."""
    folder = PUBLIC if (PUBLIC / "manifest.tsv").exists() else SPEECH
    return [
        folder / row["file"] for row in table(folder / "manifest.tsv") if float(row["seconds"]) < 29 and row["score"] == "wer"
    ][:24]


@pytest.mark.parametrize("mels", [80, 128])
def test_mel_equals_the_reference(mels: int) -> None:
    extractor = transformers.WhisperFeatureExtractor(feature_size=mels)
    for name in ("en-jfk.flac", "en-sb-spk1-snt3.flac", "nonspeech-guitar.flac"):
        truth = extractor(speech(name), sampling_rate=16_000, return_tensors="np").input_features[0].T
        assert np.abs(padded_mel(speech(name), mels)[:3000] - truth).max() <= 5e-5


@pytest.mark.parametrize("kind", KINDS)
def test_random_models_of_every_vocabulary(kind: str, tmp_path: Path) -> None:
    vocabulary, mels = KINDS[kind]
    state = checkpoint(vocabulary, mels, d=64, seed=7)
    theirs, tensors = reference(state, 1, mels), from_huggingface(state)
    dims = WhisperDims.of(tensors)
    mel = padded_mel(speech("en-sb-spk1-snt3.flac"), mels)
    layout = full_window(len(mel))
    with torch.no_grad():
        states = theirs.model.encoder(torch.tensor(mel[:3000].T[None])).last_hidden_state
    eager = NumpyWhisper(tensors, dims, [(1, 0)])
    assert relative(eager.states(mel, layout), states[0].numpy()) <= 1e-5
    prompt = [START, NO_TIMESTAMPS]
    truth = greedy_reference(theirs, states, prompt, 12)
    cpu = CpuWhisper(cached_graphs(tmp_path / "g", tensors, "x", dims, [(1, 0)], FLOAT32), dims)
    for model in (eager, cpu):
        assert greedy(model.decoder(model.encode(mel, layout)), prompt, 12) == truth


def encoder_graph(tensors: dict[str, AnyArray], dims: WhisperDims, precision: Precision) -> Any:
    """A session that gives the encoder's states."""
    graph, baked = OnnxGraph("encoder"), dict[str, AnyArray]()
    mel = graph.input("mel", "float32", ("frames", dims.n_mels))
    source, positions = (graph.input(name, "int64", ("states",)) for name in ("source", "positions"))
    key_bias = graph.input("key_bias", "float32", ("states",))
    states = whisper.encode(GraphOps(graph, tensors, precision, baked), dims, mel, source, positions, key_bias)
    for name, tensor in baked.items():
        graph.constant(tensor, name)
    graph.output(states, "states", "float32", ("states", dims.d_model))
    return session(graph.encode(), threads=2)


def test_tiny_on_real_clips(tiny: InstalledModel, tmp_path: Path) -> None:
    arena = tiny.arena()
    tensors, dims = {name: arena[name] for name in arena if not name.startswith("text.")}, WhisperDims.of(arena)
    heads = [(int(layer), int(head)) for layer, head in arena.meta["alignment_heads"]]
    theirs = reference(to_huggingface(tensors), dims.heads, dims.n_mels)
    eager = NumpyWhisper(tensors, dims, heads)
    cpu = CpuWhisper(cached_graphs(tmp_path / "g", tensors, "x", dims, heads, FLOAT32), dims)
    graphs = {"float32": encoder_graph(tensors, dims, FLOAT32), "int8": encoder_graph(tensors, dims, QUANTISED)}
    paths, prompt = clips(), [START, NO_TIMESTAMPS]
    errors: dict[str, list[float]] = {"numpy": [], "float32": [], "int8": []}
    same = {"numpy": 0, "cpu": 0}
    for path in paths:
        mel = padded_mel(speech(str(path)))
        layout = full_window(len(mel))
        with torch.no_grad():
            states = theirs.model.encoder(torch.tensor(mel[:3000].T[None])).last_hidden_state
        inputs = {"mel": mel, "source": layout.source, "positions": layout.positions, "key_bias": layout.key_bias}
        for name, graph in graphs.items():
            errors[name].append(relative(graph.run(None, inputs)[0], states[0].numpy()))
        encoded = eager.states(mel, layout)
        errors["numpy"].append(relative(encoded, states[0].numpy()))
        truth = greedy_reference(theirs, states, prompt, 40)
        audio = EncodedAudio(layout, whisper.cross_cache(eager.ops, dims, encoded))
        same["numpy"] += greedy(eager.decoder(audio), prompt, 40) == truth
        same["cpu"] += greedy(cpu.decoder(cpu.encode(mel, layout)), prompt, 40) == truth
    assert len(paths) >= 8
    assert max(errors["numpy"]) <= 1e-5
    assert max(errors["float32"]) <= 1e-5
    # Weights and activations of 8 bits: 3.3 % measured, docs/audio-context.md says what less would cost. Texts decide.
    assert np.mean(errors["int8"]) <= (4e-2 if QUANTISED.int8_bits == 8 else 8e-2)
    assert same == {"numpy": len(paths), "cpu": len(paths)}
