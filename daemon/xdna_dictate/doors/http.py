"""`POST /v1/audio/transcriptions`, as programs made for OpenAI's interface expect it."""

import asyncio
import json
import logging
from typing import Any, Final

from aiohttp import BodyPartReader, web

from xdna_asr.errors import AsrError
from xdna_asr.registry import MODELS
from xdna_dictate.doors import LARGEST, path_of, private_file
from xdna_dictate.errors import DictateError, UsageError
from xdna_dictate.jobs import Jobs

log = logging.getLogger(__name__)

FORMATS: Final = {"json": "json", "verbose_json": "json", "text": "text", "srt": "srt", "vtt": "vtt"}
_TYPES: Final = {"text": "text/plain", "srt": "application/x-subrip", "vtt": "text/vtt"}
_FIELD_BYTES: Final = 4096


async def serve(host: str, port: int, jobs: Jobs) -> None:
    """Serve for ever."""
    runner = web.AppRunner(application(jobs), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        log.info("HTTP on http://%s:%d/v1/audio/transcriptions", host, port)
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def application(jobs: Jobs) -> web.Application:
    """The routes."""
    made = web.Application(middlewares=[_for_programs_only, _errors], client_max_size=LARGEST)
    made.add_routes(
        [web.get("/v1/models", _models), web.post("/v1/audio/transcriptions", lambda request: _transcribe(request, jobs))]
    )
    return made


@web.middleware
async def _for_programs_only(request: web.Request, handler: Any) -> web.StreamResponse:
    """Web pages get nothing: neither from another origin, nor under a name that was made to lead here."""
    host = request.host.rpartition(":")[0] or request.host
    if "Origin" in request.headers or host not in ("localhost", "127.0.0.1", "[::1]"):
        return _refusal(403, "this door is for programs on this computer, not for web pages")
    response: web.StreamResponse = await handler(request)
    return response


@web.middleware
async def _errors(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        response: web.StreamResponse = await handler(request)
    except (AsrError, DictateError) as error:
        return _refusal(400, str(error))
    return response


def _refusal(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": "invalid_request_error"}}, status=status)


async def _models(_request: web.Request) -> web.Response:
    return web.json_response(
        {"object": "list", "data": [{"id": model, "object": "model", "owned_by": "local"} for model in MODELS]}
    )


async def _transcribe(request: web.Request, jobs: Jobs) -> web.Response:
    if not request.content_type.startswith("multipart/"):
        raise UsageError("send multipart/form-data with a field file")
    fields: dict[str, str] = {}
    with private_file() as recording:
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader):
                raise UsageError("nested parts are not understood")
            if part.name == "file":
                await _store(part, recording)
                fields["file"] = part.filename or "audio"
            elif part.name:
                fields[part.name] = await _field(part)
        if "file" not in fields:
            raise UsageError("the field file is missing")
        wanted = fields.get("response_format", "json")
        if wanted not in FORMATS:
            raise UsageError(f"response_format = {wanted!r}: must be one of {', '.join(FORMATS)}")
        options = {"language": fields["language"]} if fields.get("language") else {}
        text = await jobs.transcribe(path_of(recording), fields["file"], FORMATS[wanted], options)
    if wanted in _TYPES:
        return web.Response(text=text, content_type=_TYPES[wanted])
    document = json.loads(text)
    return web.json_response(document if wanted == "verbose_json" else {"text": document["text"]})


async def _field(part: BodyPartReader) -> str:
    text = b""
    while len(text) < _FIELD_BYTES and (chunk := await part.read_chunk(_FIELD_BYTES)):
        text += chunk
    return text.decode("utf-8", "replace")


async def _store(part: BodyPartReader, recording: Any) -> None:
    while chunk := await part.read_chunk():
        if recording.tell() + len(chunk) > LARGEST:
            raise UsageError(f"the recording is larger than {LARGEST >> 20} MB")
        recording.write(chunk)
