"""The bus interface as other programs meet it: calls printed in the documentation, signals, properties, errors."""

import ast
import json
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from desktop import NAME, PATH, Desktop, wait_for
from recordings import SPEECH
from xdna_dictate.service.bus import describe, snake_case
from xdna_dictate.service.service import Service, _Inserter, _Microphones, _Models, interface_xml

CLIP = SPEECH / "en-sb-spk1-snt3.flac"
WORDS = "at that high level"
ERROR = "io.github.xdna_dictate.Error"


def idle(live: Desktop) -> bool:
    return live.get("State") == "idle"


def dbus_send(live: Desktop, *arguments: str, check: bool = True) -> str:
    command = ("dbus-send", "--session", "--print-reply=literal", "--reply-timeout=60000", f"--dest={NAME}", PATH)
    done = live.run(*command, *arguments, check=check)
    return (done.stdout + done.stderr).strip()


def members(xml: str) -> dict[str, list[bytes]]:
    interfaces = {element.attrib["name"]: element for element in ElementTree.fromstring(xml).iter("interface")}
    return {name: sorted(ElementTree.tostring(child).strip() for child in element) for name, element in interfaces.items()}


def test_what_is_introspected_equals_the_xml(live: Desktop) -> None:
    answer = live.call("Introspect", interface="org.freedesktop.DBus.Introspectable")
    served, ours = members(ast.literal_eval(answer)[0]), members(interface_xml())
    shape = lambda text: re.sub(rb"\s+", b" ", text)  # noqa: E731
    for interface, children in ours.items():
        assert list(map(shape, served[interface])) == list(map(shape, children))
    assert set(served) - set(ours) == {f"org.freedesktop.DBus.{name}" for name in ("Introspectable", "Peer", "Properties")}
    tree = live.run("busctl", "--user", f"--address={live.env['DBUS_SESSION_BUS_ADDRESS']}", "tree", NAME).stdout
    assert PATH in tree


def test_every_member_of_the_xml_has_something_behind_it() -> None:
    behind = {NAME: Service, f"{NAME}.Models": _Models, f"{NAME}.Microphones": _Microphones, f"{NAME}.Inserter": _Inserter}
    described = describe(interface_xml())
    assert set(described) == set(behind)
    for interface, members in described.items():
        for member in [*members.methods, *members.properties]:
            assert hasattr(behind[interface], snake_case(member)), member
        for name, entry in members.properties.items():
            assert entry.access == "read" or hasattr(behind[interface], f"set_{snake_case(name)}")


def test_toggle_from_dbus_send_starts_and_stops(live: Desktop) -> None:
    live.run("dbus-send", "--session", f"--dest={NAME}", PATH, f"{NAME}.Toggle")
    wait_for(lambda: live.get("State") == "listening")
    assert live.get("Mode") == "toggle"
    monitor = live.monitor()
    live.speak(CLIP)
    assert dbus_send(live, f"{NAME}.Toggle") in ("finishing", "idle")
    [finished] = monitor.wait("Finished")
    assert "'stopped'" in finished
    assert WORDS in finished.lower()
    [text] = monitor.signals("Text")
    assert all(f"'{key}'" in text for key in ("raw", "language", "confidence", "start", "end", "latency-ms", "model", "backend"))
    assert monitor.signals("SpeechStarted")
    assert monitor.signals("SpeechEnded")
    assert monitor.signals("Partial")
    assert WORDS in live.get("LastText").lower()
    assert idle(live)


def test_dictate_blocks_until_it_has_text(live: Desktop) -> None:
    command = (
        "dbus-send",
        "--session",
        "--print-reply=literal",
        "--reply-timeout=60000",
        f"--dest={NAME}",
        PATH,
        f"{NAME}.Dictate",
    )
    calling = live.spawn(*command, "uint32:15000", stdout=subprocess.PIPE)
    wait_for(lambda: live.get("State") == "listening")
    assert live.get("Mode") == "once"
    live.play(CLIP)
    out, _ = calling.communicate(timeout=20)
    assert WORDS in out.decode().lower()


def test_transcribe_file_from_dbus_send(live: Desktop) -> None:
    assert WORDS in dbus_send(live, f"{NAME}.TranscribeFile", f"string:{CLIP}", "string:text").lower()
    assert "-->" in dbus_send(live, f"{NAME}.TranscribeFile", f"string:{CLIP}", "string:srt")
    assert dbus_send(live, f"{NAME}.TranscribeFile", f"string:{CLIP}", "string:vtt").startswith("WEBVTT")
    assert WORDS in json.loads(dbus_send(live, f"{NAME}.TranscribeFile", f"string:{CLIP}", "string:json"))["text"].lower()


def test_start_with_options_from_gdbus_and_busctl(live: Desktop) -> None:
    session = live.call("StartWithOptions", "{'language': <'en'>, 'max-seconds': <uint32 30>}")
    assert re.fullmatch(r"\('[\dT-]+',\)", session)
    live.call("Cancel")
    wait_for(lambda: idle(live))
    busctl = (
        "busctl",
        "--user",
        f"--address={live.env['DBUS_SESSION_BUS_ADDRESS']}",
        "call",
        NAME,
        PATH,
        NAME,
        "StartWithOptions",
    )
    done = live.run(*busctl, "a{sv}", "2", "language", "s", "en", "max-seconds", "u", "30")
    assert re.fullmatch(r's "[\dT-]+"\n', done.stdout)
    live.call("Cancel")


def test_every_option_is_taken_and_unknown_ones_are_not(live: Desktop) -> None:
    options = (
        "{'mode': <'once'>, 'language': <'en'>, 'languages': <['en']>, 'model': <'whisper-tiny.en'>, 'profile': <''>,"
        " 'microphone': <''>, 'max-seconds': <uint32 5>, 'silence-seconds': <0.5>, 'insert': <false>, 'hotwords': <['Ryzen']>,"
        " 'partials': <false>, 'bind-to-caller': <false>}"
    )
    assert "Error" not in live.call("StartWithOptions", options)
    live.call("Cancel")
    for wrong, words in (
        ("{'langage': <'en'>}", "unknown option 'langage'"),
        ("{'mode': <'twice'>}", "must be one of toggle, hold, once, continuous"),
        ("{'max-seconds': <'x'>}", "must be a number"),
        ("{'language': <uint32 1>}", "must be text"),
        ("{'profile': <'work'>}", "no such profile"),
    ):
        answer = live.call("StartWithOptions", wrong, check=False)
        assert "org.freedesktop.DBus.Error.InvalidArgs" in answer
        assert words in answer
    assert idle(live)


def test_press_and_release_hold_and_tap(live: Desktop) -> None:
    monitor = live.monitor()
    live.call("Press")
    live.speak(CLIP)
    live.call("Press")
    live.call("Release")
    assert WORDS in monitor.wait("Finished")[0].lower()
    live.call("Press")
    live.call("Release")
    assert live.get("State") in ("starting", "listening")
    live.call("Press")
    live.call("Release")
    monitor.wait("Finished", 2)
    assert idle(live)


@pytest.mark.parametrize(
    ("member", "arguments", "error"),
    [
        ("Stop", [], f"{ERROR}.NotActive"),
        ("Cancel", [], f"{ERROR}.NotActive"),
        ("RetryLast", ["{}"], f"{ERROR}.NotActive"),
        ("InsertText", ["hello"], f"{ERROR}.InsertFailed"),
        ("Start", ["sometimes"], "org.freedesktop.DBus.Error.InvalidArgs"),
        ("StartWithOptions", ["{'language': <'de'>}"], f"{ERROR}.UnsupportedLanguage"),
        ("StartWithOptions", ["{'model': <'whisper-small'>}"], f"{ERROR}.ModelMissing"),
        ("TranscribeFile", ["/nonexistent.wav", "text"], "org.freedesktop.DBus.Error.FileNotFound"),
        ("TranscribeFile", ["clip.wav", "text"], "org.freedesktop.DBus.Error.InvalidArgs"),
        ("TranscribeFile", ["/", "text"], f"{ERROR}.UnsupportedFormat"),
        ("TranscribeFile", [str(CLIP), "odt"], f"{ERROR}.UnsupportedFormat"),
        ("TranscribeFile", [str(Path(__file__)), "text"], f"{ERROR}.UnsupportedFormat"),
        ("Nonsense", [], "org.freedesktop.DBus.Error.UnknownMethod"),
    ],
)
def test_errors_have_names_and_a_sentence(live: Desktop, member: str, arguments: list[str], error: str) -> None:
    if member == "Nonsense":
        assert error in dbus_send(live, f"{NAME}.{member}", check=False).replace("Error ", "")
    answer = live.call(member, *arguments, check=False)
    assert error in answer
    assert "Traceback" not in answer
    assert idle(live)


def test_wrong_signatures_and_properties_are_refused_by_name(live: Desktop) -> None:
    assert "org.freedesktop.DBus.Error.InvalidArgs" in dbus_send(live, f"{NAME}.Start", "uint32:1", check=False)
    properties = "org.freedesktop.DBus.Properties"
    for arguments, error in (
        ([f"{properties}.Set", f"string:{NAME}", "string:State", "variant:string:idle"], "PropertyReadOnly"),
        ([f"{properties}.Set", f"string:{NAME}", "string:Language", "variant:uint32:1"], "InvalidArgs"),
        ([f"{properties}.Get", f"string:{NAME}", "string:Colour"], "UnknownProperty"),
        ([f"{properties}.Get", "string:org.example", "string:State"], "UnknownInterface"),
    ):
        assert error in dbus_send(live, *arguments, check=False)


def test_start_twice_is_busy_and_stop_twice_is_not_active(live: Desktop) -> None:
    live.call("Start", "toggle")
    assert f"{ERROR}.Busy" in live.call("Start", "toggle", check=False)
    assert f"{ERROR}.Busy" in live.call("UnloadModel", check=False) or "ModelLoading" in live.call("UnloadModel", check=False)
    wait_for(lambda: live.get("State") == "listening")
    live.call("Stop")
    assert f"{ERROR}.NotActive" in live.call("Stop", check=False)
    wait_for(lambda: idle(live))


def test_properties_can_be_set_and_say_so(live: Desktop) -> None:
    monitor = live.monitor()
    for name, value in (
        ("Language", "en"),
        ("Model", "whisper-base"),
        ("Microphone", "mic.monitor"),
        ("Inserter", "gnome-shell"),
    ):
        before = live.get(name)
        live.call("Set", NAME, name, f"<'{value}'>", interface="org.freedesktop.DBus.Properties")
        assert live.get(name) == value
        live.call("Set", NAME, name, f"<'{before}'>", interface="org.freedesktop.DBus.Properties")
    changes = monitor.wait("PropertiesChanged", 8)
    assert any("'Language': <'en'>" in change for change in changes)
    for name, value, error in (("Model", "nonsense", "ModelMissing"), ("Profile", "work", "InvalidArgs")):
        answer = live.call("Set", NAME, name, f"<'{value}'>", interface="org.freedesktop.DBus.Properties", check=False)
        assert error in answer
    everything = live.call("GetAll", NAME, interface="org.freedesktop.DBus.Properties")
    for name in describe(interface_xml())[NAME].properties:
        assert f"'{name}'" in everything


def test_the_model_loads_and_unloads_on_request(live: Desktop) -> None:
    wait_for(lambda: live.get("ModelState") != "loading")
    live.call("LoadModel")
    wait_for(lambda: live.get("ModelState") == "ready")
    assert live.get("Backend") == "cpu"
    assert "no NPU" in live.get("BackendDetail")
    live.call("UnloadModel")
    wait_for(lambda: live.get("ModelState") == "unloaded")
    assert live.get("Backend") == ""


def test_models_interface(live: Desktop) -> None:
    models = f"{NAME}.Models"
    listed = live.call("List", interface=models)
    assert "'whisper-tiny.en'" in listed
    assert "'installed': <true>" in listed
    assert live.call("Verify", "whisper-tiny.en", interface=models) == "(true,)"
    for member, model in (("Verify", "whisper-medium"), ("Remove", "whisper-medium"), ("Download", "nonsense")):
        assert f"{ERROR}.ModelMissing" in live.call(member, model, interface=models, check=False)


def test_a_download_is_a_job_with_progress_and_an_end(live: Desktop) -> None:
    monitor = live.monitor()
    job = live.call("Download", "whisper-tiny.en", interface=f"{NAME}.Models")
    name = re.findall(r"'(job-\d+)'", job)[0]
    assert f"{ERROR}.Busy" in live.call("Download", "whisper-tiny.en", interface=f"{NAME}.Models", check=False)
    assert f"('{name}', 'done', 'whisper-tiny.en')" in monitor.wait("Finished", seconds=120)
    assert any(name in progress and "'download'" in progress for progress in monitor.signals("Progress"))
    assert live.get("ModelState") in ("unloaded", "ready")


def test_microphones_are_listed_and_changes_are_told(live: Desktop) -> None:
    listed = live.call("List", interface=f"{NAME}.Microphones")
    assert "'name': <'mic.monitor'>" in listed
    assert "'default': <true>" in listed
    monitor = live.monitor()
    module = live.run("pactl", "load-module", "module-null-sink", "sink_name=second").stdout.strip()
    monitor.wait("Changed")
    live.run("pactl", "unload-module", module)
    monitor.wait("Changed", 2)


def test_doctor_answers_in_json(live: Desktop) -> None:
    answer = dbus_send(live, f"{NAME}.Doctor")
    report = json.loads(answer)
    assert report["ok"]
    found = {finding["what"]: finding for finding in report["findings"]}
    assert found["microphone"]["verdict"] in ("ok", "note")
    assert found["model"]["verdict"] == "ok"
