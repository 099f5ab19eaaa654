"""A connection to a message bus: calls, signals, and an object served after its XML. The only importer of dbus-fast."""

import asyncio
import logging
import os
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree

from dbus_fast import BusType, DBusError, Message, MessageFlag, MessageType, NameFlag, RequestNameReply, Variant
from dbus_fast.aio import MessageBus
from dbus_fast.errors import InvalidAddressError
from dbus_fast.unpack import unpack_variants

from xdna_dictate.errors import BusError, Failed, bus_name

log = logging.getLogger(__name__)

NAME: Final = "io.github.xdna_dictate.Dictate1"
PATH: Final = "/" + NAME.replace(".", "/")
ERROR_PREFIX: Final = NAME.rpartition(".")[0] + ".Error."
STANDARD_ERRORS: Final = frozenset({"InvalidArgs", "FileNotFound", "AccessDenied", "Failed"})
DBUS: Final = "org.freedesktop.DBus"
PROPERTIES: Final = f"{DBUS}.Properties"
CALL_SECONDS: Final = 25.0
_CONNECT_SECONDS: Final = 10.0
_EMITS: Final = f"{DBUS}.Property.EmitsChangedSignal"
_STANDARD: Final = """
  <interface name="org.freedesktop.DBus.Introspectable">
    <method name="Introspect"><arg name="xml" type="s" direction="out"/></method>
  </interface>
  <interface name="org.freedesktop.DBus.Peer"><method name="Ping"/></interface>
  <interface name="org.freedesktop.DBus.Properties">
    <method name="Get">
      <arg name="interface" type="s" direction="in"/><arg name="name" type="s" direction="in"/>
      <arg name="value" type="v" direction="out"/>
    </method>
    <method name="GetAll">
      <arg name="interface" type="s" direction="in"/><arg name="values" type="a{sv}" direction="out"/>
    </method>
    <method name="Set">
      <arg name="interface" type="s" direction="in"/><arg name="name" type="s" direction="in"/>
      <arg name="value" type="v" direction="in"/>
    </method>
    <signal name="PropertiesChanged">
      <arg name="interface" type="s"/><arg name="changed" type="a{sv}"/><arg name="invalidated" type="as"/>
    </signal>
  </interface>
</node>
"""


class CallError(BusError):
    """A call was answered with an error; `name` is the last part of its name."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class _PatientSocket:
    """A socket whose full send buffer means "later": dbus-fast would take it for the end of the connection.

    See altdesktop/python-dbus-next issue 153, which dbus-fast inherited.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def send(self, data: bytes) -> int:
        try:
            return self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            return 0


@dataclass(frozen=True)
class _Property:
    signature: str
    access: str
    emits: str


class InterfaceDescription:
    """What the XML says of one interface: signatures of methods, signals and properties."""

    def __init__(self, element: ElementTree.Element) -> None:
        self.methods = {method.attrib["name"]: _signatures(method) for method in element.iter("method")}
        self.signals = {
            signal.attrib["name"]: "".join(arg.attrib["type"] for arg in signal.iter("arg")) for signal in element.iter("signal")
        }
        self.properties = {entry.attrib["name"]: _property(entry) for entry in element.iter("property")}


def _signatures(method: ElementTree.Element) -> tuple[str, str]:
    both = {
        way: "".join(arg.attrib["type"] for arg in method.iter("arg") if arg.attrib["direction"] == way) for way in ("in", "out")
    }
    return both["in"], both["out"]


def _property(entry: ElementTree.Element) -> _Property:
    notes = {note.attrib["name"]: note.attrib["value"] for note in entry.iter("annotation")}
    return _Property(entry.attrib["type"], entry.attrib["access"], notes.get(_EMITS, "true"))


def describe(xml: str) -> dict[str, InterfaceDescription]:
    """The interfaces in an introspection document."""
    return {element.attrib["name"]: InterfaceDescription(element) for element in ElementTree.fromstring(xml).iter("interface")}  # noqa: S314  our own file


def snake_case(member: str) -> str:
    """The Python name of a D-Bus member."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", member).lower()


class Bus:
    """One connection; made by `connect`."""

    def __init__(self, bus: MessageBus) -> None:
        self._bus = bus
        self._watchers: list[tuple[str, str, Callable[[str, list[Any]], None]]] = []
        bus.add_message_handler(self._on_signal)

    @classmethod
    async def connect(cls, *, system: bool = False) -> "Bus":
        """A connection to the session bus. Raises BusError with what to do."""
        kind, where = (BusType.SYSTEM, "system") if system else (BusType.SESSION, "session")
        if not system and os.environ.get("DBUS_SESSION_BUS_ADDRESS") == "":
            raise BusError(_NO_BUS.format("DBUS_SESSION_BUS_ADDRESS is empty"))
        try:
            bus = MessageBus(bus_type=kind, negotiate_unix_fd=True)
            await asyncio.wait_for(bus.connect(), _CONNECT_SECONDS)
        except (InvalidAddressError, OSError, TimeoutError, EOFError, DBusError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise BusError(_NO_BUS.format(reason) if not system else f"no {where} bus: {reason}") from error
        writer: Any = bus._writer
        writer.sock = _PatientSocket(writer.sock)
        return cls(bus)

    async def take_name(self, name: str) -> None:
        """Own `name`. Raises BusError if another process has it."""
        if await self._bus.request_name(name, NameFlag.DO_NOT_QUEUE) not in (
            RequestNameReply.PRIMARY_OWNER,
            RequestNameReply.ALREADY_OWNER,
        ):
            raise BusError(f"another instance is running: {name} is taken on this session bus")

    async def closed(self) -> None:
        """Wait for the end of the connection."""
        try:
            await self._bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
        except (EOFError, OSError):
            return

    def close(self) -> None:
        """End the connection."""
        self._bus.disconnect()

    async def call(
        self,
        destination: str,
        path: str,
        interface: str,
        member: str,
        signature: str = "",
        *body: Any,
        limit: float | None = CALL_SECONDS,
        descriptors: tuple[int, ...] = (),
    ) -> list[Any]:
        """Call a method; returns its results. Raises CallError, or BusError when no answer comes in time."""
        message = Message(
            destination, path, interface, member, signature=signature, body=_clean(list(body)), unix_fds=list(descriptors)
        )
        try:
            async with asyncio.timeout(limit):
                reply = await self._bus.call(message)
        except TimeoutError as error:
            raise BusError(f"{member}: no answer within {limit:g} s") from error
        except (OSError, EOFError) as error:
            raise BusError(f"{member}: the message bus has gone away") from error
        if reply is None:
            return []
        if reply.message_type is MessageType.ERROR:
            raise CallError(str(reply.error_name).rpartition(".")[2], str(reply.body[0]) if reply.body else str(reply.error_name))
        return list(unpack_variants(reply.body))

    def emit(
        self, path: str, interface: str, member: str, signature: str, body: list[Any], destination: str | None = None
    ) -> None:
        """Send a signal, to everybody or to one connection."""
        message = Message.new_signal(path, interface, member, signature, _clean(body))
        message.destination = destination
        self._bus.send(message)

    async def watch(self, rule: str, member: str, on_signal: Callable[[str, list[Any]], None]) -> None:
        """Call `on_signal` with sender and arguments of every signal `member` that the match `rule` lets through."""
        interface = re.search(r"interface='([^']+)'", rule)
        self._watchers.append((interface.group(1) if interface else "", member, on_signal))
        await self.call(DBUS, "/org/freedesktop/DBus", DBUS, "AddMatch", "s", f"type='signal',{rule}")

    def _on_signal(self, message: Message) -> bool:
        if message.message_type is MessageType.SIGNAL:
            for interface, member, on_signal in self._watchers:
                if message.member == member and message.interface == interface:
                    on_signal(message.sender or "", list(unpack_variants(message.body)))
        return False

    def serve(self, xml: str, objects: Mapping[str, Any], spawn: Callable[[Coroutine[Any, Any, None]], Any]) -> "ServedObject":
        """Answer calls at PATH after `xml`; `objects` has the Python object behind each interface."""
        served = ServedObject(self._bus, xml, objects, spawn)
        self._bus.add_message_handler(served.on_message)
        return served


_NO_BUS: Final = (
    "no session bus was found ({}); run this inside a desktop session, or start one with: dbus-run-session -- xdna-dictate daemon"
)


class ServedObject:
    """Translates between messages and Python objects.

    A method `StartWithOptions` is the coroutine `start_with_options(caller, options)`, a property `LastError` the attribute
    `last_error`, set through `set_last_error(value)`.
    """

    def __init__(
        self, bus: MessageBus, xml: str, objects: Mapping[str, Any], spawn: Callable[[Coroutine[Any, Any, None]], Any]
    ) -> None:
        self._bus, self._objects, self._spawn = bus, objects, spawn
        self.interfaces = describe(xml)
        self._xml = re.sub(r"<!--.*?-->\s*", "", xml, flags=re.DOTALL).rstrip().removesuffix("</node>") + _STANDARD.lstrip("\n")
        self._changed: dict[str, set[str]] = {}
        self._told: dict[tuple[str, str], Variant] = {}

    def signal(self, interface: str, member: str, *body: Any, destination: str | None = None) -> None:
        """Send a signal of the XML."""
        arguments = [_variants(value) if isinstance(value, dict) else value for value in _clean(body)]
        message = Message.new_signal(PATH, interface, member, self.interfaces[interface].signals[member], arguments)
        message.destination = destination
        self._bus.send(message)

    def changed(self, interface: str, *names: str) -> None:
        """Say, once the present event is dealt with, that properties changed."""
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._send_changes)
        self._changed.setdefault(interface, set()).update(names)

    def _send_changes(self) -> None:
        changes, self._changed = self._changed, {}
        for interface, names in changes.items():
            described = self.interfaces[interface].properties
            values = {name: self._value(interface, name) for name in sorted(names) if described[name].emits == "true"}
            values = {name: value for name, value in values.items() if self._told.get((interface, name)) != value}
            self._told |= {(interface, name): value for name, value in values.items()}
            invalidated = [name for name in sorted(names) if described[name].emits == "invalidates"]
            if values or invalidated:
                self._bus.send(
                    Message.new_signal(PATH, PROPERTIES, "PropertiesChanged", "sa{sv}as", [interface, values, invalidated])
                )

    def on_message(self, message: Message) -> Message | bool:
        """Deal with one message of the connection."""
        if message.destination not in (NAME, self._bus.unique_name) or not self._is_call(message):
            return False
        if message.path != PATH:
            _close_all(message)
            return self._ancestor(message)
        self._spawn(self._answer(message))
        return True

    def _is_call(self, message: Message) -> bool:
        """`dbus-send` without --print-reply sends a signal; one that is sent to us and named like a method is meant as a call."""
        if message.message_type is MessageType.SIGNAL:
            described = self.interfaces.get(message.interface or "")
            return described is not None and message.member in described.methods
        return message.message_type is MessageType.METHOD_CALL

    def _ancestor(self, message: Message) -> Message | bool:
        path = (message.path or "").rstrip("/")
        if message.member != "Introspect" or not PATH.startswith(f"{path}/"):
            return False
        child = PATH[len(path) + 1 :].partition("/")[0]
        return Message.new_method_return(message, "s", [f'<node><node name="{child}"/></node>'])

    async def _answer(self, message: Message) -> None:
        try:
            signature, body = await self._result(message)
            reply = Message.new_method_return(message, signature, _clean(body))
        except _Refused as refusal:
            reply = Message.new_error(message, refusal.name, str(refusal))
        except Exception as error:
            name = bus_name(error)
            if name == "Failed" and not isinstance(error, Failed):
                log.exception("%s failed", message.member)
                text = f"{message.member} failed; the service's log says more"
            else:
                text = str(error)
            prefix = f"{DBUS}.Error." if name in STANDARD_ERRORS else ERROR_PREFIX
            reply = Message.new_error(message, prefix + name, _clean(text))
        finally:
            _close_all(message)
        if message.message_type is MessageType.METHOD_CALL and not message.flags & MessageFlag.NO_REPLY_EXPECTED:
            self._bus.send(reply)

    async def _result(self, message: Message) -> tuple[str, list[Any]]:
        interface, member = message.interface, message.member or ""
        if interface == PROPERTIES or (interface is None and member in ("Get", "GetAll", "Set")):
            return await self._property(message)
        if member == "Introspect" and interface in (None, f"{DBUS}.Introspectable"):
            return "s", [self._xml]
        if member == "Ping" and interface in (None, f"{DBUS}.Peer"):
            return "", []
        if interface is None:
            interface = next((name for name, described in self.interfaces.items() if member in described.methods), "")
        if interface not in self.interfaces:
            raise _Refused("UnknownInterface", f"there is no interface {interface}")
        if member not in self.interfaces[interface].methods:
            raise _Refused("UnknownMethod", f"{interface} has no method {member}")
        expected, signature = self.interfaces[interface].methods[member]
        if message.signature != expected:
            raise _Refused("InvalidArgs", f"{member} takes ({expected}), not ({message.signature})")
        arguments = unpack_variants(message.body)
        descriptors = [
            message.unix_fds[value] if kind == "h" else value for kind, value in zip(expected, arguments, strict=False)
        ]
        call: Callable[..., Awaitable[Any]] = getattr(self._objects[interface], snake_case(member))
        result = await call(message.sender, *(descriptors if "h" in expected else arguments))
        return signature, [_variants(result) if "v" in signature else result] if signature else []

    async def _property(self, message: Message) -> tuple[str, list[Any]]:
        wanted = {"Get": "ss", "GetAll": "s", "Set": "ssv"}.get(message.member or "")
        if wanted is None or message.signature != wanted:
            raise _Refused("InvalidArgs", f"{message.member} can't be called with ({message.signature})")
        interface = message.body[0]
        if interface not in self.interfaces and interface != "":
            raise _Refused("UnknownInterface", f"there is no interface {interface}")
        if message.member == "GetAll":
            names = self.interfaces[interface].properties if interface else {}
            return "a{sv}", [{name: self._value(interface, name) for name in names}]
        name = message.body[1]
        interface = interface or next(iter(self.interfaces))
        described = self.interfaces[interface].properties.get(name)
        if described is None:
            raise _Refused("UnknownProperty", f"{interface} has no property {name}")
        if message.member == "Get":
            return "v", [self._value(interface, name)]
        if described.access != "readwrite":
            raise _Refused("PropertyReadOnly", f"{name} can only be read")
        value: Variant = message.body[2]
        if value.signature != described.signature:
            raise _Refused("InvalidArgs", f"{name} is of type {described.signature}, not {value.signature}")
        await getattr(self._objects[interface], f"set_{snake_case(name)}")(value.value)
        return "", []

    def _value(self, interface: str, name: str) -> Variant:
        value = getattr(self._objects[interface], snake_case(name))
        return Variant(self.interfaces[interface].properties[name].signature, _clean(value))


def _close_all(message: Message) -> None:
    """Close the descriptors that came with a message."""
    for descriptor in message.unix_fds:
        os.close(descriptor)


class _Refused(Exception):
    """A call that does not fit the interface; `name` is a standard error's."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = f"{DBUS}.Error.{name}"


def _clean(value: Any) -> Any:
    """`value` with its texts as D-Bus can carry them: lone surrogates become U+FFFD, NUL goes."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace").replace("\0", "")
    if isinstance(value, Variant):
        return Variant(value.signature, _clean(value.value))
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    return value


def _variants(value: Any) -> Any:
    """`value` with the values of its dictionaries in variants."""
    if isinstance(value, list):
        return [_variants(item) for item in value]
    return {key: variant(item) for key, item in value.items()}


def variant(value: Any) -> Variant:
    """`value` as a variant of the type that fits it."""
    kinds: dict[type, str] = {bool: "b", int: "u", float: "d", str: "s", list: "as", tuple: "as"}
    return Variant(kinds[type(value)], list(value) if isinstance(value, tuple) else value)
