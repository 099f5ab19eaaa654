"""What a person at a terminal meets."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile

from conftest import Run
from recordings import SPEECH, speech

JFK = str(SPEECH / "en-jfk.flac")
SHORT = str(SPEECH / "en-sb-spk1-snt3.flac")
NOISE = str(SPEECH / "nonspeech-keyboard-8s.flac")
COMMAND = [sys.executable, "-m", "xdna_dictate.cli"]


def test_text_goes_to_standard_output_and_nothing_else(cli: Run) -> None:
    done = cli("--file", JFK)
    assert done.returncode == 0
    assert "ask what you can do for your country" in done.stdout
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_verbose_names_the_device_really_used(cli: Run) -> None:
    done = cli("--file", SHORT, "--verbose")
    assert re.search(r"whisper-tiny\.en on cpu \(no NPU: ", done.stderr)
    assert "2.72 s of sound, language en" in done.stderr


@pytest.mark.parametrize("backend", ["npu", "sim"])
def test_a_back_end_asked_for_by_name_is_never_replaced(cli: Run, backend: str) -> None:
    done = cli("--file", SHORT, "--backend", backend)
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1


def test_no_speech_is_no_text_and_no_error(cli: Run) -> None:
    done = cli("--file", NOISE)
    assert (done.returncode, done.stdout) == (0, "")
    assert "no speech" in done.stderr
    assert cli("--file", NOISE, "--quiet").stderr == ""
    assert cli("--file", NOISE, "--model", "whisper-base").returncode == 0
    assert json.loads(cli("--file", NOISE, "--format", "json", "--quiet").stdout)["text"] == ""


def test_json_holds_text_segments_words_and_origin(cli: Run) -> None:
    document = json.loads(cli("--file", JFK, "--format", "json", "--words").stdout)
    assert (document["file"], document["language"], document["backend"], document["model"]) == (
        JFK,
        "en",
        "cpu",
        "whisper-tiny.en",
    )
    words = document["segments"][0]["words"]
    assert " ".join(word["word"] for word in words) == document["text"]
    assert all(earlier["start"] <= later["start"] for earlier, later in pairwise(words))
    assert all(0 <= word["start"] <= word["end"] <= 11.1 and 0 < word["probability"] <= 1 for word in words)
    country = next(word for word in words if word["word"].startswith("country"))
    assert country["start"] == pytest.approx(6.6, abs=1.0) or country["start"] == pytest.approx(10.1, abs=1.0)


@pytest.mark.parametrize(
    ("form", "arrow"),
    [("srt", "00:00:\\d\\d,\\d{3} --> 00:00:\\d\\d,\\d{3}"), ("vtt", "00:00:\\d\\d\\.\\d{3} --> 00:00:\\d\\d\\.\\d{3}")],
)
def test_subtitles(cli: Run, form: str, arrow: str) -> None:
    out = cli("--file", JFK, "--format", form).stdout
    assert re.search(arrow, out)
    assert out.startswith("WEBVTT\n\n1\n" if form == "vtt" else "1\n")
    assert len(re.findall(arrow, cli("--file", JFK, "--format", form, "--words").stdout)) == 22


def test_timestamps_mark_sentences_in_text(cli: Run) -> None:
    assert re.match(r"\[00:00:00\.\d{3} --> 00:00:0\d\.\d{3}\] At that high level", cli("--file", SHORT, "--timestamps").stdout)


def test_several_files_are_headed_and_a_bad_one_does_not_stop_the_others(cli: Run) -> None:
    done = cli("--file", SHORT, "/nonexistent.wav", JFK)
    assert done.returncode == 2
    assert done.stdout.count("==> ") == 2
    assert "/nonexistent.wav: no such file" in done.stderr


def test_output_is_a_file_for_one_and_a_folder_for_several(cli: Run, tmp_path: Path) -> None:
    assert cli("--file", SHORT, "--output", str(tmp_path / "one.txt")).stdout == ""
    assert "high level" in (tmp_path / "one.txt").read_text("utf-8")
    assert (tmp_path / "one.txt").stat().st_mode & 0o077 == 0
    done = cli("--file", SHORT, JFK, "--format", "srt", "--output", str(tmp_path))
    assert done.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["en-jfk.srt", "en-sb-spk1-snt3.srt", "one.txt"]
    assert cli("--file", SHORT, JFK, "--output", str(tmp_path / "one.txt")).returncode == 2
    assert cli("--file", SHORT, "--output", str(tmp_path / "no" / "such.txt")).returncode == 2


def test_output_never_replaces_the_recording_a_device_or_a_good_transcript(cli: Run, tmp_path: Path) -> None:
    recording, kept = tmp_path / "talk.flac", tmp_path / "kept.txt"
    recording.write_bytes(Path(SHORT).read_bytes())
    done = cli("--file", str(recording), "--output", str(recording))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert recording.read_bytes() == Path(SHORT).read_bytes()
    assert "high level" in cli("--file", SHORT, "--output", "/dev/stdout").stdout
    assert cli("--file", SHORT, "--output", "/dev/null").returncode == 0
    assert Path("/dev/null").is_char_device()
    kept.write_text("good")
    (tmp_path / "link.txt").symlink_to(kept)
    assert cli("--file", "/nonexistent.wav", "--output", str(kept)).returncode == 2
    assert kept.read_text() == "good"
    assert cli("--file", SHORT, "--output", str(tmp_path / "link.txt")).returncode == 0
    assert "high level" in kept.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.txt", "link.txt", "talk.flac"]


def test_a_recording_that_breaks_off_keeps_its_text(cli: Run, tmp_path: Path) -> None:
    samples = np.tile(np.concatenate([speech("en-sb-spk1-snt3.flac"), np.zeros(48_000, np.float32)]), 6)
    soundfile.write(tmp_path / "x.flac", samples, 16_000)
    content = bytearray((tmp_path / "x.flac").read_bytes())
    content[len(content) * 3 // 4 :] = b"\xff" * (len(content) - len(content) * 3 // 4)
    (tmp_path / "x.flac").write_bytes(content)
    cli("--file", str(tmp_path / "x.flac"), "--output", str(tmp_path / "out.txt"))
    assert (tmp_path / "out.txt").read_text("utf-8").count("high level") >= 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_clear_line(cli: Run) -> None:
    done = cli("--file", SHORT, "--output", "/dev/full")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "no space left" in done.stderr


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input_of_any_header(cli: Run, name: str, tmp_path: Path) -> None:
    wav = tmp_path / "x.wav"
    soundfile.write(wav, speech("en-sb-spk1-snt3.flac"), 16_000, subtype="PCM_16")
    content = wav.read_bytes()
    streamed = content[:4] + b"\xff\xff\xff\xff" + content[8:40] + b"\xff\xff\xff\xff" + content[44:]
    for data in (content, streamed):
        done = cli("--file", name, stdin=data)
        assert "high level" in done.stdout, done.stderr
    assert cli("--file", name, stdin=b"").returncode == 2


def test_utf8_in_any_locale_and_through_a_pipe(cli: Run) -> None:
    done = cli(
        "--file",
        str(SPEECH / "ru-fleurs-x04.flac"),
        "--model",
        "whisper-base",
        "--language",
        "ru",
        env={"LC_ALL": "C", "PYTHONUTF8": "0"},
    )
    assert done.returncode == 0, done.stderr
    assert "тысячи лет назад" in done.stdout.lower()


def test_language_is_heard_when_not_given(cli: Run) -> None:
    for clip, code in (("ru-fleurs-x04.flac", "ru"), ("de-fleurs-c05.flac", "de"), ("en-jfk.flac", "en")):
        assert (
            json.loads(cli("--file", str(SPEECH / clip), "--model", "whisper-base", "--format", "json").stdout)["language"]
            == code
        )


def test_a_closed_pipe_ends_quietly() -> None:
    done = subprocess.run(
        ["bash", "-c", f'set -o pipefail; "{sys.executable}" -m xdna_dictate.cli --file "{JFK}" "{SHORT}" | head -c 0'],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("to_file", [False, True], ids=["stdout", "output"])
def test_an_interrupt_leaves_what_was_finished_and_exits_130(tmp_path: Path, to_file: bool) -> None:
    clip, gap = speech("en-sb-spk1-snt3.flac"), np.zeros(48_000, np.float32)
    soundfile.write(tmp_path / "long.wav", np.tile(np.concatenate([clip, gap]), 300), 16_000)
    target = tmp_path / "out.txt"
    command = [*COMMAND, "--file", str(tmp_path / "long.wav"), *(["--output", str(target)] if to_file else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if to_file:
            while not any(path.stat().st_size for path in tmp_path.glob(".out.txt.*")):
                assert process.poll() is None
            first = ""
        else:
            first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=20)
    text = target.read_text("utf-8") if to_file else first + rest
    assert process.returncode == 130
    assert text.startswith("At that high level")
    assert text.count("\n") < 300
    assert errors == ""


def test_a_terminal_sees_progress() -> None:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 80))
    with subprocess.Popen([*COMMAND, "--file", JFK], stdout=subprocess.DEVNULL, stderr=slave) as process:
        os.close(slave)
        seen = b""
        while True:
            try:
                chunk = os.read(master, 4096)
            except OSError:
                break
            if not chunk:
                break
            seen += chunk
        process.wait(timeout=60)
    os.close(master)
    assert b"en-jfk.flac" in seen
    assert b"%|" in seen


@pytest.mark.parametrize("bus", [None, "", "unix:path=/nonexistent"])
def test_files_need_no_session_bus(cli: Run, bus: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    assert cli("--file", SHORT, env={} if bus is None else {"DBUS_SESSION_BUS_ADDRESS": bus}).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "nothing to do"),
        (["--file", SHORT, "--format", "docx"], 2, "invalid choice"),
        (["--file", SHORT, "--threads", "0"], 2, "between 1 and 256"),
        (["--nonsense"], 2, "--nonsense"),
        (["--file", SHORT, "--language", "xx"], 2, "does not know the language"),
        (["--file", SHORT, "--model", "nonsense"], 3, "models download nonsense"),
        (["--file", str(SPEECH)], 2, "is a folder"),
        (["models", "download", "nonsense"], 3, "known: whisper-tiny.en"),
    ],
)
def test_mistakes_get_one_clear_line(cli: Run, arguments: list[str], code: int, words: str) -> None:
    done = cli(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.flac"
    Path(os.fsdecode(path)).write_bytes(Path(SHORT).read_bytes())
    good = subprocess.run([*map(os.fsencode, COMMAND), b"--file", path], capture_output=True, timeout=60, check=False)
    assert b"high level" in good.stdout
    bad = subprocess.run([*map(os.fsencode, COMMAND), b"--file", path + b"x"], capture_output=True, timeout=60, check=False)
    assert bad.returncode == 2
    assert len(bad.stderr.splitlines()) == 1


def test_help_man_page_and_completions_name_every_option(cli: Run) -> None:
    text = cli("--help").stdout
    options = set(re.findall(r"(?<![\w-])--[a-z]+", text)) - {"--help"}
    packaging = Path(__file__).parents[2] / "packaging"
    pages = [packaging / "man" / "xdna-dictate.1", *(packaging / "completions").iterdir()]
    assert len(pages) == 4
    for page in pages:
        content = page.read_text("utf-8").replace("\\-", "-")
        missing = {option for option in options if option not in content and f"-l {option[2:]}" not in content}
        assert not missing, page


def test_bash_completes_options_and_models_actions() -> None:
    script = Path(__file__).parents[2] / "packaging" / "completions" / "xdna-dictate.bash"
    code = f'source "{script}"; COMP_WORDS=(xdna-dictate --form); COMP_CWORD=1; _shtab_xdna_dictate; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout.split() == ["--format"]
