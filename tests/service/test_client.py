"""The command line as a client of the daemon."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from desktop import NAME, Desktop, wait_for
from recordings import SPEECH

CLIP = SPEECH / "en-sb-spk1-snt3.flac"
WORDS = "at that high level"
PROGRAM = (sys.executable, "-m", "xdna_dictate.cli")


def test_start_stop_toggle_and_status(live: Desktop) -> None:
    session = live.cli("start", "--language", "en", "--max-seconds", "30").stdout.strip()
    assert re.fullmatch(r"[\dT-]+", session)
    status = json.loads(live.cli("status", "--json").stdout)
    assert (status["Session"], status["Mode"]) == (session, "toggle")
    assert live.cli("stop").stdout.strip() == session
    wait_for(lambda: live.get("State") == "idle")
    assert live.cli("toggle").stdout.strip() == "starting"
    assert "(toggle, " in live.cli("status").stdout
    assert live.cli("cancel").returncode == 0
    for command in ("press", "release", "press", "release"):
        assert live.cli(command).returncode == 0
    wait_for(lambda: live.get("State") == "idle")


def test_mistakes_are_one_line_and_an_exit_code(live: Desktop) -> None:
    for command, code, words in (
        (["stop"], 3, "no dictation is on"),
        (["cancel"], 3, "no dictation is on"),
        (["start", "--language", "de"], 3, "knows only English"),
        (["start", "--mode", "twice"], 2, "invalid choice"),
        (["frobnicate"], 2, "invalid choice"),
    ):
        done = live.cli(*command)
        assert (done.returncode, done.stdout) == (code, "")
        [line] = done.stderr.splitlines()
        assert line.startswith("xdna-dictate: ")
        assert words in line
    assert live.get("State") == "idle"


def test_dictate_prints_one_sentence(live: Desktop) -> None:
    process = live.spawn(*PROGRAM, "dictate", stdout=subprocess.PIPE)
    live.speak(CLIP)
    out, _ = process.communicate(timeout=20)
    assert WORDS in out.decode().lower()
    assert process.returncode == 0


def test_dictate_says_when_nobody_spoke_and_when_time_was_up(live: Desktop) -> None:
    done = live.cli("dictate", "--seconds", "2")
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1


def test_interrupting_dictate_cancels(live: Desktop) -> None:
    process = live.spawn(*PROGRAM, "dictate", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    wait_for(lambda: live.get("State") == "listening")
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    wait_for(lambda: live.get("State") == "idle")


def test_listen_prints_finished_text_and_shows_the_rest_on_a_terminal(live: Desktop) -> None:
    leader, follower = pty.openpty()
    out = live.folder / "listened"
    process = live.spawn(*PROGRAM, "listen", out=out, stderr=follower, env=live.env | {"COLUMNS": "100", "LINES": "24"})
    os.close(follower)
    live.speak(CLIP)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    os.set_blocking(leader, False)
    shown = os.read(leader, 1 << 20).decode()
    os.close(leader)
    assert WORDS in out.read_text("utf-8").lower()
    assert "█" in shown
    assert WORDS[:7] in shown.lower()
    assert shown.endswith("\r\033[K")


def test_recover_with_nothing_kept(live: Desktop) -> None:
    done = live.cli("recover")
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing is kept" in done.stderr


def test_doctor_says_what_works_and_what_to_do(live: Desktop, fresh: Desktop) -> None:
    done = live.cli("doctor")
    assert done.returncode == 0
    assert re.search(r"^ok   +microphone|^note microphone", done.stdout, re.MULTILINE)
    assert re.search(r"NPU driver +there is no /dev/accel/accel0", done.stdout)
    assert "-> " in done.stdout
    assert "the daemon is running" in done.stdout
    broken = fresh.cli("doctor")
    assert broken.returncode == 3
    assert re.search(r"^!! +microphone", broken.stdout, re.MULTILINE)
    assert re.search(r"^!! +session bus", broken.stdout, re.MULTILINE)
    report = json.loads(fresh.cli("doctor", "--json").stdout)
    assert not report["ok"]
    assert all(finding["next_step"] for finding in report["findings"] if finding["verdict"] == "trouble")


def test_config_shows_the_settings_and_a_template(fresh: Desktop) -> None:
    file = fresh.folder / "config/xdna-dictate/config.toml"
    assert "(not there" in fresh.cli("config").stdout
    file.parent.mkdir()
    file.write_text(fresh.cli("config", "--template").stdout)
    assert fresh.cli("config").returncode == 0
    file.write_text('language = "ru"\n')
    assert 'language = "ru"    # changed' in fresh.cli("config").stdout
    file.write_text("threads = 0\n")
    done = fresh.cli("config")
    assert (done.returncode, done.stdout) == (2, "")
    assert "config.toml:1: threads = 0: must be between 1 and 256" in done.stderr


def test_install_lets_the_bus_start_the_daemon(fresh: Desktop) -> None:
    done = fresh.cli("install")
    assert done.returncode == 0, done.stderr
    service = fresh.folder / "data/dbus-1/services" / f"{NAME}.service"
    unit = fresh.folder / "config/systemd/user/xdna-dictate.service"
    program = re.findall(r"^Exec=(\S+) daemon$", service.read_text(), re.MULTILINE)[0]
    assert Path(program).exists()
    assert f"ExecStart={program} daemon" in unit.read_text()
    (fresh.folder / "services" / service.name).write_text(service.read_text())
    fresh.start_bus()
    assert "state       idle" in fresh.cli("status").stdout
    assert fresh.cli("install", "--remove").returncode == 0
    assert not service.exists()
    assert not unit.exists()


def test_the_client_imports_no_numpy() -> None:
    code = "import sys, xdna_dictate.cli, xdna_dictate.client_commands; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_unit_and_the_activation_file_are_sound(fresh: Desktop) -> None:
    root = Path(__file__).parents[2]
    unit = fresh.folder / "xdna-dictate.service"
    unit.write_text((root / "systemd/xdna-dictate.service").read_text().replace("/usr/bin/xdna-dictate", "/bin/true"))
    done = fresh.run("systemd-analyze", "verify", "--user", "--man=no", str(unit), env={"XDG_RUNTIME_DIR": "/tmp"})
    assert (done.stdout, done.stderr) == ("", "")
    activation = (root / f"packaging/dbus/{NAME}.service").read_text()
    assert f"Name={NAME}" in activation
    assert "SystemdService=xdna-dictate.service" in activation
    assert f"BusName={NAME}" in unit.read_text()


def test_the_daemon_works_under_the_units_restrictions(fresh: Desktop) -> None:
    fresh.start_bus()
    fresh.start_sound()
    log = fresh.folder / "daemon.log"
    fresh.spawn(sys.executable, str(Path(__file__).parents[1] / "locked_down.py"), "daemon", err=log)
    wait_for(lambda: "ready on the session bus" in log.read_text("utf-8"))
    assert log.read_text("utf-8").startswith("locked down\n")
    monitor = fresh.monitor()
    fresh.call("Start", "toggle")
    fresh.speak(CLIP)
    fresh.call("Stop")
    assert WORDS in monitor.wait("Finished")[0].lower()
    assert WORDS in fresh.call("TranscribeFile", str(CLIP), "text").lower()
    assert "mic.monitor" in fresh.call("List", interface=f"{NAME}.Microphones")
