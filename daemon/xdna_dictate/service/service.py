"""The object on the bus: translates calls to the engine, and what the engine tells to signals."""

import asyncio
import os
from importlib.resources import files
from typing import Any, Final

from xdna_asr.errors import ModelDamaged
from xdna_asr.registry import DEFAULT_MODEL, MODELS
from xdna_dictate import __version__
from xdna_dictate.audio import pulse
from xdna_dictate.dictation import Dictation
from xdna_dictate.engine import Engine, Spawn
from xdna_dictate.errors import Busy, InvalidArgs, bus_name
from xdna_dictate.jobs import Jobs
from xdna_dictate.service.bus import DBUS, NAME, Bus, ServedObject
from xdna_dictate.settings import Settings

MODELS_INTERFACE: Final = f"{NAME}.Models"
MICROPHONES_INTERFACE: Final = f"{NAME}.Microphones"
INSERTER_INTERFACE: Final = f"{NAME}.Inserter"
FEATURES: Final = ("hotwords", "retry", "partials", "inserter")


def interface_xml() -> str:
    """The public interface."""
    return (files("xdna_dictate") / "service" / "interface.xml").read_text("utf-8")


class Service:
    """Everything the bus sees; made by `Service.start`."""

    def __init__(self, bus: Bus, settings: Settings, spawn: Spawn, **parts: Any) -> None:
        self._spawn = spawn
        self._watchers: set[str] = set()
        self._error = ("", "")
        self.engine = Engine(settings, self, spawn, **parts)
        self.jobs = Jobs(self.engine, self, spawn)
        objects = {
            NAME: self,
            MODELS_INTERFACE: _Models(self),
            MICROPHONES_INTERFACE: _Microphones(),
            INSERTER_INTERFACE: _Inserter(self),
        }
        self._served: ServedObject = bus.serve(interface_xml(), objects, spawn)

    async def watch_callers(self, bus: Bus) -> None:
        """Notice programs that leave the bus."""

        def on_change(_sender: str, body: list[Any]) -> None:
            name, _, new = body
            if not new:
                self._watchers.discard(name)
                self.engine.caller_left(name)

        await bus.watch(f"sender='{DBUS}',interface='{DBUS}',arg2=''", "NameOwnerChanged", on_change)

    # Methods.

    async def toggle(self, caller: str) -> str:
        return await self.engine.toggle(caller)

    async def start(self, caller: str, mode: str) -> str:
        return (await self.engine.start({"mode": mode}, caller)).name

    async def start_with_options(self, caller: str, options: dict[str, Any]) -> str:
        return (await self.engine.start(options, caller)).name

    async def press(self, caller: str) -> None:
        await self.engine.press(caller)

    async def release(self, caller: str) -> None:
        await self.engine.release(caller)

    async def stop(self, _caller: str) -> str:
        return self.engine.stop()

    async def cancel(self, _caller: str) -> None:
        self.engine.cancel()

    async def dictate(self, caller: str, timeout_ms: int) -> str:
        return await self.engine.dictate(timeout_ms / 1000 or None, caller)

    async def transcribe_file(self, _caller: str, path: str, form: str) -> str:
        return await self.jobs.transcribe_file(path, form)

    async def transcribe_fd(self, caller: str, audio: int, form: str, options: dict[str, Any]) -> str:
        return self.jobs.transcribe_descriptor(os.dup(audio), form, options, caller)

    async def retry_last(self, caller: str, options: dict[str, Any]) -> str:
        return (await self.engine.retry(options, caller)).name

    async def insert_text(self, _caller: str, text: str) -> str:
        return await self.engine.inserters.insert(text, self.engine.config.inserter)

    async def watch_level(self, caller: str, on: bool) -> None:
        (self._watchers.add if on else self._watchers.discard)(caller)

    async def load_model(self, _caller: str) -> None:
        self.engine.load_model()

    async def unload_model(self, _caller: str) -> None:
        await self.engine.unload_model()

    async def doctor(self, _caller: str) -> str:
        from xdna_dictate.doctor import report

        return await report(self.engine.config, service=True)

    # Properties.

    @property
    def state(self) -> str:
        return self.engine.state

    @property
    def session(self) -> str:
        return self.engine.session

    @property
    def mode(self) -> str:
        return self.engine.mode

    @property
    def model_state(self) -> str:
        return self.engine.model_state

    @property
    def backend(self) -> str:
        loaded = self.engine.recognition.loaded
        return loaded.backend if loaded else ""

    @property
    def backend_detail(self) -> str:
        loaded = self.engine.recognition.loaded
        return loaded.detail if loaded else ""

    @property
    def last_error(self) -> tuple[str, str]:
        return self._error

    @property
    def last_text(self) -> str:
        return self.engine.last_text if self.engine.config.publish == "broadcast" else ""

    @property
    def features(self) -> list[str]:
        return list(FEATURES)

    @property
    def version(self) -> str:
        return __version__

    @property
    def language(self) -> str:
        return self.engine.config.language

    @property
    def model(self) -> str:
        return self.engine.config.model

    @property
    def profile(self) -> str:
        return self.engine.config.profile

    @property
    def microphone(self) -> str:
        return self.engine.config.microphone

    @property
    def inserter(self) -> str:
        return self.engine.config.inserter

    async def set_language(self, value: str) -> None:
        self.engine.choose("language", value)

    async def set_model(self, value: str) -> None:
        self.engine.choose("model", value)

    async def set_profile(self, value: str) -> None:
        self.engine.choose("profile", value)

    async def set_microphone(self, value: str) -> None:
        self.engine.choose("microphone", value)

    async def set_inserter(self, value: str) -> None:
        self.engine.choose("inserter", value)

    # What the engine tells.

    def changed(self, *names: str) -> None:
        self._served.changed(NAME, *names)

    def partial(self, dictation: Dictation, stable: str, unstable: str) -> None:
        self._tell(dictation.wishes.owner, "Partial", dictation.name, dictation.revision, stable, unstable)

    def text(self, dictation: Dictation, text: str, info: dict[str, Any]) -> None:
        self._tell(dictation.wishes.owner, "Text", dictation.name, dictation.segments, text, info)

    def finished(self, name: str, reason: str, text: str, owner: str = "", *, asked_for: bool = False) -> None:
        if self.engine.config.publish == "off":
            self._served.signal(
                NAME, "Finished", name, reason, text if asked_for else "", destination=owner if asked_for else None
            )
        else:
            self._tell(owner, "Finished", name, reason, text)

    def failed(self, name: str, error: Exception, owner: str = "") -> None:  # noqa: ARG002  no text in it: everybody may know
        self._error = (bus_name(error), str(error))
        self._served.signal(NAME, "Failed", name, *self._error)
        self.changed("LastError")

    def speech(self, dictation: Dictation, *, started: bool) -> None:
        self._served.signal(NAME, "SpeechStarted" if started else "SpeechEnded", dictation.name)

    def level(self, rms_dbfs: float, peak_dbfs: float) -> None:
        for watcher in self._watchers:
            self._served.signal(NAME, "Level", rms_dbfs, peak_dbfs, destination=watcher)

    def progress(self, job: str, fraction: float, phase: str) -> None:
        self._served.signal(NAME, "Progress", job, fraction, phase)

    def insert(self, owner: str, number: int, text: str, preedit: str) -> None:
        self._served.signal(INSERTER_INTERFACE, "Insert", number, text, preedit, destination=owner)

    def microphones_changed(self) -> None:
        """A microphone came or went."""
        self._served.signal(MICROPHONES_INTERFACE, "Changed")

    def _tell(self, owner: str, member: str, *body: Any) -> None:
        """A signal with text in it, to whom the setting publish lets see it."""
        publish = self.engine.config.publish
        if publish == "broadcast" or (publish == "owner" and owner):
            self._served.signal(NAME, member, *body, destination=owner if publish == "owner" else None)


class _Models:
    def __init__(self, service: Service) -> None:
        self._service, self._engine = service, service.engine

    async def list(self, _caller: str) -> list[dict[str, Any]]:
        here = self._engine.store.installed()
        known = [
            {
                "id": model.id,
                "family": model.family,
                "megabytes": model.megabytes,
                "languages": model.languages,
                "licence": model.licence,
                "installed": model.id in here,
                "default": model.id == DEFAULT_MODEL,
            }
            for model in MODELS.values()
        ]
        others = (model_id for model_id in here if model_id not in MODELS)
        imported = [{"id": model_id, "family": "Whisper", "installed": True, "default": False} for model_id in others]
        return known + imported

    async def download(self, caller: str, model_id: str) -> str:
        return self._service.jobs.download(model_id, caller)

    async def remove(self, _caller: str, model_id: str) -> None:
        loaded = self._engine.recognition.loaded
        if loaded and loaded.model == model_id:
            if self._engine.active or self._engine.recognition.users:
                raise Busy(f"{model_id} is in use")
            await self._engine.recognition.unload()
        self._engine.store.remove(model_id)
        self._service.changed("ModelState")

    async def verify(self, _caller: str, model_id: str) -> bool:
        try:
            await asyncio.to_thread(self._engine.store.verify, model_id)
        except ModelDamaged:
            return False
        return True


class _Microphones:
    async def list(self, _caller: str) -> list[dict[str, Any]]:
        return [microphone.__dict__ for microphone in await pulse.microphones()]


class _Inserter:
    def __init__(self, service: Service) -> None:
        self._inserters = service.engine.inserters

    async def register(self, caller: str, kind: str, abilities: list[str]) -> None:
        if not kind or kind == "auto":
            raise InvalidArgs("an inserter needs a name of its own")
        self._inserters.register(caller, kind, abilities)

    async def done(self, caller: str, number: int, ok: bool, reason: str) -> None:
        self._inserters.done(caller, number, reason, ok=ok)
