"""The live path in real time: clips are spoken into a private sound server's microphone, text comes back over D-Bus.

`make live MANIFEST=...` prints word errors beside those of `--file`, and the time from the end of speech to `Finished` beside
faster-whisper's on the very same sound. Each clip is dictated twice: until Stop at its end (toggle), which is scored, and until
silence (once), which ends at the first pause of a second.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import bench
from scoring import Score

from desktop import NAME, PATH, Desktop, desktop, wait_for
from recordings import table
from xdna_dictate.audio.segmenter import HANGOVER_SECONDS
from xdna_dictate.service.bus import PROPERTIES, Bus, variant

LONGEST: Final = 60.0


@dataclass
class Take:
    """What was measured of one dictation; times in seconds on the same clock."""

    session: str
    text: str
    speech_ended: float
    decided: float
    finished: float


@dataclass
class Peer:
    """faster-whisper in a process of its own, fed the same sound."""

    process: "subprocess.Popen[str]"

    def seconds(self, path: Path) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()
        return float(json.loads(self.process.stdout.readline())["wall"])


@dataclass
class Measures:
    """Seconds over all clips, for one way of ending a dictation."""

    waited: list[float] = field(default_factory=list)
    """From the end of speech to Finished, the wait for silence included."""
    ours: list[float] = field(default_factory=list)
    """From the decision that the speech is over to Finished."""
    theirs: list[float] = field(default_factory=list)
    """faster-whisper on the same sound, from the same moment."""


async def dictate(bus: Bus, made: Desktop, clip: Path, mode: str) -> Take:
    """Speak `clip`, from its first to its last sample, while the daemon listens."""
    events: asyncio.Queue[tuple[str, float, list[Any]]] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    stops = [await _watch(bus, events, member) for member in ("SpeechEnded", "Finished")]
    rule = f"sender='{NAME}',interface='{PROPERTIES}'"
    await bus.watch(rule, "PropertiesChanged", lambda _, body: events.put_nowait(("state", loop.time(), body)))
    [session] = await bus.call(NAME, PATH, NAME, "StartWithOptions", "a{sv}", {"mode": variant(mode)})
    ended = decided = 0.0
    playing: asyncio.Task[int] | None = None
    async with asyncio.timeout(LONGEST + 30):
        while True:
            member, moment, body = await events.get()
            if member == "state" and body[1].get("State") == "listening":
                playing = asyncio.create_task(asyncio.to_thread(made.play(clip).wait))
                if mode == "toggle":
                    playing.add_done_callback(lambda _: loop.create_task(bus.call(NAME, PATH, NAME, "Stop")))
            elif member == "state" and body[1].get("State") == "finishing":
                decided = moment
            elif member == "SpeechEnded":
                ended = moment - (HANGOVER_SECONDS if not decided else 0)
            elif member == "Finished" and body[0] == session:
                break
    if playing:
        await playing
    assert stops
    return Take(session, body[2], ended or decided, decided or moment, moment)


async def _watch(bus: Bus, events: "asyncio.Queue[tuple[str, float, list[Any]]]", member: str) -> bool:
    loop = asyncio.get_running_loop()
    rule = f"sender='{NAME}',interface='{NAME}'"
    await bus.watch(rule, member, lambda _, body: events.put_nowait((member, loop.time(), body)))
    return True


@dataclass
class Way:
    """What came of one way of ending a dictation."""

    score: Score = field(default_factory=Score)
    times: Measures = field(default_factory=Measures)


async def measure(made: Desktop, rows: list[dict[str, str]], folder: Path, modes: list[str], peer: Peer | None) -> dict[str, Way]:
    """All clips, each way."""
    os.environ["DBUS_SESSION_BUS_ADDRESS"] = made.env["DBUS_SESSION_BUS_ADDRESS"]
    ways = {mode: Way() for mode in modes}
    for number, row in enumerate(rows):
        for mode, way in ways.items():
            bus = await Bus.connect()
            try:
                take = await dictate(bus, made, folder / row["file"], mode)
            finally:
                bus.close()
            errors = way.score.add(row, take.text)
            if row["score"] == "empty":
                continue
            way.times.waited.append(take.finished - take.speech_ended)
            way.times.ours.append(take.finished - take.decided)
            if peer:
                way.times.theirs.append(await asyncio.to_thread(peer.seconds, _sound_of(made, take)))
            said = f"{mode}: {errors} errors, {take.finished - take.decided:.2f} s after the end"
            print(f"{number + 1}/{len(rows)} {row['file']} {said}", file=sys.stderr, flush=True)
            if errors:
                print(f"    {take.text}", file=sys.stderr)
    return ways


def _sound_of(made: Desktop, take: Take) -> Path:
    """The file that the daemon kept of a dictation."""
    [path] = wait_for(lambda: list(made.folder.glob(f"*/xdna-dictate/**/{take.session}.delivered.wav")))
    return Path(path)


@contextlib.contextmanager
def faster_whisper() -> Iterator[Peer]:
    """The peer, loaded."""
    with tempfile.TemporaryDirectory() as scratch:
        bench.fetch_checkpoint(Path(scratch), quiet=True)
        command = [sys.executable, bench.__file__, "--serve", bench.FASTER, "--checkpoint", scratch]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            yield Peer(process)
            process.terminate()


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of `values` lie."""
    return statistics.quantiles(values, n=100, method="inclusive")[round(share * 100) - 1] if len(values) > 1 else values[0]


def line(name: str, values: list[float]) -> str:
    return f"  {name:52} p50 {percentile(values, 0.5):.3f} s   p95 {percentile(values, 0.95):.3f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--clips", type=int, default=0, help="only so many, evenly chosen (default: all)")
    parser.add_argument("--modes", nargs="+", choices=("toggle", "once"), default=["toggle", "once"], help="ways to end")
    parser.add_argument("--no-peer", action="store_true", help="leave faster-whisper out")
    parser.add_argument("--no-partials", action="store_true", help="without text while somebody still speaks")
    wanted = parser.parse_args()
    folder = wanted.manifest.parent
    rows = [row for row in table(wanted.manifest) if row["language"] in ("en", "none") and float(row["seconds"]) < LONGEST]
    rows = rows[:: max(1, len(rows) // wanted.clips)] if wanted.clips else rows
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(desktop(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "desktop"))
        made.start_bus()
        made.start_sound()
        flags = ["--no-partials"] if wanted.no_partials else []
        made.start_daemon("--keep-audio", "last", *flags)
        made.call("LoadModel")
        peer = None if wanted.no_peer else stack.enter_context(faster_whisper())
        if peer:
            peer.seconds(folder / rows[0]["file"])
        began = time.monotonic()
        ways = asyncio.run(measure(made, rows, folder, wanted.modes, peer))
        print(f"{len(rows)} clips, {time.monotonic() - began:.0f} s")
        report(made, rows, folder, ways)
    return 0


def report(made: Desktop, rows: list[dict[str, str]], folder: Path, ways: dict[str, Way]) -> None:
    """Print accuracy and times."""
    by_file = Score()
    for row in rows:
        by_file.add(row, made.cli("--file", str(folder / row["file"]), "--quiet").stdout)
    print(f"--file        {by_file}")
    print(f"live, to Stop {ways['toggle'].score}")
    for mode, way in ways.items():
        print(f"{mode}:")
        print(line("end of speech to Finished, waiting included", way.times.waited))
        print(line("decision that it is over to Finished", way.times.ours))
        if way.times.theirs:
            print(line("faster-whisper from the same moment", way.times.theirs))
            ratio = percentile(way.times.ours, 0.5) / percentile(way.times.theirs, 0.5)
            print(f"  ratio of the medians {ratio:.2f}")


if __name__ == "__main__":
    sys.exit(main())
