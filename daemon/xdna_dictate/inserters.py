"""Programs that put text where the cursor is: they register over D-Bus, get text, and say whether it arrived."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from xdna_dictate.errors import InsertFailed, SecureField

ANSWER_SECONDS: Final = 5.0
_SECURE: Final = "secure-field"

Send = Callable[[str, int, str, str], None]
"""(destination, id, text, preedit): send the Insert signal."""


@dataclass(frozen=True)
class Inserter:
    """A registered program."""

    owner: str
    kind: str
    abilities: tuple[str, ...]


class Inserters:
    """Who can insert, newest last; one text at a time, in order."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._registered: list[Inserter] = []
        self._lock = asyncio.Lock()
        self._answers: dict[int, asyncio.Future[tuple[bool, str]]] = {}
        self._count = 0

    def register(self, owner: str, kind: str, abilities: Sequence[str]) -> None:
        """`owner` offers to insert."""
        self.forget(owner)
        self._registered.append(Inserter(owner, kind, tuple(abilities)))

    def forget(self, owner: str) -> None:
        """`owner` has left the bus."""
        self._registered = [inserter for inserter in self._registered if inserter.owner != owner]

    def done(self, owner: str, number: int, reason: str, *, ok: bool) -> None:
        """An inserter's answer."""
        answer = self._answers.get(number)
        if answer and not answer.done() and any(inserter.owner == owner for inserter in self._registered):
            answer.set_result((ok, reason))

    def choose(self, wanted: str) -> Inserter | None:
        """The inserter of kind `wanted`, for "auto" the newest."""
        fitting = [inserter for inserter in self._registered if wanted in ("auto", inserter.kind)]
        return fitting[-1] if fitting else None

    async def insert(self, text: str, wanted: str) -> str:
        """Insert `text`; returns what did it. Raises InsertFailed or SecureField: the text is then nowhere."""
        async with self._lock:
            inserter = self.choose(wanted)
            if inserter is None:
                raise InsertFailed("no program that can insert text has registered; see xdna-dictate doctor")
            self._count += 1
            number = self._count
            answer = self._answers[number] = asyncio.get_running_loop().create_future()
            try:
                self._send(inserter.owner, number, text, "")
                async with asyncio.timeout(ANSWER_SECONDS):
                    ok, reason = await answer
            except TimeoutError as error:
                raise InsertFailed(f"{inserter.kind} did not say that the text arrived") from error
            finally:
                del self._answers[number]
        if ok:
            return inserter.kind
        if reason == _SECURE:
            raise SecureField("the cursor is in a password field; nothing was inserted")
        raise InsertFailed(f"{inserter.kind}: {reason}")

    def preview(self, text: str, wanted: str) -> None:
        """Show unfinished text at the cursor, where the inserter can."""
        inserter = self.choose(wanted)
        if inserter and "preedit" in inserter.abilities:
            self._send(inserter.owner, 0, "", text)
