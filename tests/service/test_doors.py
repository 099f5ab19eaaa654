"""The doors for other programs: shut by default, on loopback only, and for programs, not for web pages."""

import asyncio
import json
import re
import socket
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile
from wyoming.asr import Transcribe, Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.info import Describe, Info

from desktop import Desktop, desktop, wait_for
from recordings import SPEECH
from xdna_asr.store import ModelStore

CLIP = SPEECH / "en-sb-spk1-snt3.flac"
WORDS = "at that high level"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory, store: ModelStore) -> Iterator[tuple[int, int]]:
    assert store
    with desktop(tmp_path_factory.mktemp("doors") / "desktop") as made:
        made.start_bus()
        http, wyoming = free_port(), free_port()
        daemon = made.start_daemon("--http-port", str(http), "--wyoming-port", str(wyoming))
        wait_for(lambda: "Wyoming on" in (text := daemon.log.read_text("utf-8")) and "HTTP on" in text)
        yield http, wyoming


def post(port: int, fields: dict[str, str], file: Path | None = CLIP, **headers: str) -> tuple[int, str]:
    boundary = uuid.uuid4().hex
    body = b""
    for name, value in fields.items():
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
    if file:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{file.name}"\r\n\r\n'
        body += head.encode() + file.read_bytes() + b"\r\n"
    body += f"--{boundary}--\r\n".encode()
    kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/audio/transcriptions", body, kind | headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_transcription_over_http(ports: tuple[int, int]) -> None:
    status, answer = post(ports[0], {"model": "whisper-1"})
    assert status == 200
    assert list(json.loads(answer)) == ["text"]
    assert WORDS in json.loads(answer)["text"].lower()
    assert WORDS in post(ports[0], {"response_format": "text"})[1].lower()
    assert post(ports[0], {"response_format": "vtt", "language": "en"})[1].startswith("WEBVTT")
    assert "segments" in json.loads(post(ports[0], {"response_format": "verbose_json"})[1])


def test_mistakes_over_http_get_one_line(ports: tuple[int, int]) -> None:
    for fields, file, words in (
        ({"response_format": "odt"}, CLIP, "must be one of"),
        ({}, None, "the field file is missing"),
        ({}, Path(__file__), "not an audio file"),
        ({"language": "de"}, CLIP, "'de'"),
    ):
        status, answer = post(ports[0], fields, file)
        assert status == 400
        assert words in json.loads(answer)["error"]["message"]


def test_web_pages_get_nothing(ports: tuple[int, int]) -> None:
    assert post(ports[0], {}, Origin="https://example.org")[0] == 403
    assert post(ports[0], {}, Host=f"evil.example.org:{ports[0]}")[0] == 403


def test_transcription_over_wyoming(ports: tuple[int, int]) -> None:
    samples, rate = soundfile.read(CLIP, dtype="int16")

    async def talk() -> None:
        async with AsyncTcpClient("127.0.0.1", ports[1]) as client:
            await client.write_event(Describe().event())
            event = await client.read_event()
            assert event is not None
            assert Info.from_event(event).asr[0].models[0].languages == ["en"]
            for language, kind in (("en", Transcript), ("de", Error)):
                await client.write_event(Transcribe(language=language).event())
                await client.write_event(AudioStart(rate=rate, width=2, channels=1).event())
                for begin in range(0, len(samples), 1024):
                    audio = samples[begin : begin + 1024].tobytes()
                    await client.write_event(AudioChunk(rate=rate, width=2, channels=1, audio=audio).event())
                await client.write_event(AudioStop().event())
                event = await client.read_event()
                assert event is not None
                assert kind.is_type(event.type)
                assert language == "de" or WORDS in Transcript.from_event(event).text.lower()

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await talk()

    asyncio.run(bounded())


def test_nothing_listens_by_default_and_nothing_beyond_loopback(fresh: Desktop, ports: tuple[int, int]) -> None:
    fresh.start_bus()
    daemon = fresh.start_daemon()
    assert not _listening(daemon.process.pid)
    table = Path("/proc/net/tcp").read_text()
    for port in ports:
        assert re.search(rf" 0100007F:{port:04X} 00000000:0000 0A ", table)


def _listening(pid: int) -> list[str]:
    """Internet sockets that a process holds."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        if match := re.match(r"socket:\[(\d+)\]", str(link.readlink())):
            inodes.add(match.group(1))
    lines = [line for table in ("tcp", "tcp6", "udp", "udp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    return [line for line in lines if line.split()[9] in inodes]
