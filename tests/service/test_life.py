"""The daemon's life: activation, a second instance, a missing or dying bus, signals, crashes, recovery."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from desktop import NAME, PATH, Daemon, Desktop, wait_for
from recordings import SPEECH
from xdna_dictate.service.bus import Bus, CallError, variant

CLIP = SPEECH / "en-sb-spk1-snt3.flac"
WORDS = "at that high level"


@pytest.fixture
def ready(fresh: Desktop) -> Desktop:
    """A desktop with bus and sound, without daemon."""
    fresh.start_bus()
    fresh.start_sound()
    return fresh


def activatable(desktop: Desktop) -> None:
    """Let the bus start the daemon."""
    text = (
        f"[D-BUS Service]\nName={NAME}\nExec={sys.executable} -m xdna_dictate.cli daemon\nSystemdService=xdna-dictate.service\n"
    )
    (desktop.folder / "services" / f"{NAME}.service").write_text(text)


def owner(desktop: Desktop) -> int:
    """Process id of the service, 0 if nothing has the name."""
    command = ("dbus-send", "--session", "--print-reply=literal", "--dest=org.freedesktop.DBus", "/", "org.freedesktop.DBus")
    done = desktop.run(*command[:-1], f"{command[-1]}.GetConnectionUnixProcessID", f"string:{NAME}", check=False)
    return int(done.stdout.split()[-1]) if done.returncode == 0 else 0


@pytest.mark.parametrize("starts", [5, pytest.param(50, marks=pytest.mark.long)])
def test_the_first_call_starts_the_daemon(ready: Desktop, starts: int) -> None:
    activatable(ready)
    for _ in range(starts):
        began = time.monotonic()
        assert ready.call("Toggle") == "('starting',)"
        answered = time.monotonic() - began
        process = owner(ready)
        assert process
        assert answered < 3.0, "the design asks for 1 s; the rest is what a busy machine adds"
        ready.call("Cancel")
        os.kill(process, signal.SIGTERM)
        wait_for(lambda: not owner(ready))


def test_a_call_that_does_not_wait_for_its_answer_starts_it_too(ready: Desktop) -> None:
    """The bus forgets the call itself, since its sender has left; the next one works."""
    activatable(ready)
    toggle = ("dbus-send", "--session", f"--dest={NAME}", PATH, f"{NAME}.Toggle")
    ready.run(*toggle)
    wait_for(lambda: owner(ready))
    ready.run(*toggle)
    wait_for(lambda: ready.get("State") == "listening")
    os.kill(owner(ready), signal.SIGTERM)
    wait_for(lambda: not owner(ready))


def test_a_second_instance_ends_at_once_with_a_clear_line(ready: Desktop) -> None:
    ready.start_daemon()
    second = ready.cli("daemon")
    assert second.returncode == 3
    assert second.stderr.splitlines()[-1].startswith("xdna-dictate: another instance is running")
    assert "Traceback" not in second.stderr
    assert ready.get("State") == "idle"


@pytest.mark.parametrize("address", [None, "", "unix:path=/nonexistent/bus"])
def test_without_a_session_bus(fresh: Desktop, address: str | None) -> None:
    fresh.env.pop("DBUS_SESSION_BUS_ADDRESS")
    if address is not None:
        fresh.env["DBUS_SESSION_BUS_ADDRESS"] = address
    for command in ("daemon", "toggle", "status"):
        done = fresh.cli(command)
        assert done.returncode == 3
        assert done.stdout == ""
        [line] = done.stderr.splitlines()
        assert line.startswith("xdna-dictate: no session bus was found")
        assert "dbus-run-session" in line
    assert WORDS in fresh.cli("--file", str(CLIP)).stdout.lower()


def test_the_end_of_the_bus_is_the_end_of_the_daemon(fresh: Desktop) -> None:
    bus = fresh.start_bus()
    daemon = fresh.start_daemon()
    bus.kill()
    assert daemon.process.wait(6) == 0


@pytest.mark.parametrize("state", ["idle", "listening", "finishing", "transcribing", "suspended"])
def test_sigterm_ends_it_within_five_seconds(ready: Desktop, state: str) -> None:
    daemon = ready.start_daemon()
    if state in ("listening", "finishing"):
        ready.call("Start", "toggle")
        ready.speak(CLIP)
        wait_for(daemon.worker)
    if state == "finishing":
        os.kill(daemon.worker(), signal.SIGSTOP)
        ready.call("Stop")
    if state == "transcribing":
        ready.run("sox", str(SPEECH / "en-jfk.flac"), str(ready.folder / "long.wav"), "repeat", "40")
        ready.spawn(*_transcribe(ready.folder / "long.wav"), stdout=subprocess.DEVNULL)
        wait_for(lambda: ready.get("ModelState") == "ready")
    if state == "suspended":
        _suspend(ready)
    began = time.monotonic()
    assert daemon.end() == 0
    assert time.monotonic() - began < 5.0
    assert not _alive(daemon)


def _transcribe(path: Path) -> tuple[str, ...]:
    command = ("gdbus", "call", "--session", "--timeout", "600", "--dest", NAME, "--object-path", PATH, "--method")
    return (*command, f"{NAME}.TranscribeFile", str(path), "text")


def _announce_sleep(desktop: Desktop, *, about_to: bool) -> None:
    """What logind says before and after sleep; the private bus is session and system bus in one."""

    async def announce() -> None:
        bus = await Bus.connect()
        await bus.take_name("org.freedesktop.login1")
        bus.emit("/org/freedesktop/login1", "org.freedesktop.login1.Manager", "PrepareForSleep", "b", [about_to])
        await bus.call("org.freedesktop.DBus", "/", "org.freedesktop.DBus", "GetId")
        bus.close()

    os.environ["DBUS_SESSION_BUS_ADDRESS"] = desktop.env["DBUS_SESSION_BUS_ADDRESS"]
    asyncio.run(announce())


def _suspend(desktop: Desktop) -> None:
    """Announce sleep until the daemon, which listens to logind a moment after it took its name, has heard it."""

    def heard() -> bool:
        _announce_sleep(desktop, about_to=True)
        return desktop.get("State") == "suspended"

    wait_for(heard)


def _alive(daemon: Daemon) -> bool:
    """Whether anything of the daemon's desktop still runs our program."""
    wanted = f"XDG_RUNTIME_DIR={daemon.desktop.env['XDG_RUNTIME_DIR']}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in path.read_bytes() and b"xdna_dictate" in path.with_name("cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


def test_sleep_and_waking(ready: Desktop) -> None:
    ready.start_daemon()
    _suspend(ready)
    assert "Error.Suspended" in ready.call("Toggle", check=False)
    _announce_sleep(ready, about_to=False)
    wait_for(lambda: ready.get("State") == "idle")


@pytest.mark.parametrize("fate", ["crash", "hang"])
def test_a_recogniser_lost_at_work_is_replaced_and_the_text_comes(ready: Desktop, fate: str) -> None:
    daemon = ready.start_daemon("--recognition-limit", "2", "--no-partials")
    monitor = ready.monitor()
    ready.call("LoadModel")
    wait_for(lambda: ready.get("ModelState") == "ready")
    ready.call("Start", "toggle")
    wait_for(lambda: ready.get("State") == "listening")
    worker = daemon.worker()
    os.kill(worker, signal.SIGSTOP)
    ready.speak(CLIP)
    ready.call("Stop")
    if fate == "crash":
        time.sleep(0.7)
        os.kill(worker, signal.SIGKILL)
    [finished] = monitor.wait("Finished")
    assert WORDS in finished.lower()
    assert ready.get("State") == "idle"
    assert daemon.worker() != worker
    assert "trying again" in daemon.log.read_text("utf-8")


@pytest.mark.long
def test_a_recogniser_that_is_always_lost_keeps_the_sound(ready: Desktop) -> None:
    daemon = ready.start_daemon("--recognition-limit", "1", "--no-partials")
    monitor = ready.monitor()
    ready.call("LoadModel")
    wait_for(lambda: ready.get("ModelState") == "ready")
    ready.call("Start", "toggle")
    ready.speak(CLIP)
    stopped = set()
    for _ in range(2):
        worker = wait_for(lambda: daemon.worker() not in stopped and daemon.worker())
        wait_for(lambda: ready.get("ModelState") == "ready")
        os.kill(worker, signal.SIGSTOP)
        stopped.add(worker)
        if len(stopped) == 1:
            ready.call("Stop")
    assert "'error'" in monitor.wait("Finished")[0]
    assert "recover" in monitor.signals("Failed")[0]
    done = ready.cli("recover")
    assert (done.returncode, WORDS in done.stdout.lower()) == (0, True)
    assert "nothing is kept" in ready.cli("recover").stderr


def test_a_killed_daemon_offers_the_dictation_again(ready: Desktop) -> None:
    activatable(ready)
    daemon = ready.start_daemon()
    ready.call("Start", "toggle")
    ready.speak(CLIP)
    ready.call("Stop")
    daemon.end(signal.SIGKILL)
    files = list((ready.folder / "run/xdna-dictate").glob("*.wav"))
    assert len(files) == 1
    assert files[0].stat().st_mode & 0o077 == 0
    done = ready.cli("recover")
    assert WORDS in done.stdout.lower()
    assert not list((ready.folder / "run/xdna-dictate").glob("*.wav"))
    assert "nothing is kept" in ready.cli("recover").stderr
    os.kill(owner(ready), signal.SIGTERM)
    wait_for(lambda: not owner(ready))


def test_the_service_manager_is_told(ready: Desktop) -> None:
    path = str(ready.folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        listener.settimeout(10)
        ready.env |= {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "400000"}
        daemon = ready.start_daemon()
        heard = listener.recv(1024).decode()
        assert heard.splitlines() == ["READY=1", "STATUS=idle"]
        assert listener.recv(1024) == b"WATCHDOG=1"
        assert listener.recv(1024) == b"WATCHDOG=1"
        daemon.process.terminate()
        while (message := listener.recv(1024)) != b"STOPPING=1":
            assert message == b"WATCHDOG=1"
        assert daemon.process.wait(6) == 0


def test_settings_are_read_again_when_the_file_changes_and_on_sighup(ready: Desktop) -> None:
    daemon = ready.start_daemon()
    file = ready.folder / "config/xdna-dictate/config.toml"
    file.parent.mkdir()
    file.write_text('language = "en"\nmode = "once"\n')
    wait_for(lambda: ready.get("Language") == "en")
    assert ready.get("Mode") == "once"
    file.write_text("langage = 1\n")
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "config.toml:1: unknown setting 'langage'; did you mean language?" in daemon.log.read_text("utf-8"))
    assert ready.get("Language") == "en"
    daemon.end()
    done = ready.cli("daemon")
    assert done.returncode == 2
    assert "config.toml:1:" in done.stderr.splitlines()[-1]


async def _with_bus(desktop: Desktop, scenario: Any) -> None:
    os.environ["DBUS_SESSION_BUS_ADDRESS"] = desktop.env["DBUS_SESSION_BUS_ADDRESS"]
    bus = await Bus.connect()
    try:
        async with asyncio.timeout(60):
            await scenario(bus)
    finally:
        bus.close()


async def _signals(bus: Bus, *members: str) -> "asyncio.Queue[tuple[str, list[Any]]]":
    queue: asyncio.Queue[tuple[str, list[Any]]] = asyncio.Queue()
    for member in members:
        rule = f"sender='{NAME}',interface='{NAME}'"
        await bus.watch(rule, member, lambda _, body, member=member: queue.put_nowait((member, body)))  # type: ignore[misc]
    return queue


def test_an_open_file_is_a_job(ready: Desktop) -> None:
    ready.start_daemon()

    async def scenario(bus: Bus) -> None:
        queue = await _signals(bus, "Finished", "Failed", "Progress")
        for form, words in (("text", "] high"), ("srt", "-->")):
            with CLIP.open("rb") as file:
                [job] = await bus.call(NAME, PATH, NAME, "TranscribeFd", "hsa{sv}", 0, form, {"words": variant(True)},
                                       descriptors=(file.fileno(),))  # fmt: skip
            seen = [await queue.get()]
            while seen[-1][0] != "Finished":
                seen.append(await queue.get())
            assert seen[-1][1][:2] == [job, "done"]
            assert words in seen[-1][1][2].lower()
            assert any(member == "Progress" and body[0] == job for member, body in seen)
        with Path(__file__).open("rb") as file:  # noqa: ASYNC230
            [job] = await bus.call(NAME, PATH, NAME, "TranscribeFd", "hsa{sv}", 0, "text", {}, descriptors=(file.fileno(),))
        assert (await queue.get())[1][:2] == [job, "UnsupportedFormat"]
        assert (await queue.get())[1] == [job, "error", ""]

    asyncio.run(_with_bus(ready, scenario))


@pytest.mark.parametrize("publish", ["owner", "off"])
def test_text_goes_only_to_whom_it_may(ready: Desktop, publish: str) -> None:
    ready.start_daemon("--publish", publish)
    monitor = ready.monitor()

    async def scenario(bus: Bus) -> None:
        queue = await _signals(bus, "Text", "Finished", "Partial")
        await bus.call(NAME, PATH, NAME, "Start", "s", "toggle")
        await asyncio.to_thread(ready.speak, CLIP)
        await bus.call(NAME, PATH, NAME, "Stop")
        seen = [await queue.get()]
        while seen[-1][0] != "Finished":
            seen.append(await queue.get())
        texts = [body[2] for member, body in seen if member == "Text"]
        assert (WORDS in " ".join(texts).lower()) == (publish == "owner")
        assert (WORDS in seen[-1][1][2].lower()) == (publish == "owner")

    asyncio.run(_with_bus(ready, scenario))
    assert WORDS not in monitor.path.read_text("utf-8").lower()
    assert ready.get("LastText") == ""


def test_a_bound_dictation_ends_with_its_caller_and_level_signals_too(ready: Desktop) -> None:
    ready.start_daemon()
    monitor = ready.monitor()

    async def scenario(bus: Bus) -> None:
        queue = await _signals(bus, "Level")
        await bus.call(NAME, PATH, NAME, "StartWithOptions", "a{sv}", {"bind-to-caller": variant(True)})
        await bus.call(NAME, PATH, NAME, "WatchLevel", "b", True)
        for _ in range(3):
            _, (rms, peak) = await queue.get()
            assert -100 <= rms <= peak <= 0

    asyncio.run(_with_bus(ready, scenario))
    assert "'cancelled'" in monitor.wait("Finished")[0]
    assert not monitor.signals("Level")


def test_an_inserter_gets_text_and_says_whether_it_arrived(ready: Desktop) -> None:
    ready.start_daemon()
    interface = f"{NAME}.Inserter"

    async def scenario(bus: Bus) -> None:
        asked: asyncio.Queue[list[Any]] = asyncio.Queue()
        await bus.watch(f"sender='{NAME}',interface='{interface}'", "Insert", lambda _, body: asked.put_nowait(body))
        await bus.call(NAME, PATH, interface, "Register", "sas", "test", ["commit", "preedit"])
        for ok, reason, error in ((True, "", ""), (False, "secure-field", "SecureField"), (False, "no focus", "InsertFailed")):
            inserting = asyncio.ensure_future(bus.call(NAME, PATH, NAME, "InsertText", "s", "hello"))
            number, text, _ = await asked.get()
            assert text == "hello"
            await bus.call(NAME, PATH, interface, "Done", "ubs", number, ok, reason)
            if ok:
                assert await inserting == ["test"]
            else:
                with pytest.raises(CallError) as caught:
                    await inserting
                assert caught.value.name == error
        await bus.call(NAME, PATH, NAME, "Start", "s", "toggle")
        await asyncio.to_thread(ready.speak, CLIP)
        await bus.call(NAME, PATH, NAME, "Stop")
        previews = []
        while (entry := await asked.get())[0] == 0:
            previews.append(entry[2])
        assert WORDS in entry[1].lower()
        assert any(previews)
        await bus.call(NAME, PATH, interface, "Done", "ubs", entry[0], True, "")

    asyncio.run(_with_bus(ready, scenario))
    assert "InsertFailed" in ready.call("InsertText", "hello", check=False)


def test_a_burst_of_signals_loses_neither_signals_nor_the_connection(fresh: Desktop) -> None:
    fresh.start_bus()

    async def scenario(bus: Bus) -> None:
        received: list[int] = []
        done = asyncio.Event()

        def count(_sender: str, body: list[Any]) -> None:
            received.append(body[0])
            if len(received) == 15_000:
                done.set()

        await bus.watch("interface='org.example.Burst'", "Tick", count)
        sender = await Bus.connect()
        for burst in range(3):
            for number in range(5_000):
                sender.emit("/", "org.example.Burst", "Tick", "us", [burst * 5_000 + number, "x" * 100])
            await asyncio.sleep(0.1)
        await done.wait()
        assert received == list(range(15_000))
        assert await sender.call("org.freedesktop.DBus", "/", "org.freedesktop.DBus", "GetId")
        sender.close()

    asyncio.run(_with_bus(fresh, scenario))


def test_status_answers_while_a_long_file_is_transcribed(ready: Desktop) -> None:
    ready.start_daemon()
    ready.run("sox", str(SPEECH / "en-jfk.flac"), str(ready.folder / "long.wav"), "repeat", "20")
    job = ready.spawn(*_transcribe(ready.folder / "long.wav"), stdout=subprocess.PIPE)

    async def scenario(bus: Bus) -> None:
        waits = []
        while job.poll() is None:
            began = time.monotonic()
            await bus.call(
                NAME, "/io/github/xdna_dictate/Dictate1", "org.freedesktop.DBus.Properties", "Get", "ss", NAME, "State"
            )
            waits.append(time.monotonic() - began)
            await asyncio.sleep(0.02)
        assert len(waits) > 20
        assert sorted(waits)[len(waits) // 2] < 0.05

    asyncio.run(_with_bus(ready, scenario))
    assert job.communicate()[0].decode().lower().count("ask not what") > 18


def test_a_dictation_goes_before_a_long_file(ready: Desktop) -> None:
    ready.start_daemon()
    ready.run("sox", str(SPEECH / "en-jfk.flac"), str(ready.folder / "long.wav"), "repeat", "150")
    job = ready.spawn(*_transcribe(ready.folder / "long.wav"), stdout=subprocess.DEVNULL)
    monitor = ready.monitor()
    ready.call("Start", "toggle")
    ready.speak(CLIP)
    ready.call("Stop")
    assert WORDS in monitor.wait("Finished")[0].lower()
    assert job.poll() is None


def test_microphones_with_names_that_are_not_utf_8(ready: Desktop) -> None:
    daemon = ready.start_daemon()
    subprocess.run(
        [b"pactl", b"load-module", b"module-null-sink", b"sink_name=odd", b"sink_properties=device.description=\xff\xfe"],
        env=ready.env, check=False, capture_output=True,
    )  # fmt: skip
    assert "mic.monitor" in ready.call("List", interface=f"{NAME}.Microphones")
    assert ready.get("State") == "idle"
    assert daemon.process.poll() is None


def test_the_sound_server_may_come_late_go_and_come_back(fresh: Desktop) -> None:
    fresh.start_bus()
    fresh.start_daemon()
    monitor = fresh.monitor()
    fresh.call("Start", "toggle")
    assert "'error'" in monitor.wait("Finished")[0]
    assert "NoMicrophone" in monitor.signals("Failed")[0]
    sound = fresh.start_sound()
    for count in (2, 3):
        fresh.call("Start", "toggle")
        fresh.speak(CLIP)
        fresh.call("Stop")
        assert WORDS in monitor.wait("Finished", count)[-1].lower()
        if count == 2:
            sound.terminate()
            sound.wait()
            (fresh.folder / "pulse").unlink(missing_ok=True)
            fresh.start_sound()


def test_unplugging_the_last_microphone_keeps_what_was_heard(ready: Desktop) -> None:
    ready.start_daemon()
    monitor = ready.monitor()
    modules = ready.run("pactl", "list", "short", "modules").stdout
    module = re.findall(r"^(\d+)\tmodule-null-sink", modules, re.MULTILINE)[0]
    ready.call("Start", "toggle")
    ready.speak(CLIP)
    ready.run("pactl", "unload-module", module)
    [finished] = monitor.wait("Finished", seconds=20)
    assert "'error'" in finished
    assert WORDS in finished.lower()
    assert "NoMicrophone" in monitor.signals("Failed")[0]
    ready.run("pactl", "load-module", "module-null-sink", "sink_name=mic", "rate=48000", "channels=2", "norewinds=1")
    ready.run("pactl", "set-default-source", "mic.monitor")
    ready.call("Start", "toggle")
    ready.speak(CLIP)
    ready.call("Stop")
    assert WORDS in monitor.wait("Finished", 2)[-1].lower()


@pytest.mark.long
def test_a_warm_microphone_is_open_from_the_start_and_closes_when_it_is_not_wanted(ready: Desktop) -> None:
    def recording() -> bool:
        return bool(ready.run("pactl", "list", "short", "source-outputs").stdout)

    ready.start_daemon()
    assert not recording()
    file = ready.folder / "config/xdna-dictate/config.toml"
    file.parent.mkdir()
    file.write_text("warm_microphone = true\n")
    wait_for(recording)
    monitor = ready.monitor()
    ready.call("Start", "toggle")
    ready.speak(CLIP)
    ready.call("Stop")
    assert WORDS in monitor.wait("Finished")[0].lower()
    assert recording()
    file.write_text("warm_microphone = false\n")
    wait_for(lambda: not recording())


def test_a_microphone_chosen_by_name_is_the_one_that_is_heard(ready: Desktop) -> None:
    ready.run("pactl", "load-module", "module-null-sink", "sink_name=headset", "rate=44100", "channels=2", "norewinds=1")
    ready.run("pactl", "set-default-source", "mic.monitor")
    ready.start_daemon("--microphone", "headset.monitor")
    monitor = ready.monitor()
    ready.call("Start", "toggle")
    ready.speak(CLIP, sink="headset")
    ready.call("Stop")
    assert WORDS in monitor.wait("Finished")[0].lower()
    ready.call("StartWithOptions", "{'microphone': <'nonexistent'>}")
    assert "NoMicrophone" in monitor.wait("Failed")[0]


def test_a_back_end_that_is_asked_for_and_not_there_is_an_error_not_a_replacement(ready: Desktop) -> None:
    ready.start_daemon("--backend", "npu")
    for member, arguments in (("Toggle", []), ("LoadModel", []), ("TranscribeFile", [str(CLIP), "text"])):
        answer = ready.call(member, *arguments, check=False)
        assert "Error.BackendUnavailable" in answer
        assert "/dev/accel/accel0" in answer
    assert ready.get("State") == "idle"


def test_a_path_that_is_not_utf_8_leaves_the_service_on_the_bus(ready: Desktop) -> None:
    daemon = ready.start_daemon()
    odd = os.fsencode(ready.folder) + b"/caf\xe9.flac"
    Path(os.fsdecode(odd)).write_bytes(CLIP.read_bytes())
    command = [b"dbus-send", b"--session", b"--print-reply", f"--dest={NAME}".encode(), PATH.encode()]
    argument = b"string:" + odd
    done = subprocess.run([*command, f"{NAME}.TranscribeFile".encode(), argument, b"string:text"], env=ready.env, check=False,
                          capture_output=True, timeout=20)  # fmt: skip
    assert done.returncode != 0
    assert daemon.process.poll() is None
    assert ready.get("State") == "idle"
    assert WORDS in ready.cli("--file", os.fsdecode(odd)).stdout.lower()


def _keep_a_recording(desktop: Desktop, copies: int = 1) -> Path:
    """Leave a dictation that was not delivered, as a crash would."""
    folder = desktop.folder / "state/xdna-dictate/kept"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "20260101T000000-1.wav"
    desktop.run("sox", str(SPEECH / "en-jfk.flac"), "-b", "16", str(path), "repeat", str(copies - 1))
    return path


@pytest.mark.long
def test_a_second_try_that_is_cancelled_or_stopped_loses_nothing(ready: Desktop) -> None:
    ready.start_daemon()
    monitor = ready.monitor()
    path = _keep_a_recording(ready, 30)
    for count, member in enumerate(("Cancel", "Stop"), start=1):
        ready.call("RetryLast", "{}")
        monitor.wait("Text", count)
        assert "Error.Busy" in ready.call("RetryLast", "{}", check=False)
        ready.call(member)
        monitor.wait("Finished", count)
        assert path.exists()
    ready.call("RetryLast", "{'undelivered': <true>}")
    assert monitor.wait("Finished", 3)[-1].lower().count("fellow american") == 30
    assert not path.exists()


@pytest.mark.parametrize("flags", [("--keep-audio", "last"), ("--publish", "off"), ("--publish", "owner")], ids=" ".join)
def test_recover_prints_each_text_once_whatever_the_policy(ready: Desktop, flags: tuple[str, str]) -> None:
    ready.start_daemon(*flags)
    _keep_a_recording(ready)
    assert ready.cli("recover").stdout.lower().count("fellow american") == 1
    assert "nothing is kept" in ready.cli("recover").stderr


def test_a_caller_that_can_not_wait_loses_no_sound(ready: Desktop) -> None:
    daemon = ready.start_daemon("--no-partials")
    ready.call("LoadModel")
    wait_for(lambda: ready.get("ModelState") == "ready")
    command = ("gdbus", "call", "--session", "--dest", NAME, "--object-path", PATH, "--method", f"{NAME}.Dictate", "5000")
    calling = ready.spawn(*command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_for(lambda: ready.get("State") == "listening")
    os.kill(daemon.worker(), signal.SIGSTOP)
    ready.play(CLIP)
    assert calling.stderr is not None
    answer = calling.stderr.read().decode()
    calling.stderr.close()
    assert "io.github.xdna_dictate.Error.Timeout" in answer
    os.kill(daemon.worker(), signal.SIGCONT)
    assert WORDS in ready.cli("recover").stdout.lower()


def test_an_open_pipe_is_a_job_and_a_named_one_is_refused(ready: Desktop) -> None:
    ready.start_daemon()
    fifo = ready.folder / "fifo"
    os.mkfifo(fifo)
    assert "Error.UnsupportedFormat" in ready.call("TranscribeFile", str(fifo), "text", check=False)

    async def scenario(bus: Bus) -> None:
        queue = await _signals(bus, "Finished")
        source, target = os.pipe()
        [job] = await bus.call(NAME, PATH, NAME, "TranscribeFd", "hsa{sv}", 0, "text", {}, descriptors=(source,))
        os.close(source)
        with os.fdopen(target, "wb") as pipe:
            await asyncio.to_thread(pipe.write, CLIP.read_bytes())
        _, body = await queue.get()
        assert body[:2] == [job, "done"]
        assert WORDS in body[2].lower()

    asyncio.run(_with_bus(ready, scenario))
