from pathlib import Path

import pytest

from xdna_asr.errors import ModelDamaged, ModelMissing, UnsupportedLanguage
from xdna_asr.store import ModelStore
from xdna_asr.text.vocabulary import Vocabulary, vocabulary_tables

SIZES = {"whisper-tiny.en": 51_864, "whisper-base": 51_865}


@pytest.fixture(params=SIZES)
def vocabulary(store: ModelStore, request: pytest.FixtureRequest) -> Vocabulary:
    model = store.open(request.param)
    return Vocabulary(model.arena(), model.arena().meta, SIZES[request.param], model.tokenizer)


def test_special_ids_are_those_of_the_generation(vocabulary: Vocabulary) -> None:
    shift = 1 if vocabulary.multilingual else 0
    assert vocabulary.end_of_text == 50_256 + shift
    assert vocabulary.start == 50_257 + shift
    assert vocabulary.no_speech == 50_361 + shift
    assert vocabulary.first_timestamp == 50_363 + shift
    assert len(vocabulary.languages) == (99 if shift else 1)


def test_prompts(vocabulary: Vocabulary) -> None:
    start, none = vocabulary.start, vocabulary.no_timestamps
    task = [50_259, 50_359] if vocabulary.multilingual else []
    assert vocabulary.prompt("en", timestamps=False) == [start, *task, none]
    assert vocabulary.prompt("en", timestamps=True) == [start, *task]
    long = vocabulary.prompt("en", timestamps=False, previous=range(300))
    assert long[0] == 50_360 + vocabulary.multilingual
    assert long[1:220] == list(range(81, 300))
    assert len(long) + 224 <= 448
    with pytest.raises(UnsupportedLanguage, match="'xx'"):
        vocabulary.prompt("xx", timestamps=False)


@pytest.mark.parametrize("text", [" Hello, wörld!", " Привет, мир", " 日本語です", " 🙂 naïve"])
def test_text_survives_the_round_trip_and_splits_into_whole_words(vocabulary: Vocabulary, text: str) -> None:
    tokens = vocabulary.encode(text)
    assert vocabulary.decode(tokens) == text
    words = [vocabulary.decode(word) for word in vocabulary.words(tokens)]
    assert "".join(words) == text
    assert not any("\ufffd" in word for word in words)


def test_words_keep_their_punctuation(vocabulary: Vocabulary) -> None:
    words = vocabulary.words(vocabulary.encode(" Yes, it isn't done."))
    assert [vocabulary.decode(word) for word in words] == [" Yes,", " it", " isn't", " done."]


def test_missing_broken_and_swapped_tokenizers_are_refused_by_name(store: ModelStore, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(ModelMissing, match=r"tokenizer\.json"):
        vocabulary_tables(path, 51_864)
    path.write_text("{")
    with pytest.raises(ModelDamaged, match=r"tokenizer\.json"):
        vocabulary_tables(path, 51_864)
    with pytest.raises(ModelDamaged, match="another model"):
        vocabulary_tables(store.open("whisper-base").tokenizer, 51_864)
