"""Recordings spoken into a real sound server's microphone."""

import re

import pytest
from scoring import word_errors

from desktop import Desktop, wait_for
from recordings import SPEECH, table

ROWS = {row["file"]: row for row in table(SPEECH / "manifest.tsv")}
SILENT = [name for name, row in ROWS.items() if row["score"] == "empty"]
QUICK = {"nonspeech-hum-50hz-5s.flac"}
SPOKEN = ["en-jfk.flac", pytest.param("en-gap-8s.flac", marks=pytest.mark.long), "en-ls-61-70968.flac", "en-g-brooklyn.flac"]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in SILENT])
def test_sounds_without_speech_give_no_text(live: Desktop, name: str) -> None:
    monitor = live.monitor()
    live.call("Start", "toggle")
    live.speak(SPEECH / name)
    live.call("Stop")
    [finished] = monitor.wait("Finished")
    assert "'no-speech', '')" in finished
    assert not monitor.signals("Text")
    assert live.get("State") == "idle"


@pytest.mark.parametrize("name", SPOKEN)
def test_first_and_last_words_are_there_and_nothing_between_is_lost(live: Desktop, name: str) -> None:
    monitor = live.monitor()
    live.call("Start", "toggle")
    live.speak(SPEECH / name)
    live.call("Stop")
    [finished] = monitor.wait("Finished")
    text = finished.rsplit("', ", 1)[-1].strip("')\"")
    reference = ROWS[name]["reference"]
    errors, words = word_errors(reference, text, "en")
    assert errors <= max(2, words // 10), text
    heard = re.findall(r"[\w']+", text.lower())
    for place in (0, -1):
        assert reference.lower().split()[place].strip(".,!?") in heard
    assert live.get("State") == "idle"


def test_silence_ends_a_once_dictation_without_text(live: Desktop) -> None:
    monitor = live.monitor()
    live.call("StartWithOptions", "{'mode': <'once'>, 'max-seconds': <uint32 3>}")
    [finished] = monitor.wait("Finished")
    assert "'no-speech'" in finished
    wait_for(lambda: live.get("State") == "idle")
