"""Accuracy of the default settings on the public set, where it lies beside the repository, else on the bundled clips."""

import numpy as np
import pytest
from score import evaluate
from scoring import Score, normalised, word_errors

from conftest import Open
from recordings import PUBLIC, SPEECH, speech, table
from xdna_asr.decoding.guards import repeats_itself

WHOLE = (PUBLIC / "manifest.tsv").exists()
FOLDER = PUBLIC if WHOLE else SPEECH
ROWS = table(FOLDER / "manifest.tsv")


def rows(language: str) -> list[dict[str, str]]:
    return [row for row in ROWS if row["language"] in (language, "none")]


def english(transcriber: Open, context: str) -> Score:
    score, _ = evaluate(transcriber(language="en", context=context), rows("en"), FOLDER, verbose=True)
    assert score.wer <= 5.8, score
    assert score.digits_wrong <= 2, score
    assert score.text_on_silence == []
    return score


def test_english(transcriber: Open) -> None:
    english(transcriber, "sparse")


@pytest.mark.long
def test_a_sparse_context_costs_no_accuracy(transcriber: Open) -> None:
    assert english(transcriber, "sparse").wer <= english(transcriber, "full").wer + 0.3


def test_russian(transcriber: Open) -> None:
    score, _ = evaluate(transcriber("whisper-base", language="ru"), rows("ru"), FOLDER, verbose=True)
    assert score.wer <= 33, score
    assert score.text_on_silence == []


@pytest.mark.skipif(not WHOLE, reason="the long clips are not part of the repository")
@pytest.mark.parametrize(
    ("clip", "limit"),
    [("en-ls-1272-128104-4.flac", 12), ("en-gap-8s.flac", 0), ("en-long-mixed-a.flac", 16), ("en-e22-1.flac", 9)],
)
def test_clips_across_windows_lose_no_words(clip: str, limit: int, transcriber: Open) -> None:
    row = next(row for row in ROWS if row["file"] == clip)
    text = " ".join(segment.text for segment in transcriber(language="en").transcribe([speech(str(PUBLIC / clip))]))
    errors, words = word_errors(row["reference"], text, "en")
    assert errors <= limit
    assert abs(len(normalised(text, "en").split()) - words) <= 0.06 * words


@pytest.mark.long
def test_no_clip_repeats_itself(transcriber: Open) -> None:
    engine = transcriber(language="en")
    for row in rows("en"):
        text = " ".join(segment.text for segment in engine.transcribe([speech(str(FOLDER / row["file"]))])).split()
        assert not any(repeats_itself(list(map(hash, text[:end]))) for end in range(1, len(text) + 1)), row["file"]


def test_silence_around_a_word_adds_nothing(transcriber: Open) -> None:
    engine = transcriber(language="en")
    for clip, words in (("en-lead-2s-yes.flac", "yes"), ("en-sc-yes.flac", "yes"), ("en-gap-8s.flac", "dog at that high")):
        text = " ".join(segment.text for segment in engine.transcribe([speech(clip)]))
        assert words in text.lower().replace(".", "")
    hiss = np.random.default_rng(1).standard_normal(16_000 * 20).astype(np.float32) * 0.003
    assert list(engine.transcribe([hiss])) == []


def test_nothing_depends_on_how_the_samples_arrive(transcriber: Open) -> None:
    engine, samples = transcriber(language="en", timestamps=True), speech("en-gap-8s.flac")
    whole = list(engine.transcribe([samples]))
    assert list(engine.transcribe(np.array_split(samples, 97))) == whole
    assert list(engine.transcribe([samples[:5], samples[5:50_000], samples[50_000:]])) == whole
    assert len(whole) == 2
    assert whole[0].end <= 3.2
    assert whole[1].start >= 10.0


@pytest.mark.long
def test_hours_of_sound_in_bounded_memory(transcriber: Open) -> None:
    import tracemalloc

    engine, clip = transcriber(language="en"), np.concatenate([speech("en-sb-spk1-snt3.flac"), np.zeros(160_000, np.float32)])
    repeats = 600
    tracemalloc.start()
    count = sum(1 for _ in engine.transcribe(clip for _ in range(repeats)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == repeats
    assert peak < 64 << 20
