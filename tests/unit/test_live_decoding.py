"""What dictation adds to decoding: settled prefixes, hotwords, an allowed set of languages."""

import numpy as np
import pytest

from conftest import Open
from recordings import speech
from xdna_asr.decoding.agreement import settled_prefix
from xdna_asr.decoding.hotwords import BEGIN_BONUS, CONTINUE_BONUS, Hotwords
from xdna_asr.features import HOP, log_mel
from xdna_asr.runtime.select import choose
from xdna_asr.store import ModelStore
from xdna_asr.text.vocabulary import Vocabulary
from xdna_asr.window_decoder import Clip, Options
from xdna_dictate.recognition import Recogniser, open_recogniser


@pytest.fixture(scope="module")
def recogniser(store: ModelStore) -> Recogniser:
    return open_recogniser(store, "whisper-tiny.en", choose("cpu"), precision="int8", threads=2)


@pytest.fixture(scope="module")
def vocabulary(recogniser: Recogniser) -> Vocabulary:
    return recogniser.vocabulary


def clip(name: str) -> Clip:
    samples = speech(name)
    return Clip(log_mel(samples)[: len(samples) // HOP])


def test_clauses_that_three_decodes_agree_on_are_settled(vocabulary: Vocabulary) -> None:
    first, second, later = (
        vocabulary.encode(text)
        for text in (
            " And so, ask not what",
            " And so, ask not what your county",
            " And so, ask not what your country can do, for",
        )
    )
    assert vocabulary.decode(settled_prefix([first, second], later, vocabulary)) == " And so,"
    assert settled_prefix([later], later, vocabulary) == []
    assert settled_prefix([first, vocabulary.encode(" And so ask")], later, vocabulary) == []
    assert (
        vocabulary.decode(settled_prefix([later, later], [*later, *later], vocabulary))
        == " And so, ask not what your country can do,"
    )


@pytest.mark.parametrize("name", ["en-sb-spk1-snt3.flac", "en-jfk.flac"])
def test_a_prefix_is_kept_and_the_text_goes_on_after_it(recogniser: Recogniser, name: str) -> None:
    decoder = recogniser.decoder(Options(language="en"))
    free = decoder.decode(clip(name))
    for cut in (1, 4, len(free.tokens) - 1):
        assert decoder.decode(clip(name), prefix=free.tokens[:cut]).tokens == free.tokens
    other = tuple(recogniser.vocabulary.encode(" Hello"))
    forced = decoder.decode(clip(name), prefix=other)
    assert forced.tokens[: len(other)] == other
    assert forced.segments[0].text.startswith("Hello")


def test_words_are_timed_with_a_prefix_too(recogniser: Recogniser) -> None:
    decoder = recogniser.decoder(Options(language="en", words=True))
    free = decoder.decode(clip("en-jfk.flac")).segments[0].words
    prefix = decoder.decode(clip("en-jfk.flac")).tokens[:6]
    forced = decoder.decode(clip("en-jfk.flac"), prefix=prefix).segments[0].words
    assert [word.text for word in forced] == [word.text for word in free]
    assert np.allclose([word.start for word in forced], [word.start for word in free], atol=0.3)


def test_hotwords_are_raised_along_their_tokens_and_nothing_else_is(vocabulary: Vocabulary) -> None:
    tokens = vocabulary.encode(" Whittemore")
    hotwords = Hotwords(vocabulary, ["Whittemore"])
    for index, token in enumerate(tokens):
        logits = np.zeros(vocabulary.size, np.float32)
        hotwords.apply(logits, [*vocabulary.encode(" Mr"), *tokens[:index]])
        assert logits[token] == (CONTINUE_BONUS if index else BEGIN_BONUS)
        assert np.count_nonzero(logits) == (2 if index else 1)
    done = np.zeros(vocabulary.size, np.float32)
    hotwords.apply(done, tokens)
    assert np.flatnonzero(done).tolist() == [tokens[0]]


def test_only_allowed_languages_are_heard(transcriber: Open) -> None:
    samples = speech("en-sb-spk1-snt3.flac")
    heard = [segment.language for segment in transcriber("whisper-base", languages=("de", "ru")).transcribe([samples])]
    assert heard in (["de"], ["ru"])
    assert [segment.language for segment in transcriber("whisper-base", languages=("de", "en")).transcribe([samples])] == ["en"]
