"""Long runs: what the daemon costs while nothing happens, and hours of sound."""

import re
import time
import wave
from pathlib import Path

import numpy as np
import pytest

from desktop import Desktop, wait_for
from recordings import speech

MEGABYTES = 80.0
HOURS = 2


def cost(daemon_seconds: tuple[float, float], began: float) -> float:
    """Share of one core."""
    return (daemon_seconds[1] - daemon_seconds[0]) / (time.monotonic() - began)


@pytest.mark.parametrize("seconds", [5, pytest.param(60, marks=pytest.mark.long)])
def test_idle_costs_next_to_nothing(fresh: Desktop, seconds: int) -> None:
    fresh.start_bus()
    fresh.start_sound()
    daemon = fresh.start_daemon("--unload-after", "1")
    fresh.call("LoadModel")
    wait_for(lambda: fresh.get("ModelState") == "ready")
    wait_for(lambda: fresh.get("ModelState") == "unloaded")
    assert not daemon.worker()
    began, before = time.monotonic(), daemon.processor()
    time.sleep(seconds)
    assert cost((before, daemon.processor()), began) < 0.01
    assert daemon.memory() < MEGABYTES


@pytest.mark.parametrize("seconds", [10, pytest.param(60, marks=pytest.mark.long)])
def test_listening_to_silence_costs_little(fresh: Desktop, seconds: int) -> None:
    fresh.start_bus()
    fresh.start_sound()
    daemon = fresh.start_daemon()
    noise = fresh.folder / "room.wav"
    _write(noise, np.random.default_rng(0).normal(0, 0.0005, 16_000 * (seconds + 10)).astype(np.float32))
    fresh.call("Start", "continuous")
    wait_for(lambda: fresh.get("State") == "listening")
    fresh.play(noise)
    time.sleep(4)
    began, before = time.monotonic(), daemon.processor()
    time.sleep(seconds)
    assert cost((before, daemon.processor()), began) < 0.03
    fresh.call("Cancel")


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_hours_of_sound_lose_nothing_and_pile_nothing_up(fresh: Desktop) -> None:
    clip = np.concatenate([speech("en-jfk.flac"), np.random.default_rng(0).normal(0, 0.0005, 40_000).astype(np.float32)])
    count = int(HOURS * 3600) * 16_000 // len(clip)
    folder = fresh.folder / "state/xdna-dictate/kept"
    folder.mkdir(parents=True)
    _write(folder / "20260101T000000-1.wav", np.tile(clip, count))
    fresh.start_bus()
    daemon = fresh.start_daemon()
    monitor = fresh.monitor()
    fresh.call("RetryLast", "{}")
    monitor.wait("Text", count // 10, 300)
    before = daemon.memory()
    [finished] = monitor.wait("Finished", seconds=1200)
    assert daemon.memory() < before * 1.1
    text = finished.lower()
    assert "'stopped'" in text
    assert len(re.findall(r"fellow american", text)) == count
    assert len(re.findall(r"for your country", text)) == count
    assert not list(folder.iterdir())


def _write(path: Path, samples: "np.ndarray[tuple[int], np.dtype[np.float32]]") -> None:
    with wave.open(str(path), "wb") as out:
        out.setparams((1, 2, 16_000, 0, "NONE", ""))
        out.writeframes((np.clip(samples, -1, 1) * 32_767).astype("<i2").tobytes())
