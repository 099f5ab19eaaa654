"""What goes wrong with microphones and recognisers, and what the person who dictates gets all the same."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import watched_daemon
from bench_engine import Recorder, running
from recordings import speech
from sources import NONE, Microphone, numbered, opening
from xdna_asr.store import ModelStore
from xdna_asr.types import F32
from xdna_dictate import kept
from xdna_dictate.audio import capture
from xdna_dictate.audio.sources import Source
from xdna_dictate.dictation import Dictation
from xdna_dictate.engine import Engine
from xdna_dictate.errors import Busy, MicrophoneBusy, NoMicrophone, NotActive, Suspended

CLIP = speech("en-sb-spk1-snt3.flac")
WORDS = "at that high level"
Scenario = Callable[[Engine, Recorder], Awaitable[None]]


@pytest.fixture(autouse=True)
def loop_is_never_blocked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    blocked: list[str] = []
    monkeypatch.setattr(asyncio.events.Handle, "_run", watched_daemon.timed(blocked.append))
    yield
    assert not blocked, blocked


@pytest.fixture
def play(tmp_path: Path, store: ModelStore, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs a scenario on an engine whose microphones are `sources`."""
    assert store
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))

    def run(scenario: Scenario, *sources: Any, **flags: Any) -> None:
        async def whole() -> None:
            async with asyncio.timeout(60), running(tmp_path, opening(*sources), **flags) as (engine, recorder):
                await scenario(engine, recorder)

        asyncio.run(whole())

    return run


async def dictate(engine: Engine, microphone: Microphone, mode: str = "toggle") -> Dictation:
    """Start, wait until everything was spoken, stop, wait for the end."""
    dictation = await engine.start({"mode": mode})
    await microphone.spoken.wait()
    if engine.listening:
        engine.stop()
    await dictation.ended
    return dictation


def reasons(recorder: Recorder) -> list[str]:
    return [reason for _, reason, _ in recorder.finishes]


def test_a_dictation_from_start_to_text(play: Callable[..., None]) -> None:
    microphone = Microphone(CLIP)

    async def scenario(engine: Engine, recorder: Recorder) -> None:
        dictation = await dictate(engine, microphone)
        assert WORDS in dictation.text.lower()
        assert recorder.states == ["starting", "listening", "finishing", "idle"]
        assert reasons(recorder) == ["stopped"]
        assert recorder.speeches == [True, False]
        assert microphone.closed
        assert not kept.undelivered()

    play(scenario, microphone)


@pytest.mark.parametrize("late", [0.5, 1.5])
def test_listening_is_announced_only_when_samples_flow(play: Callable[..., None], late: float) -> None:
    microphone = Microphone(CLIP, late=late)

    async def scenario(engine: Engine, recorder: Recorder) -> None:
        dictation = await engine.start({})
        await asyncio.sleep(late - 0.2)
        assert engine.state == "starting"
        await microphone.spoken.wait()
        assert engine.state == "listening"
        engine.stop()
        await dictation.ended
        assert dictation.text.lower().startswith(WORDS)

    play(scenario, microphone)


def test_stop_loses_no_sample(play: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """10,007 samples in blocks of 480, all of them waiting in the buffers when Stop comes."""
    heard: list[F32] = []
    original = Dictation.samples

    def samples(self: Dictation, samples: F32) -> None:
        heard.append(samples)
        original(self, samples)

    monkeypatch.setattr(Dictation, "samples", samples)
    microphone = Microphone(numbered(10_007), block=0.03, speed=1e6, after="stuck")

    async def scenario(engine: Engine, _recorder: Recorder) -> None:
        dictation = await engine.start({})
        async with asyncio.timeout(5):
            while engine.state != "listening":  # noqa: ASYNC110  the very moment the first block arrives
                await asyncio.sleep(0)
        engine.stop()
        await dictation.ended

    play(scenario, microphone, partials=False)
    assert np.array_equal(np.round(np.concatenate(heard) * 32_768), np.round(numbered(10_007) * 32_767))


def test_an_unplugged_microphone_keeps_what_was_heard(play: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "REOPEN_SECONDS", 0.2)
    first, second = Microphone(CLIP[:32_000], after="gone"), Microphone(CLIP)

    async def scenario(engine: Engine, recorder: Recorder) -> None:
        dictation = await engine.start({})
        await dictation.ended
        assert WORDS in dictation.text.lower()
        assert reasons(recorder) == ["error"]
        [(_, error)] = recorder.failures
        assert isinstance(error, NoMicrophone)
        assert engine.state == "idle"
        assert WORDS in (await dictate(engine, second)).text.lower()

    play(scenario, first, *[NONE] * 4, second)


def test_a_microphone_that_comes_back_goes_on(play: Callable[..., None]) -> None:
    half = len(CLIP) // 2
    second = Microphone(CLIP[half:])

    async def scenario(engine: Engine, recorder: Recorder) -> None:
        dictation = await dictate(engine, second)
        assert WORDS in dictation.text.lower()
        assert reasons(recorder) == ["stopped"]

    play(scenario, Microphone(CLIP[:half], after="gone"), NONE, second)


@pytest.mark.parametrize(("rate", "channels"), [(44_100, 2), (48_000, 1), (8_000, 1)])
def test_a_device_is_used_at_its_own_rate_and_channels(play: Callable[..., None], rate: int, channels: int) -> None:
    microphone = Microphone(CLIP, rate=rate, channels=channels)

    async def scenario(engine: Engine, _recorder: Recorder) -> None:
        assert WORDS in (await dictate(engine, microphone)).text.lower()

    play(scenario, microphone)


def test_no_microphone_at_first_and_one_later(play: Callable[..., None]) -> None:
    microphone = Microphone(CLIP)

    async def scenario(engine: Engine, recorder: Recorder) -> None:
        dictation = await engine.start({})
        await dictation.ended
        assert reasons(recorder) == ["error"]
        assert isinstance(recorder.failures[0][1], NoMicrophone)
        assert WORDS in (await dictate(engine, microphone)).text.lower()

    play(scenario, NONE, microphone)


def test_a_microphone_that_another_program_keeps(play: Callable[..., None]) -> None:
    async def scenario(engine: Engine, recorder: Recorder) -> None:
        with pytest.raises(MicrophoneBusy):
            await engine.dictate(5)
        assert isinstance(recorder.failures[0][1], MicrophoneBusy)

    play(scenario, MicrophoneBusy("another program keeps the microphone for itself"))


def test_exact_zeros_are_named_for_what_they_are(play: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "ZERO_SECONDS", 0.5)
    dead, alive = Microphone(np.zeros(0, np.float32), after="zeros"), Microphone(CLIP)

    async def scenario(engine: Engine, recorder: Recorder) -> None:
        dictation = await dictate(engine, alive)
        assert WORDS in dictation.text.lower()
        assert not recorder.failures

    play(scenario, dead, alive)

    async def only_zeros(engine: Engine, recorder: Recorder) -> None:
        dictation = await engine.start({})
        await asyncio.sleep(1.5)
        assert engine.state == "listening"
        engine.stop()
        await dictation.ended
        assert reasons(recorder) == ["no-speech"]
        assert "digital silence" in str(recorder.failures[0][1])

    play(only_zeros, Microphone(np.zeros(0, np.float32), after="zeros"))


def test_a_microphone_that_falls_silent_for_good_is_opened_again(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "STALL_SECONDS", 0.3)
    half = len(CLIP) // 2
    second = Microphone(CLIP[half:])

    async def scenario(engine: Engine, _recorder: Recorder) -> None:
        assert WORDS in (await dictate(engine, second)).text.lower()

    play(scenario, Microphone(CLIP[:half], after="stuck"), second)


def test_a_microphone_that_delivers_too_little_is_opened_again(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "DEFICIT_SECONDS", 0.3)
    second = Microphone(CLIP)

    async def scenario(engine: Engine, recorder: Recorder) -> None:
        assert WORDS in (await dictate(engine, second)).text.lower()
        assert not recorder.failures

    play(scenario, Microphone(np.zeros(0, np.float32), speed=0.3), second)


def test_a_microphone_that_never_delivers_is_an_error_in_bounded_time(play: Callable[..., None]) -> None:
    async def scenario(engine: Engine, recorder: Recorder) -> None:
        dictation = await engine.start({})
        await dictation.ended
        assert isinstance(recorder.failures[0][1], NoMicrophone)
        assert engine.state == "idle"

    play(scenario, Microphone(np.zeros(0, np.float32), after="stuck"))


def test_a_device_that_does_not_close_holds_nothing_up(play: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xdna_dictate.dictation.CLOSE_SECONDS", 0.3)
    microphone = Microphone(CLIP, blocked=30)

    async def scenario(engine: Engine, _recorder: Recorder) -> None:
        async with asyncio.timeout(10):
            assert WORDS in (await dictate(engine, microphone)).text.lower()

    play(scenario, microphone)


@pytest.mark.parametrize("name", ["en-sc-yes.flac", "en-lead-2s-yes.flac"])
def test_one_short_word_comes_out_and_ends_by_itself(play: Callable[..., None], name: str) -> None:
    microphone = Microphone(speech(name))

    async def scenario(engine: Engine, recorder: Recorder) -> None:
        text = await engine.dictate(15)
        assert text.strip(" .!").lower() == "yes"
        assert reasons(recorder) == ["silence"]

    play(scenario, microphone)


def test_text_comes_while_one_goes_on_speaking(play: Callable[..., None]) -> None:
    pause = np.random.default_rng(0).normal(0, 1e-4, 32_000).astype(np.float32)
    microphone = Microphone(np.concatenate([CLIP, pause, CLIP]))

    async def scenario(engine: Engine, recorder: Recorder) -> None:
        dictation = await engine.start({})
        await asyncio.sleep(len(CLIP) / 16_000 + 1.9)
        assert len(recorder.texts) == 1
        await microphone.spoken.wait()
        engine.stop()
        await dictation.ended
        assert len(recorder.texts) == 2
        assert dictation.text == " ".join(recorder.texts)
        assert recorder.partials
        stables = [stable for stable, _ in recorder.partials]
        assert all(later.startswith(earlier) for earlier, later in pairwise(stables))
        assert dictation.text.startswith(stables[-1])

    play(scenario, microphone)


def test_cancel_forgets(play: Callable[..., None]) -> None:
    microphone = Microphone(CLIP)

    async def scenario(engine: Engine, recorder: Recorder) -> None:
        dictation = await engine.start({})
        await asyncio.sleep(1)
        engine.cancel()
        await dictation.ended
        assert recorder.finishes[0][1:] == ("cancelled", "")
        assert not kept.undelivered()
        with pytest.raises(NotActive):
            engine.cancel()

    play(scenario, microphone)


def test_only_one_dictation_at_a_time_but_the_next_need_not_wait_for_the_text(play: Callable[..., None]) -> None:
    first, second = Microphone(CLIP), Microphone(CLIP)

    async def scenario(engine: Engine, recorder: Recorder) -> None:
        one = await engine.start({})
        with pytest.raises(Busy):
            await engine.start({})
        await first.spoken.wait()
        engine.stop()
        two = await dictate(engine, second)
        await one.ended
        assert WORDS in one.text.lower()
        assert WORDS in two.text.lower()
        assert [name for name, _, _ in recorder.finishes] == [one.name, two.name]

    play(scenario, first, second)


def test_sleep_ends_a_dictation_with_its_text_and_waking_allows_the_next(play: Callable[..., None]) -> None:
    first, second = Microphone(CLIP), Microphone(CLIP)

    async def scenario(engine: Engine, recorder: Recorder) -> None:
        dictation = await engine.start({})
        await first.spoken.wait()
        engine.sleep(about_to=True)
        assert engine.state == "suspended"
        with pytest.raises(Suspended):
            await engine.start({})
        await dictation.ended
        assert WORDS in dictation.text.lower()
        engine.sleep(about_to=False)
        assert engine.state == "idle"
        assert WORDS in (await dictate(engine, second)).text.lower()
        assert not recorder.failures

    play(scenario, first, second)


def test_a_warm_microphone_hears_what_came_just_before(play: Callable[..., None]) -> None:
    microphone = Microphone(CLIP)

    async def scenario(engine: Engine, _recorder: Recorder) -> None:
        engine.keep_warm()
        await asyncio.sleep(0.45)
        dictation = await engine.start({})
        await asyncio.sleep(0.1)
        assert engine.state == "listening"
        await microphone.spoken.wait()
        engine.stop()
        await dictation.ended
        assert dictation.text.lower().startswith(WORDS)
        assert not microphone.closed

    play(scenario, microphone, warm_microphone=True, pre_roll=1.0)
    assert microphone.closed


def test_the_state_folder_can_be_read_only_or_full(play: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    for target in ("os.open", "os.write"):
        microphone = Microphone(CLIP)

        async def scenario(engine: Engine, recorder: Recorder, microphone: Microphone = microphone, target: str = target) -> None:
            dictation = await engine.start({})
            with monkeypatch.context() as patch:
                patch.setattr(f"xdna_dictate.kept.{target}", full)
                await microphone.spoken.wait()
            engine.stop()
            await dictation.ended
            assert WORDS in dictation.text.lower()
            assert not recorder.failures

        play(scenario, microphone)


@pytest.mark.parametrize("policy", ["until-delivered", "last", "never"])
def test_sound_is_kept_as_long_as_the_policy_says(play: Callable[..., None], policy: str) -> None:
    microphone = Microphone(CLIP)

    async def scenario(engine: Engine, recorder: Recorder) -> None:
        await dictate(engine, microphone)
        if policy != "last":
            with pytest.raises(NotActive):
                await engine.retry({})
            return
        [path] = kept.delivered()
        assert path.stat().st_mode & 0o077 == 0
        again = await engine.retry({"language": "en"})
        await again.ended
        assert WORDS in again.text.lower()
        assert recorder.finishes[-1][1] == "stopped"

    play(scenario, microphone, keep_audio=policy)


def test_a_text_that_d_bus_cannot_carry_is_replaced() -> None:
    from xdna_dictate.service.bus import _clean

    assert _clean(["a\0b", {"k": "\ud800x"}]) == ["ab", {"k": "\ufffd\ufffd\ufffdx"}]


def test_sources_fit_the_protocol() -> None:
    source: Source = Microphone(CLIP)
    assert source.rate == 16_000
