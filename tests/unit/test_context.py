import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdna_asr.context import POSITIONS, continue_with_silence, full_window, sparse_tail


@given(st.integers(0, 3400), st.integers(1, 200), st.integers(1, 40))
def test_every_position_is_stood_for_exactly_once(frames: int, margin: int, stride: int) -> None:
    layout = sparse_tail(frames, margin, stride)
    assert np.exp(layout.key_bias.astype(np.float64)).sum() == pytest.approx(POSITIONS)
    assert (np.diff(layout.positions) > 0).all()
    assert layout.positions[-1] < POSITIONS
    assert (layout.key_bias[: layout.dense] == 0).all()
    assert layout.clip <= layout.dense


def test_the_full_window_computes_every_position() -> None:
    layout = full_window(100)
    assert np.array_equal(layout.positions, np.arange(POSITIONS))
    assert np.array_equal(layout.source, np.arange(POSITIONS))
    assert not layout.key_bias.any()


@pytest.mark.parametrize("frames", [10, 500, 2990, 3300])
def test_mel_is_cut_or_continued_to_what_the_layout_reads(frames: int) -> None:
    for layout in (sparse_tail(frames), full_window(frames)):
        mel = continue_with_silence(np.ones((frames, 80), np.float32), layout, -0.5)
        assert len(mel) // 2 > layout.source.max()
        assert (mel[frames:] == -0.5).all()
