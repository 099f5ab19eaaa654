"""The state machine of a dictation, by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdna_dictate.hotkey import HOLD_SECONDS, QUIET_SECONDS, Command, Hotkey
from xdna_dictate.session import ONCE_SILENCE, ONCE_WAIT, Action, Limits, Mode, Reason, Session, State, limits_of

CLOSE, DISCARD, END = Action.CLOSE, Action.DISCARD, Action.END


def session(mode: Mode = Mode.TOGGLE, *, flowing: bool = True, longest: float = 300.0, silence: float | None = None) -> Session:
    made = Session(mode, limits_of(mode, longest, silence), 0.0)
    if flowing:
        made.samples_flow(0.1)
    return made


def test_listening_is_said_only_when_samples_flow() -> None:
    late = session(flowing=False)
    states = [late.state]
    late.samples_flow(1.5)
    assert [*states, late.state] == [State.STARTING, State.LISTENING]


def test_toggle_ends_by_stop_and_hands_over_what_was_heard() -> None:
    toggled = session()
    assert toggled.stop(3.0) == [CLOSE]
    assert toggled.state is State.FINISHING
    assert toggled.drained(3.2, text=True) == [END]
    assert toggled.reason is Reason.STOPPED


def test_stop_in_the_middle_of_a_word_waits_for_its_end() -> None:
    for quiet in (True, False):
        speaking = session()
        speaking.speech_started(1.0)
        speaking.voice(2.9, voiced=True)
        assert speaking.stop(3.0) == []
        assert speaking.deadline == pytest.approx(3.3)
        assert (speaking.voice(3.1, voiced=False) if quiet else speaking.tick(3.3)) == [CLOSE]


def test_once_ends_on_silence_after_speech() -> None:
    once = session(Mode.ONCE)
    once.speech_started(2.0)
    assert once.deadline == pytest.approx(300.1)
    once.speech_ended(4.0)
    assert once.deadline == pytest.approx(4.0 + ONCE_SILENCE)
    once.speech_started(4.5)
    once.speech_ended(6.0)
    assert once.tick(6.0 + ONCE_SILENCE) == [CLOSE]
    once.drained(8.0, text=True)
    assert once.reason is Reason.SILENCE


def test_once_does_not_wait_for_ever_for_speech() -> None:
    once = session(Mode.ONCE)
    assert once.tick(0.1 + ONCE_WAIT) == [CLOSE]
    assert once.drained(9.0, text=False) == [END]
    assert once.reason is Reason.NO_SPEECH


def test_continuous_has_no_end_of_its_own() -> None:
    endless = session(Mode.CONTINUOUS)
    endless.speech_started(1.0)
    endless.speech_ended(2.0)
    assert endless.deadline is None


def test_the_longest_time_counts_from_the_first_sample() -> None:
    limited = session(longest=30.0)
    assert limited.tick(30.0) == []
    assert limited.tick(30.1) == [CLOSE]
    limited.drained(30.5, text=True)
    assert limited.reason is Reason.TIMEOUT


def test_a_lost_microphone_keeps_what_was_heard() -> None:
    lost = session()
    assert lost.microphone_lost(2.0) == [CLOSE]
    lost.drained(2.5, text=True)
    assert lost.reason is Reason.ERROR
    never = session(flowing=False)
    assert never.microphone_lost(0.2) == [DISCARD, END]
    silent = session(flowing=False)
    assert silent.deadline == Limits().opening
    assert silent.tick(Limits().opening) == [DISCARD, END]


def test_cancel_throws_away() -> None:
    assert session().cancel(1.0) == [DISCARD, END]
    closing = session()
    closing.stop(1.0)
    assert closing.cancel(1.1) == [END]
    assert closing.reason is Reason.CANCELLED


EVENTS = [
    "samples_flow",
    "voice",
    "speech_started",
    "speech_ended",
    "stop",
    "cancel",
    "microphone_lost",
    "failed",
    "tick",
    "drained",
]


@given(
    st.sampled_from(Mode),
    st.one_of(st.none(), st.floats(0.1, 5)),
    st.lists(st.tuples(st.sampled_from(EVENTS), st.floats(0.0, 10.0)), max_size=40),
)
def test_whatever_happens_the_microphone_is_closed_once_and_the_end_comes_once_and_last(
    mode: Mode, silence: float | None, events: list[tuple[str, float]]
) -> None:
    machine, now = Session(mode, limits_of(mode, 60.0, silence), 0.0), 0.0
    actions: list[Action] = []
    for event, passed in events:
        now += passed
        extra = {"drained": {"text": True}, "voice": {"voiced": now % 2 < 1}}.get(event, {})
        actions += getattr(machine, event)(now, **extra)
        assert machine.ended == (END in actions)
        assert actions.count(CLOSE) + actions.count(DISCARD) <= 1
        assert machine.deadline is None or not machine.ended
    machine.samples_flow(now)
    actions += machine.stop(now)
    while not machine.ended:
        actions += machine.tick(machine.deadline) if machine.deadline is not None else machine.drained(now, text=False)
    assert actions[-1] is END
    assert actions.count(END) == 1
    assert actions.count(CLOSE) + actions.count(DISCARD) == 1


def test_a_tap_toggles_and_a_hold_dictates_while_down() -> None:
    key = Hotkey()
    assert key.press(0.0, active=False) is Command.START
    assert key.release(0.1) is None
    assert key.press(5.0, active=True) is Command.STOP
    assert key.release(5.1) is None
    assert key.press(9.0, active=False) is Command.START
    assert key.release(9.0 + HOLD_SECONDS) is Command.STOP


@pytest.mark.parametrize("delay", [0.25, 0.5, 0.66])
def test_key_repeat_is_swallowed_and_its_end_is_a_release(delay: float) -> None:
    key = Hotkey()
    assert key.press(0.0, active=False) is Command.START
    times = [delay + 0.03 * i for i in range(40)]
    assert [key.press(time, active=True) for time in times] == [None] * 40
    assert key.deadline == pytest.approx(times[-1] + QUIET_SECONDS)
    assert key.tick(times[-1] + 0.1) is None
    assert key.tick(times[-1] + QUIET_SECONDS) is Command.STOP


def test_two_taps_where_releases_are_never_reported() -> None:
    key = Hotkey()
    assert key.press(0.0, active=False) is Command.START
    assert key.deadline is None
    assert key.press(3.0, active=True) is Command.STOP


@given(st.lists(st.tuples(st.sampled_from(["press", "release", "tick"]), st.floats(0, 2)), max_size=30))
def test_start_and_stop_alternate(edges: list[tuple[str, float]]) -> None:
    key, now, active = Hotkey(), 0.0, False
    for edge, passed in edges:
        now += passed
        command = key.press(now, active=active) if edge == "press" else getattr(key, edge)(now)
        assert command is not Command.START or not active
        assert command is not Command.STOP or active
        active = command is Command.START or (active and command is not Command.STOP)
