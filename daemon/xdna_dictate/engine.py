"""The composition root: one dictation at a time, the microphone, the recogniser, the settings. Knows nothing of D-Bus."""

import asyncio
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import cached_property
from typing import Any, Final, Protocol

from xdna_asr.errors import AsrError, UnsupportedLanguage
from xdna_asr.registry import english_only
from xdna_asr.runtime.select import choose
from xdna_asr.store import ModelStore
from xdna_asr.vad import SileroModel, on_numpy
from xdna_dictate import kept
from xdna_dictate.audio.capture import Capture
from xdna_dictate.audio.feeds import Replay, WarmMicrophone
from xdna_dictate.audio.sources import Source, open_microphone
from xdna_dictate.config import Config
from xdna_dictate.dictation import Dictation, Wishes
from xdna_dictate.errors import (
    Busy,
    Cancelled,
    ConfigError,
    DictateError,
    InvalidArgs,
    ModelLoading,
    NoSpeech,
    NotActive,
    ServiceError,
    Suspended,
    Timeout,
)
from xdna_dictate.hotkey import Command, Hotkey
from xdna_dictate.inserters import Inserters
from xdna_dictate.kept import KeptSound, SavedSound
from xdna_dictate.output.postprocess import PostProcessor
from xdna_dictate.paths import models_folder
from xdna_dictate.session import Limits, Mode, Reason, Session, State, limits_of
from xdna_dictate.settings import Settings
from xdna_dictate.worker.client import Loading, Recognition, WorkerLost

log = logging.getLogger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
_DICTATE_MARGIN: Final = 1.0
"""Of the time a blocking caller gives, what is left for recognition."""
_PREVIEWED: Final = 200
"""Letters of unfinished text shown at the cursor."""


class Events(Protocol):
    """Whoever tells the world."""

    def changed(self, *names: str) -> None:
        """Attributes of the engine have other values."""
        ...

    def partial(self, dictation: Dictation, stable: str, unstable: str) -> None: ...

    def text(self, dictation: Dictation, text: str, info: dict[str, Any]) -> None: ...

    def speech(self, dictation: Dictation, *, started: bool) -> None: ...

    def failed(self, name: str, error: Exception, owner: str = "") -> None: ...

    def finished(self, name: str, reason: str, text: str, owner: str = "", *, asked_for: bool = False) -> None: ...

    def progress(self, job: str, fraction: float, phase: str) -> None: ...

    def level(self, rms_dbfs: float, peak_dbfs: float) -> None: ...

    def insert(self, owner: str, number: int, text: str, preedit: str) -> None: ...


class Engine:
    """What the program does, for whoever asks."""

    def __init__(
        self,
        settings: Settings,
        events: Events,
        spawn: Spawn,
        open_source: Callable[[str], Awaitable[Source]] = open_microphone,
    ) -> None:
        self.settings, self._events, self._spawn, self._open_source = settings, events, spawn, open_source
        self._loop = asyncio.get_running_loop()
        self.recognition = Recognition(spawn, self._recogniser_changed)
        self.inserters = Inserters(events.insert)
        self.store = ModelStore(models_folder())
        self._dictation: Dictation | None = None
        self._living: set[Dictation] = set()
        self._held: KeptSound | None = None
        """Sound that was not delivered and could not be written to a file."""
        self._hotkey = Hotkey()
        self._hotkey_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._warm: WarmMicrophone | None = None
        self._suspended = False
        self.downloading = False
        self.last_text = ""
        self._count = 0

    # What others may know.

    @property
    def config(self) -> Config:
        """The settings, the chosen profile's among them."""
        return self.settings.effective

    @property
    def active(self) -> Dictation | None:
        """The dictation that is on, or whose text is on its way."""
        return self._dictation if self._dictation and not self._dictation.session.ended else None

    @property
    def state(self) -> str:
        """As the property State."""
        if self._suspended:
            return State.SUSPENDED
        return self.active.session.state if self.active else State.IDLE

    @property
    def session(self) -> str:
        """Name of the active dictation."""
        return self.active.name if self.active else ""

    @property
    def mode(self) -> str:
        """Mode of the active dictation, else the one that Toggle would use."""
        return self.active.session.mode if self.active else self.config.mode

    @property
    def model_state(self) -> str:
        """As the property ModelState."""
        if self.downloading:
            return "downloading"
        if self.recognition.loading:
            return "loading"
        if self.recognition.loaded:
            return "ready"
        return "unloaded" if self.config.model in self.store.installed() else "missing"

    @property
    def listening(self) -> bool:
        """Whether a dictation is on that Stop would end."""
        return self.active is not None and self.active.session.state in (State.STARTING, State.LISTENING)

    # Dictations.

    async def start(self, options: Mapping[str, Any], owner: str = "", limits: Limits | None = None) -> Dictation:
        """Start a dictation. Raises a ServiceError, AsrError or ConfigError: nothing has happened then."""
        config = self._configured(options)
        self._check_ready(config)
        mode = Mode(config.mode)
        made = limits or limits_of(mode, config.max_seconds or None, config.silence_seconds or None)
        sound = KeptSound(self._name(), in_memory=config.keep_audio == "never")
        dictation = self._begin(config, Session(mode, made, self._loop.time()), sound, options, owner)
        if self._warm and self._warm.name == config.microphone:
            dictation.begin(self._warm.feed(dictation))
        else:
            dictation.begin(Capture(config.microphone, self._open_source, dictation))
        return dictation

    async def retry(self, options: Mapping[str, Any], owner: str = "") -> Dictation:
        """Recognise the newest kept sound again. Raises NotActive if there is none."""
        if self._living:
            raise Busy("a dictation is on, or its text is on its way")
        wanted = {name: value for name, value in options.items() if name != "undelivered"}
        sound = self._sound_to_retry(undelivered=bool(options.get("undelivered", False)))
        config = self._configured({**wanted, "mode": Mode.CONTINUOUS, "partials": False, "silence-seconds": 0})
        self._check_ready(config)
        session = Session(Mode.CONTINUOUS, Limits(longest=None), self._loop.time())
        dictation = self._begin(config, session, sound, wanted, owner)
        dictation.begin(Replay(sound.blocks(), dictation, sound.played))
        return dictation

    def _sound_to_retry(self, *, undelivered: bool) -> KeptSound:
        """The newest that was not delivered, else the last delivered one where that is kept."""
        if self._held:
            return self._held
        paths = kept.undelivered() or ([] if undelivered else kept.delivered())
        if not paths:
            raise NotActive("no dictation's sound is kept; keep_audio = \"last\" would keep the last one's")
        return SavedSound(paths[-1])

    def _begin(self, config: Config, session: Session, sound: KeptSound, options: Mapping[str, Any], owner: str) -> Dictation:
        wishes = Wishes(
            loading=_loading(config),
            options={"language": config.language, "languages": config.languages, "hotwords": config.hotwords},
            post=PostProcessor(config.spoken_commands, config.replacements, config.hotwords),
            limit=config.recognition_limit,
            partials=config.partials,
            insert=config.insert,
            owner=owner,
            bound=bool(options.get("bind-to-caller", False)),
        )
        self._dictation = Dictation(sound.name, session, wishes, sound, self.recognition, self._voice_activity, self, self._spawn)
        self._living.add(self._dictation)
        self._spawn(self._load(wishes.loading))
        self._events.changed("State", "Session", "Mode")
        return self._dictation

    def _configured(self, options: Mapping[str, Any]) -> Config:
        """The settings with a caller's options laid over them."""
        names = {name: name.replace("-", "_") for name in options if name != "bind-to-caller"}
        if unknown := [name for name, setting in names.items() if setting not in _OPTIONS]:
            raise InvalidArgs(f"unknown option {unknown[0]!r}; known: {', '.join(sorted(_OPTIONS))}".replace("_", "-"))
        given = {setting: options[name] for name, setting in names.items() if options[name] != ""}
        profile = given.pop("profile", None)
        try:
            base = self.config if profile is None else self.settings.now.with_values({"profile": profile}).in_profile()
            return base.with_values(given)
        except ConfigError as error:
            raise InvalidArgs(str(error).replace("_", "-")) from error

    def _check_ready(self, config: Config) -> None:
        if self._suspended:
            raise Suspended("the computer is about to sleep")
        if self.listening:
            raise Busy("a dictation is on already; stop or cancel it first")
        choose(config.backend)
        self.store.folder_of(config.model)
        for code in (config.language, *config.languages):
            if code not in ("", "en") and english_only(config.model):
                raise UnsupportedLanguage(f"{config.model} knows only English, not {code!r}; choose a model without .en")

    def _name(self) -> str:
        self._count += 1
        return f"{time.strftime('%Y%m%dT%H%M%S')}-{self._count}"

    @cached_property
    def _voice_activity(self) -> SileroModel:
        return on_numpy()

    def stop(self) -> str:
        """End the dictation that is on; returns its name. Raises NotActive."""
        if not self.active or not self.listening:
            raise NotActive("no dictation is on")
        self.active.stop()
        return self._dictation.name if self._dictation else ""

    def cancel(self) -> None:
        """Throw away the dictation that is on. Raises NotActive."""
        if not self.active:
            raise NotActive("no dictation is on")
        self.active.cancel()

    async def toggle(self, owner: str = "") -> str:
        """Start, or stop; returns the new state."""
        if self.listening:
            self.stop()
        else:
            await self.start({}, owner)
        return self.state

    async def press(self, owner: str = "") -> None:
        """The hotkey went down."""
        await self._obey(self._hotkey.press(self._loop.time(), active=self.listening), owner)

    async def release(self, owner: str = "") -> None:
        """The hotkey went up."""
        await self._obey(self._hotkey.release(self._loop.time()), owner)

    async def _obey(self, command: Command | None, owner: str = "") -> None:
        if self._hotkey_timer:
            self._hotkey_timer.cancel()
        deadline = self._hotkey.deadline
        self._hotkey_timer = None if deadline is None else self._loop.call_at(deadline, self._hotkey_tick)
        if command is Command.START:
            await self.start({}, owner)
        elif command is Command.STOP and self.listening:
            self.stop()

    def _hotkey_tick(self) -> None:
        self._spawn(self._obey(self._hotkey.tick(self._loop.time())))

    async def dictate(self, seconds: float | None, owner: str = "") -> str:
        """One dictation that ends on silence; its text. Raises a ServiceError that says why there is none."""
        config = self.config
        limits = limits_of(Mode.ONCE, config.max_seconds or None, config.silence_seconds or None)
        if seconds:
            longest = max(seconds - _DICTATE_MARGIN, seconds / 2)
            limits = dataclasses.replace(limits, longest=longest, wait=min(limits.wait or longest, longest))
        dictation = await self.start({"mode": Mode.ONCE}, owner, limits)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(dictation.ended)
        except TimeoutError as error:
            late = Timeout("the text was not ready in the time given; the sound is kept, try: xdna-dictate recover")
            dictation.fail(late)
            raise late from error
        if dictation.session.reason is Reason.CANCELLED:
            raise Cancelled("the dictation was cancelled")
        if dictation.text and dictation.heard_everything:
            return dictation.text
        raise dictation.error or NoSpeech("nobody spoke")

    def caller_left(self, owner: str) -> None:
        """A program has left the bus."""
        self.inserters.forget(owner)
        if self.active and self.active.wishes.bound and self.active.wishes.owner == owner:
            self.active.cancel()

    # The model.

    def loading(self) -> Loading:
        """What the settings want loaded. Raises ModelMissing or BackendUnavailable."""
        config = self.config
        choose(config.backend)
        self.store.folder_of(config.model)
        return _loading(config)

    async def _load(self, loading: Loading) -> None:
        """Load beside the speaker's first words; what goes wrong is told when there is something to recognise."""
        try:
            await self.recognition.load(loading)
        except (AsrError, DictateError, WorkerLost) as error:
            log.warning("%s could not be loaded: %s", loading.model, error)
        self.rest()

    def load_model(self) -> None:
        """Start to load the model. Raises ModelMissing or BackendUnavailable."""
        self._spawn(self._load(self.loading()))

    async def unload_model(self) -> None:
        """Take the model out of memory. Raises Busy or ModelLoading."""
        if self.recognition.loading:
            raise ModelLoading("the model is being loaded")
        if self.active or self.recognition.users:
            raise Busy("the model is in use")
        await self.recognition.unload()

    def _recogniser_changed(self) -> None:
        self._events.changed("ModelState", "Backend", "BackendDetail")

    def rest(self) -> None:
        """Count the idle time anew."""
        if self._idle_timer:
            self._idle_timer.cancel()
        seconds = self.config.unload_after
        self._idle_timer = self._loop.call_later(seconds, self._unload_if_idle) if seconds else None

    def _unload_if_idle(self) -> None:
        if self._living or self.recognition.users or self.recognition.loading:
            self.rest()
        else:
            self._spawn(self.recognition.unload())

    # Settings, sleep, the end.

    def choose(self, name: str, value: str) -> None:
        """Change a setting until the service ends. Raises InvalidArgs, ModelMissing, UnsupportedLanguage."""
        if name == "model":
            self.store.folder_of(value)
        before = self.settings.now
        self.settings.choose(name, value)
        if before != self.settings.now:
            self.settings_changed()

    def settings_changed(self) -> None:
        """Act on new settings."""
        self._events.changed("Language", "Model", "Profile", "Microphone", "Inserter", "Mode", "ModelState")
        self.keep_warm()
        self.rest()

    def keep_warm(self) -> None:
        """Open or close the warm microphone as the settings say, after the dictation that is on."""
        if self.listening:
            return
        config = self.config
        wanted = config.warm_microphone and not self._suspended
        if self._warm and (not wanted or (self._warm.name, self._warm.pre_roll) != (config.microphone, config.pre_roll)):
            self._warm.stop()
            self._warm = None
        if wanted and not self._warm:
            self._warm = WarmMicrophone(config.microphone, self._open_source, config.pre_roll)
            self._spawn(self._warm.run())

    def sleep(self, *, about_to: bool) -> None:
        """The computer is about to sleep, or woke up."""
        if about_to and self.listening:
            self.stop()
        self._suspended = about_to
        self.keep_warm()
        self._events.changed("State")

    async def close(self) -> None:
        """End everything; what was being said is kept."""
        for timer in (self._idle_timer, self._hotkey_timer):
            if timer:
                timer.cancel()
        if self._warm:
            self._warm.stop()
        for dictation in self._living:
            dictation.kept.keep(delivered=False)
        await self.recognition.unload()

    # What the dictation says.

    def partial(self, dictation: Dictation, stable: str, unstable: str) -> None:
        """See Publisher."""
        self._events.partial(dictation, stable, unstable)
        if dictation.wishes.insert:
            fresh = (stable + unstable)[len(dictation.text) :]
            self.inserters.preview(fresh[-_PREVIEWED:], self.config.inserter)

    def text(self, dictation: Dictation, text: str, delta: str, info: dict[str, Any]) -> None:
        """See Publisher."""
        self._events.text(dictation, text, info)
        if dictation.wishes.insert and self.inserters.choose(self.config.inserter):
            self._spawn(self._insert(dictation, delta))

    async def _insert(self, dictation: Dictation, text: str) -> None:
        try:
            await self.inserters.insert(text, self.config.inserter)
        except ServiceError as error:
            self.failed(dictation, error)

    def speech(self, dictation: Dictation, *, started: bool) -> None:
        """See Publisher."""
        self._events.speech(dictation, started=started)

    def failed(self, dictation: Dictation, error: Exception) -> None:
        """See Publisher."""
        self._events.failed(dictation.name, error, dictation.wishes.owner)

    def state_changed(self, dictation: Dictation) -> None:
        """See Publisher."""
        if dictation is self._dictation:
            self._events.changed("State", "Session", "Mode")

    def level(self, rms_dbfs: float, peak_dbfs: float) -> None:
        """See Publisher."""
        self._events.level(rms_dbfs, peak_dbfs)

    def finished(self, dictation: Dictation) -> None:
        """See Publisher."""
        reason = dictation.session.reason
        self._living.discard(dictation)
        self.last_text = dictation.text
        if dictation.wishes.insert:
            self.inserters.preview("", self.config.inserter)
        again = dictation.kept is self._held or isinstance(dictation.kept, SavedSound)
        self._events.finished(dictation.name, reason, dictation.text, dictation.wishes.owner, asked_for=again)
        self._events.changed("State", "Session", "Mode", "LastText")
        self._dispose(dictation, reason)
        self.keep_warm()
        self.rest()

    def _dispose(self, dictation: Dictation, reason: Reason) -> None:
        """Keep or delete a dictation's sound."""
        sound, policy = dictation.kept, self.config.keep_audio
        if reason is Reason.ERROR and not (dictation.text and dictation.heard_everything) and policy != "never":
            sound.keep(delivered=False)
            self._held = sound if sound.in_memory else self._held
            return
        if policy == "last" and reason is not Reason.CANCELLED:
            sound.keep(delivered=True)
        else:
            sound.delete()
        if sound is self._held:
            self._held = None


_OPTIONS: Final = frozenset(
    [
        "mode",
        "language",
        "languages",
        "model",
        "profile",
        "microphone",
        "max_seconds",
        "silence_seconds",
        "insert",
        "hotwords",
        "partials",
    ]
)


def _loading(config: Config) -> Loading:
    return Loading(config.model, config.backend, config.precision, config.threads)
