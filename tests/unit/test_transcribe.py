"""The pipeline with a scripted runtime: fallbacks, doubt, running speech."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from recordings import speech
from xdna_asr.errors import UnsupportedLanguage
from xdna_asr.store import ModelStore
from xdna_asr.text.vocabulary import Vocabulary
from xdna_asr.transcribe import Transcriber
from xdna_asr.types import F32, AudioLayout, DecoderOutput, EncodedAudio
from xdna_asr.window_decoder import Options, WindowDecoder


class Detector:
    """Voice activity of a given probability wherever there is sound."""

    def __init__(self, probability: float) -> None:
        self.probability, self.pending = probability, np.zeros(0, np.float32)

    def reset(self) -> None:
        self.pending = np.zeros(0, np.float32)

    def push(self, samples: F32) -> F32:
        self.pending = np.concatenate([self.pending, samples])
        count = len(self.pending) // 512
        windows = self.pending[: count * 512].reshape(count, 512)
        self.pending = self.pending[count * 512 :]
        return np.where(np.abs(windows).max(axis=1, initial=0) > 0, self.probability, 0).astype(np.float32)


class Scripted:
    """A runtime that writes the given texts in turn, each token with the given certainty."""

    n_mels = 80

    def __init__(
        self, vocabulary: Vocabulary, texts: Sequence[list[int]], certainty: float = 10.0, no_speech: float = -10.0
    ) -> None:
        self.vocabulary, self.texts, self.certainty, self.no_speech = vocabulary, list(texts), certainty, no_speech
        self.layouts: list[AudioLayout] = []

    def encode(self, mel: F32, layout: AudioLayout) -> EncodedAudio:
        assert len(mel) // 2 > layout.source.max()
        self.layouts.append(layout)
        return EncodedAudio(layout, None)

    def decoder(self, audio: EncodedAudio) -> "Scripted.Run":
        return Scripted.Run(self, self.texts.pop(0) if len(self.texts) > 1 else self.texts[0], len(audio.layout.source))

    class Run:
        def __init__(self, model: "Scripted", text: list[int], states: int) -> None:
            self.model, self.text, self.states, self.at = model, [*text, model.vocabulary.end_of_text], states, -1

        def step(self, tokens: Sequence[int], wanted: Sequence[int] | None = None) -> DecoderOutput:
            self.at += 1
            logits = np.zeros((1 if wanted is None else len(wanted), self.model.vocabulary.size), np.float32)
            logits[-1, self.text[min(self.at, len(self.text) - 1)]] = self.model.certainty
            logits[0, self.model.vocabulary.no_speech] += self.model.no_speech
            return DecoderOutput(logits, np.full((1, len(tokens), self.states), 1 / self.states, np.float32))


@pytest.fixture(scope="module")
def vocabulary(store: ModelStore) -> Vocabulary:
    model = store.open("whisper-tiny.en")
    return Vocabulary(model.arena(), model.arena().meta, 51_864, model.tokenizer)


def transcriber(runtime: Scripted, probability: float = 0.9, **options: Any) -> Transcriber:
    decoder = WindowDecoder(runtime, runtime.vocabulary, Options(**options))
    return Transcriber(decoder, cast("Any", Detector(probability)))


CLIP = speech("en-sb-spk1-snt3.flac")


def test_a_likely_text_is_taken_at_once(vocabulary: Vocabulary) -> None:
    runtime = Scripted(vocabulary, [vocabulary.encode(" Hello there.")], certainty=30)
    assert [segment.text for segment in transcriber(runtime).transcribe([CLIP])] == ["Hello there."]
    assert len(runtime.layouts) == 1
    assert len(runtime.layouts[0].positions) < 700


def test_a_text_that_repeats_itself_is_decoded_again_over_the_whole_window(vocabulary: Vocabulary) -> None:
    looping, good = vocabulary.encode(" over and") * 30, vocabulary.encode(" Over and out.")
    runtime = Scripted(vocabulary, [looping, good], certainty=30)
    [segment] = transcriber(runtime).transcribe([CLIP])
    assert (segment.text, segment.temperature) == ("Over and out.", 0.0)
    assert [len(layout.positions) == 1500 for layout in runtime.layouts] == [False, True]


def test_a_sentence_said_exactly_twice_is_decoded_again(vocabulary: Vocabulary) -> None:
    once = vocabulary.encode(" The air is pure today.")
    runtime = Scripted(vocabulary, [once * 2, once], certainty=30)
    assert [segment.text for segment in transcriber(runtime).transcribe([CLIP])] == ["The air is pure today."]


def test_a_sentence_that_really_was_said_twice_is_kept(vocabulary: Vocabulary) -> None:
    twice = vocabulary.encode(" The air is pure today.") * 2
    runtime = Scripted(vocabulary, [twice], certainty=30)
    [segment] = transcriber(runtime).transcribe([CLIP])
    assert (segment.text, segment.temperature) == ("The air is pure today. The air is pure today.", 0.0)
    assert len(runtime.layouts) == 2


def test_the_start_of_an_unfinished_sentence_is_where_the_next_window_begins(vocabulary: Vocabulary) -> None:
    first = vocabulary.first_timestamp
    one, three = vocabulary.encode(" One."), vocabulary.encode(" Three.")
    runtime = Scripted(
        vocabulary, [[first + 50, *one, first + 600, first + 600], [first + 50, *three, first + 900]], certainty=60
    )
    noise = np.random.default_rng(0).standard_normal(16_000 * 28).astype(np.float32) * 0.1
    segments = list(transcriber(runtime, timestamps=True).transcribe([noise]))
    assert [segment.text for segment in segments] == ["One.", "Three."]
    assert segments[1].start == pytest.approx(11.0, abs=0.1)


def test_a_window_whose_text_was_cut_is_gone_on_with(vocabulary: Vocabulary) -> None:
    first, word = vocabulary.first_timestamp, vocabulary.encode(" long")
    cut = [first + 50, *vocabulary.encode(" One."), first + 300, first + 300, *word * 60]
    rest = [first + 50, *vocabulary.encode(" Two."), first + 400]
    runtime = Scripted(vocabulary, [cut] * 7 + [rest], certainty=60)
    sound = np.concatenate(
        [np.random.default_rng(0).standard_normal(16_000 * 14).astype(np.float32) * 0.1, np.zeros(64_000, np.float32)]
    )
    assert [segment.text for segment in transcriber(runtime, timestamps=True).transcribe([sound])] == ["One.", "Two."]


def test_an_unlikely_text_is_tried_at_rising_temperatures_and_the_likeliest_kept(vocabulary: Vocabulary) -> None:
    runtime = Scripted(vocabulary, [vocabulary.encode(" Hm")], certainty=9.0)
    [segment] = transcriber(runtime).transcribe([CLIP])
    assert segment.average_logprob < -1
    assert (segment.text, segment.temperature) == ("Hm", 0.0)


def test_an_unlikely_text_without_speech_is_silence(vocabulary: Vocabulary) -> None:
    runtime = Scripted(vocabulary, [vocabulary.encode(" Thank you.")], certainty=9.0, no_speech=30.0)
    assert list(transcriber(runtime).transcribe([CLIP])) == []
    assert len(runtime.layouts) == 1


@pytest.mark.parametrize(("certainty", "texts"), [(30.0, ["Thank you."]), (10.0, [])])
def test_doubtful_voice_activity_needs_a_likely_text(vocabulary: Vocabulary, certainty: float, texts: list[str]) -> None:
    runtime = Scripted(vocabulary, [vocabulary.encode(" Thank you.")], certainty=certainty)
    assert [segment.text for segment in transcriber(runtime, probability=0.4).transcribe([CLIP])] == texts


def test_speech_without_a_pause_goes_on_at_its_last_complete_sentence(vocabulary: Vocabulary) -> None:
    first = vocabulary.first_timestamp
    one, two, three = (vocabulary.encode(text) for text in (" One.", " Two.", " Three."))
    cut = [first + 50, *one, first + 600, first + 600, *two]
    rest = [first + 50, *three, first + 900]
    runtime = Scripted(vocabulary, [cut, rest], certainty=60)
    noise = np.random.default_rng(0).standard_normal(16_000 * 28).astype(np.float32) * 0.1
    segments = list(transcriber(runtime, timestamps=True).transcribe([noise]))
    assert [segment.text for segment in segments] == ["One.", "Three."]
    assert segments[0].end == pytest.approx(11.0, abs=0.05)
    assert segments[1].start == pytest.approx(11.0, abs=0.1)


def test_speech_without_a_pause_always_moves_on(vocabulary: Vocabulary) -> None:
    first, word = vocabulary.first_timestamp, vocabulary.encode(" on")
    stuck = [first + 50, *word, first + 51, first + 51, *word]
    runtime = Scripted(vocabulary, [stuck], certainty=60)
    noise = np.random.default_rng(0).standard_normal(16_000 * 65).astype(np.float32) * 0.1
    assert len(list(transcriber(runtime, timestamps=True).transcribe([noise]))) == 8


def test_wrong_wishes_are_refused_before_any_sound(vocabulary: Vocabulary) -> None:
    runtime = Scripted(vocabulary, [[]])
    with pytest.raises(UnsupportedLanguage, match="'ru'"):
        transcriber(runtime, language="ru")
    with pytest.raises(UnsupportedLanguage, match="translate"):
        transcriber(runtime, language="en", task="translate")


def test_no_sound_at_all_is_silence(vocabulary: Vocabulary) -> None:
    runtime = Scripted(vocabulary, [[]])
    for blocks in ([], [np.zeros(0, np.float32)], [np.zeros(1, np.float32)], [np.zeros(16_000 * 90, np.float32)]):
        assert list(transcriber(runtime).transcribe(blocks)) == []
    assert runtime.layouts == []


@pytest.mark.parametrize("text", [" over and", " la"])
def test_words_of_a_text_that_was_cut_have_times(vocabulary: Vocabulary, text: str) -> None:
    runtime = Scripted(vocabulary, [vocabulary.encode(text) * 120], certainty=30)
    [segment] = transcriber(runtime, words=True).transcribe([CLIP])
    assert segment.words
    assert all(word.start <= word.end for word in segment.words)
