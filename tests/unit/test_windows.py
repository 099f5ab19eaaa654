from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xdna_asr.windows import LONG_PAUSE, MAX_WINDOW, SHORT_PAUSE, Window, Windower, speech_regions


def cut(probabilities: Sequence[float], block: int = 1000) -> list[Window]:
    windower, windows = Windower(), []
    for start in range(0, len(probabilities), block):
        windower.push(probabilities[start : start + block])
        while window := windower.next(finished=False):
            windows.append(window)
            windower.advance(window.end)
    while window := windower.next(finished=True):
        windows.append(window)
        windower.advance(window.end)
    return windows


stretches = st.lists(st.tuples(st.integers(1, 1500), st.sampled_from([0.0, 0.4, 0.9])), max_size=12)


@settings(max_examples=200, deadline=None)
@given(stretches, st.integers(10, 400))
def test_windows_cover_all_speech_once_and_fit(parts: list[tuple[int, float]], block: int) -> None:
    probabilities = [probability for length, probability in parts for _ in range(length)]
    windows = cut(probabilities, block)
    assert all(window.begin < window.end and window.end - window.begin <= MAX_WINDOW for window in windows)
    assert all(earlier.end <= later.begin for earlier, later in pairwise(windows))
    covered = {step for window in windows for step in range(window.begin, window.end)}
    assert {step for step, probability in enumerate(probabilities) if probability >= 0.5} <= covered


def test_silence_gives_no_window() -> None:
    assert cut([0.1] * 5000) == []


def test_a_long_pause_parts_two_sentences_and_is_left_out() -> None:
    first, second = cut([0.9] * 60 + [0.0] * 250 + [0.9] * 60)
    assert second.begin - first.end > LONG_PAUSE
    assert not first.open_end
    assert not second.open_end


def test_running_speech_is_cut_in_its_longest_pause_of_the_later_half() -> None:
    first, *_ = cut(([0.9] * 100 + [0.0] * 10) * 3 + [0.9] * 100 + [0.0] * 30 + [0.9] * 100 + [0.0] * 10 + [0.9] * 400)
    assert first.end == pytest.approx(445, abs=16)


def test_speech_without_any_pause_leaves_an_open_end() -> None:
    assert cut([0.9] * 2000)[0].open_end


def test_weak_evidence_stays_doubtful_however_long_it_lasts() -> None:
    assert [window.certain for window in cut([0.4] * 2000)] == [False] * 4


def test_weak_evidence_alone_is_doubtful() -> None:
    assert [window.certain for window in cut([0.4] * 20 + [0.0] * 200 + [0.6] * 20)] == [False, True]


def test_a_dip_shorter_than_a_pause_does_not_part_speech() -> None:
    assert len(speech_regions([0.9] * 10 + [0.0] * SHORT_PAUSE + [0.9] * 10)) == 1
    assert len(speech_regions([0.9] * 10 + [0.0] * (SHORT_PAUSE + 1) + [0.9] * 10)) == 2
