from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdna_asr.decoding import guards
from xdna_asr.decoding.alignment import token_times
from xdna_asr.decoding.rules import Rules, log_softmax
from xdna_asr.decoding.segments import complete_pieces, pieces

FIRST, END = 20, 10
VOCABULARY = cast(
    "Any",
    SimpleNamespace(
        end_of_text=END,
        no_timestamps=FIRST - 1,
        first_timestamp=FIRST,
        suppress=np.array([3, 15]),
        suppress_first=np.array([5, END]),
    ),
)


def allowed(written: list[int], *, timestamps: bool = True, lead: int = 0, time_bonus: float = 0.0) -> set[int]:
    logits = np.zeros(FIRST + 101, np.float32)
    logits[FIRST:] += time_bonus - 10
    Rules(VOCABULARY, timestamps, lead).apply(logits, written)
    return set(np.flatnonzero(np.isfinite(logits)).tolist())


def test_without_times_only_text_and_the_end_may_be_written() -> None:
    assert allowed([1], timestamps=False) == set(range(FIRST - 1)) - {3, 15}
    assert allowed([], timestamps=False) == set(range(FIRST - 1)) - {3, 15, 5, END}


def test_the_first_token_is_a_time_at_most_a_second_into_the_clip() -> None:
    assert allowed([]) == set(range(FIRST, FIRST + 51))
    assert allowed([], lead=25) == set(range(FIRST, FIRST + 76))


def test_a_start_time_is_followed_by_text() -> None:
    assert not {token for token in allowed([FIRST]) if token >= FIRST}


def test_an_end_time_is_followed_by_a_start_time_not_before_it_or_the_end() -> None:
    assert allowed([FIRST, 1, FIRST + 7]) == {END, *range(11, 15), *range(16, 19), *range(FIRST + 7, FIRST + 101)}


def test_times_never_go_back() -> None:
    assert min(token for token in allowed([FIRST + 4, 1, 2]) if token >= FIRST) == FIRST + 5


def test_a_time_is_forced_when_all_times_together_are_likelier_than_any_text() -> None:
    assert all(token >= FIRST for token in allowed([FIRST, 1], time_bonus=9.0))


@pytest.mark.parametrize("run", [[7], [7, 8], [1, 2, 3], list(range(12))])
def test_repetition_is_seen(run: list[int]) -> None:
    assert guards.repeats_itself([90, 91, *run * 10])
    assert not guards.repeats_itself([90, 91, *run * 3])


def test_a_sentence_said_exactly_twice_is_seen() -> None:
    assert guards.said_twice([1, 2, 3, 4, 5] * 2)
    assert not guards.said_twice([1, 2, 3, 1, 2, 3])


@given(st.text(max_size=200))
def test_compression_ratio_takes_any_text(text: str) -> None:
    assert guards.compression_ratio(text) >= 0


def test_log_softmax_sums_to_one() -> None:
    logits = np.array([[1, 2, 3], [1000, 0, -1000]], np.float32)
    assert np.allclose(np.exp(log_softmax(logits)).sum(axis=1), 1)


def test_pieces_are_parted_at_times_and_know_whether_they_are_complete() -> None:
    tokens = [FIRST, 1, 2, FIRST + 50, FIRST + 60, 4, FIRST + 90]
    found = pieces(tokens, VOCABULARY)
    assert [(tokens[piece.begin : piece.end], piece.closed) for piece in found] == [([1, 2], True), ([4], False)]
    assert [(piece.start_time, piece.end_time) for piece in found] == [(0.0, 1.0), (pytest.approx(1.2), pytest.approx(1.8))]
    assert [piece.end_time for piece in pieces([1, 2], VOCABULARY)] == [float("inf")]


@pytest.mark.parametrize(
    ("tokens", "texts", "time"),
    [
        ([FIRST, 1, FIRST + 50, FIRST + 50, 2], [[1]], 1.0),
        ([FIRST, 1, FIRST + 50, FIRST + 60], [[1]], 1.2),
        ([FIRST, 1, FIRST + 50, FIRST + 50, 2, FIRST + 90], [[1], [2]], None),
        ([FIRST, 1, FIRST + 9, FIRST + 9, 2], [[1], [2]], None),
        ([FIRST, 1, 2], [[1, 2]], None),
        ([FIRST], [], None),
    ],
)
def test_an_unfinished_last_sentence_is_gone_on_with(tokens: list[int], texts: list[list[int]], time: float | None) -> None:
    kept, resume = complete_pieces(pieces(tokens, VOCABULARY), tokens, VOCABULARY)
    assert [tokens[piece.begin : piece.end] for piece in kept] == texts
    assert resume == (None if time is None else pytest.approx(time))


def test_token_times_follow_the_attention() -> None:
    alignment = np.full((2, 4, 40), 0.01, np.float32)
    for token, position in enumerate((2, 12, 24, 33)):
        alignment[:, token, position : position + 7] = 1.0
    assert token_times(alignment, 40) * 50 == pytest.approx([0, 12, 24, 33], abs=6)


def test_a_window_always_leads_on_even_if_the_first_time_lies_in_the_lead() -> None:
    tokens = [FIRST, 1, 2, FIRST + 50, FIRST + 50, 4]
    found = pieces(tokens, VOCABULARY)
    assert complete_pieces(found, tokens, VOCABULARY)[1] is not None
    assert complete_pieces(found, tokens, VOCABULARY, lead=1.0) == (found, None)
