"""A model hub on loopback that speaks the real hub's protocol, and can cut or garble a file."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Serves the files of `folder` as the repository `repository`; the next answers end after so many bytes in `cuts`."""

    def __init__(self, folder: Path, repository: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.repository = folder, repository
        self.cuts: list[int] = []
        self.garble = ""
        self.ranges: list[str | None] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Keep the test's output quiet."""

    def do_HEAD(self) -> None:
        self._file(body=False)

    def do_GET(self) -> None:
        if self.path.startswith("/api/models/"):
            self._info()
        else:
            self._file(body=True)

    def _info(self) -> None:
        if not self.path.startswith(f"/api/models/{self.server.repository}/"):
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            return
        siblings = []
        for path in sorted(self.server.folder.iterdir()):
            content = path.read_bytes()
            lfs = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
            siblings.append(
                {
                    "rfilename": path.name,
                    "size": len(content),
                    "blobId": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(),
                    **({"lfs": lfs} if path.suffix == ".safetensors" else {}),
                }
            )
        self._send(200, json.dumps({"id": self.server.repository, "sha": COMMIT, "siblings": siblings, "tags": []}).encode(), {})

    def _file(self, *, body: bool) -> None:
        name = self.path.split("?")[0].rsplit("/", 1)[-1]
        content = (self.server.folder / name).read_bytes()
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if not body:
            self._send(200, content, headers, body=False)
            return
        wanted = self.headers.get("Range")
        if name == self.server.garble:
            content = bytes(len(content))
        if name.endswith(".safetensors"):
            self.server.ranges.append(wanted)
        start = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted else 0
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        cut = self.server.cuts.pop(0) if self.server.cuts and name.endswith(".safetensors") else None
        self._send(206 if wanted else 200, content[start:], headers, cut=cut)

    def _send(self, status: int, content: bytes, headers: dict[str, str], *, body: bool = True, cut: int | None = None) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(content)), "Content-Type": "application/json"}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(content if cut is None else content[:cut])
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True


@contextmanager
def serving(folder: Path, repository: str) -> Iterator[Hub]:
    """A running hub."""
    hub = Hub(folder, repository)
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
