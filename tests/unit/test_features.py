import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordings import speech
from xdna_asr.features import HOP, MelStream, log_mel, mel_filters, silent_mel


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=12))
def test_frames_do_not_depend_on_how_the_signal_arrives(cuts: list[int]) -> None:
    signal = np.random.default_rng(1).standard_normal(sum(cuts)).astype(np.float32)
    stream = MelStream()
    for block in np.split(signal, np.cumsum(cuts)[:-1]):
        stream.push(block)
    assert np.allclose(stream.frames(0, stream.finish()), log_mel(signal), atol=1e-5)


@pytest.mark.parametrize("samples", [0, 1, 159, 200, 201, 16_000])
def test_frames_reach_to_the_last_one_that_hears_the_signal(samples: int) -> None:
    mel = log_mel(np.ones(samples, np.float32))
    assert mel.shape == (-(-(samples + 200) // HOP), 80)
    assert np.isfinite(mel).all()


def test_silence_after_a_clip_is_the_floor_of_its_own_normalisation() -> None:
    clip = speech("en-jfk.flac")
    longer = log_mel(np.concatenate([clip, np.zeros(16_000, np.float32)]))
    assert np.allclose(longer[-50:], silent_mel(log_mel(clip)), atol=1e-6)


def test_a_stretch_is_normalised_by_its_own_loudest_bin() -> None:
    stream = MelStream()
    stream.push(np.concatenate([speech("en-jfk.flac") * 0.01, speech("en-jfk.flac")]))
    assert stream.frames(100, 600).max() < stream.frames(100, 1500).max()
    stream.forget(300)
    with pytest.raises(ValueError, match="frames 100"):
        stream.frames(100, 600)


@pytest.mark.parametrize("bands", [80, 128])
def test_every_filter_has_unit_area(bands: int) -> None:
    area = mel_filters(bands).sum(axis=0) * 40
    assert np.allclose(area[bands // 2 :], 1, atol=0.15)
