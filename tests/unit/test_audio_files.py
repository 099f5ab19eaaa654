from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from recordings import DATA, speech
from xdna_dictate.audio.files import open_audio
from xdna_dictate.errors import AudioError

CLIP = speech("en-sb-spk1-snt3.flac")


def read(path: Path | str) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    with open_audio(str(path)) as audio:
        return np.concatenate(list(audio.blocks))


def test_a_clean_file_comes_through_bit_for_bit(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", CLIP, 16_000, subtype="FLOAT")
    assert np.array_equal(read(tmp_path / "x.wav"), CLIP)


@pytest.mark.parametrize("wild", [1e20, -1e9, np.inf, np.nan, 50.0])
def test_one_wild_sample_does_not_mute_the_rest(tmp_path: Path, wild: float) -> None:
    samples = CLIP.copy()
    samples[100] = wild
    soundfile.write(tmp_path / "x.wav", samples, 16_000, subtype="FLOAT")
    got = read(tmp_path / "x.wav")
    assert np.abs(got).max() <= 1
    assert np.allclose(got[200:], CLIP[200:], atol=2e-2)


def test_a_file_that_is_too_loud_is_scaled_as_a_whole(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", CLIP / np.abs(CLIP).max() * 20, 16_000, subtype="FLOAT")
    got = read(tmp_path / "x.wav")
    assert np.corrcoef(got, CLIP)[0, 1] > 0.98


@pytest.mark.parametrize("kind", ["WAV", "WAVEX"])
def test_sound_behind_a_header_without_a_size_is_found(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, CLIP, 16_000, subtype="PCM_24", format=kind)
    content = path.read_bytes()
    at = content.index(b"data") + 4
    path.write_bytes(content[:at] + bytes(4) + content[at + 4 :])
    assert len(read(path)) == len(CLIP)


def test_ffmpeg_files_are_not_cut_up_by_their_short_frames(tmp_path: Path) -> None:
    rate, seconds = 16_000, 3
    low = (0.8 * np.sin(2 * np.pi * 90 * np.arange(rate * seconds) / rate)).astype(np.float32)
    with av.open(str(tmp_path / "x.mka"), "w") as out:
        stream = out.add_stream("pcm_s16le", rate=rate, layout="mono")
        for start in range(0, len(low), 320):
            frame = av.AudioFrame.from_ndarray((low[None, start : start + 320] * 32767).astype(np.int16), layout="mono")
            frame.sample_rate, frame.pts = rate, start
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    assert np.allclose(read(tmp_path / "x.mka"), low, atol=1e-3)


def test_a_relative_name_with_a_colon_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "2024-01-01T12:30.m4a").write_bytes((DATA / "awkward" / "codec-aac.m4a").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert len(read("2024-01-01T12:30.m4a")) > 40_000


def test_a_name_with_a_nul_is_one_clear_error() -> None:
    with pytest.raises(AudioError, match="not a file name"):
        read("a\0b")
