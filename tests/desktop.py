"""A private desktop for tests: a message bus, a sound server with a microphone, the daemon. All real, none of it the user's."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAME = "io.github.xdna_dictate.Dictate1"
PATH = "/io/github/xdna_dictate/Dictate1"
DAEMON = (sys.executable, str(Path(__file__).with_name("watched_daemon.py")))

_BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path={folder}/bus</listen><servicedir>{folder}/services</servicedir>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>
</busconfig>"""


def wait_for(what: Callable[[], Any], seconds: float = 20.0) -> Any:
    """The first true value of `what`."""
    until = time.monotonic() + seconds
    while not (value := what()):
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds} s")
        time.sleep(0.02)
    return value


@dataclass
class Desktop:
    """Environment and processes of one private desktop below `folder`."""

    folder: Path
    stack: contextlib.ExitStack
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        models = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local/share")
        for name in ("home", "run", "config", "state", "services", "data"):
            (self.folder / name).mkdir(mode=0o700)
        (self.folder / "data/xdna-dictate").symlink_to(Path(models) / "xdna-dictate")
        (self.folder / "asoundrc").write_text(
            "</usr/share/alsa/alsa.conf>\npcm.!default { type pulse }\nctl.!default { type pulse }\n"
        )
        unwanted = ("DBUS_", "XDG_", "PULSE_", "ALSA_", "NOTIFY_", "WAYLAND_", "DISPLAY")
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(unwanted)} | {
            "HOME": str(self.folder / "home"),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "XDG_DATA_HOME": str(self.folder / "data"),
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={self.folder}/bus",
            "DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={self.folder}/bus",
            "PULSE_SERVER": f"unix:{self.folder}/pulse",
            "PULSE_RUNTIME_PATH": str(self.folder / "run/pulse"),
            "PULSE_STATE_PATH": str(self.folder / "state/pulse"),
            "ALSA_CONFIG_PATH": str(self.folder / "asoundrc"),
        }

    def spawn(self, *command: str, out: Path | None = None, err: Path | None = None, **options: Any) -> "subprocess.Popen[bytes]":
        """A process that ends with the desktop; `out` and `err` are files its output is added to."""
        options = {"env": self.env, "stdin": subprocess.DEVNULL} | options
        with contextlib.ExitStack() as opened:
            files = {name: opened.enter_context(path.open("ab")) for name, path in (("stdout", out), ("stderr", err)) if path}
            process: subprocess.Popen[bytes] = subprocess.Popen(command, **options, **files)  # type: ignore[call-overload]
        self.stack.callback(_end, process)
        return process

    def start_bus(self) -> "subprocess.Popen[bytes]":
        """A message bus, session and system in one."""
        (self.folder / "bus.conf").write_text(_BUS.format(folder=self.folder))
        process = self.spawn(
            "dbus-daemon", f"--config-file={self.folder}/bus.conf", "--nofork", "--nopidfile", err=self.folder / "bus.log"
        )
        wait_for((self.folder / "bus").exists)
        return process

    def start_sound(self, *modules: str) -> "subprocess.Popen[bytes]":
        """PulseAudio with a loudspeaker `mic` whose monitor is the default microphone."""
        modules = modules or ("module-null-sink sink_name=mic rate=48000 channels=2 norewinds=1",)
        load = [
            f"-L{module}" for module in (f"module-native-protocol-unix auth-anonymous=1 socket={self.folder}/pulse", *modules)
        ]
        options = (
            "-n",
            "--daemonize=no",
            "--exit-idle-time=-1",
            "--disable-shm=yes",
            "--realtime=no",
            "--high-priority=no",
            "--resample-method=soxr-hq",
        )
        process = self.spawn("pulseaudio", *options, "--use-pid-file=no", "--log-target=stderr", *load, stderr=subprocess.DEVNULL)
        wait_for(lambda: self.run("pactl", "info", check=False).returncode == 0)
        return process

    def run(
        self, *command: str, check: bool = True, seconds: float = 60.0, env: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """A command on this desktop."""
        done = subprocess.run(
            command,
            env={**self.env, **(env or {})},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert not check or done.returncode == 0, (command, done.stdout, done.stderr)
        return done

    def cli(self, *arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        """Our own command line."""
        return self.run(sys.executable, "-m", "xdna_dictate.cli", *arguments, check=False, **options)

    def play(self, clip: Path, sink: str = "mic") -> "subprocess.Popen[bytes]":
        """Speak a recording into the microphone."""
        return self.spawn("paplay", f"--device={sink}", str(clip))

    def speak(self, clip: Path, sink: str = "mic") -> None:
        """Speak a recording, from its first to its last sample, once the daemon listens."""
        wait_for(lambda: self.get("State") == "listening")
        self.play(clip, sink).wait()

    def call(self, member: str, *arguments: str, interface: str = NAME, check: bool = True) -> str:
        """A call by gdbus; its printed answer."""
        command = ("gdbus", "call", "--session", "--dest", NAME, "--object-path", PATH, "--method", f"{interface}.{member}")
        done = self.run(*command, *arguments, check=check)
        return (done.stdout + done.stderr).strip()

    def get(self, name: str) -> str:
        """A property, as gdbus prints it."""
        answer = self.call("Get", NAME, name, interface="org.freedesktop.DBus.Properties")
        match = re.fullmatch(r"\(<(.*)>,\)", answer, re.DOTALL)
        assert match
        return match.group(1).strip("'")

    def start_daemon(self, *flags: str, **options: Any) -> "Daemon":
        """The daemon, ready."""
        log = self.folder / "daemon.log"
        process = self.spawn(*DAEMON, "daemon", *flags, err=log, **options)
        daemon = Daemon(self, process, log)
        wait_for(lambda: process.poll() is not None or "ready on the session bus" in log.read_text("utf-8"))
        assert process.poll() is None, log.read_text("utf-8")
        self.stack.callback(daemon.check_log)
        return daemon

    def monitor(self) -> "Monitor":
        """Everything the service signals from now on."""
        path = self.folder / f"monitor-{time.monotonic_ns()}"
        self.spawn("gdbus", "monitor", "--session", "--dest", NAME, out=path)
        wait_for(lambda: path.exists() and "The name" in path.read_text("utf-8"))
        return Monitor(path)


@dataclass
class Daemon:
    """A running daemon."""

    desktop: Desktop
    process: "subprocess.Popen[bytes]"
    log: Path

    def check_log(self) -> None:
        """Nothing blocked the loop, no task failed."""
        text = self.log.read_text("utf-8")
        assert "Traceback" not in text, text
        assert "blocked the loop" not in text, text

    def end(self, number: int = signal.SIGTERM, seconds: float = 6.0) -> int:
        """Send a signal and wait; returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def children(self) -> list[int]:
        """Process ids of the daemon's own processes."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(child) for task in tasks for child in task.read_text().split()]

    def worker(self) -> int:
        """Process id of the recogniser."""
        for child in self.children():
            if b"xdna_dictate.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
        return 0

    def memory(self) -> float:
        """Resident megabytes of the daemon itself."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024

    def processor(self) -> float:
        """Processor seconds of the daemon itself."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Monitor:
    """What `gdbus monitor` printed."""

    path: Path

    def signals(self, member: str) -> list[str]:
        """Arguments of every signal `member`, as printed."""
        text = self.path.read_text("utf-8")
        return re.findall(rf"^{PATH}: \S+\.{member} (\(.*\))$", text, re.MULTILINE)

    def wait(self, member: str, count: int = 1, seconds: float = 30.0) -> list[str]:
        """At least `count` signals `member`."""
        found: list[str] = wait_for(lambda: len(found := self.signals(member)) >= count and found, seconds)
        return found


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(6)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout:
        process.stdout.close()


@contextlib.contextmanager
def desktop(folder: Path) -> Iterator[Desktop]:
    """A fresh desktop below `folder`, ended at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        yield Desktop(folder, stack)
