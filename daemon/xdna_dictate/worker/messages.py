"""What the daemon and its worker say to each other: a JSON object, followed by samples where there are some.

4 bytes  length of the JSON, little endian
4 bytes  length of the samples in bytes
JSON, UTF-8
samples, float32, mono, 16 kHz
"""

import json
import struct
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

HEADER: Final = struct.Struct("<II")


@dataclass(frozen=True)
class Message:
    """One message: `kind`, its fields, its samples."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    samples: bytes = b""

    def encode(self) -> bytes:
        """The bytes on the wire."""
        text = json.dumps({"kind": self.kind, **self.fields}).encode()
        return HEADER.pack(len(text), len(self.samples)) + text + self.samples


def decode(text: bytes, samples: bytes) -> Message:
    """The message whose JSON is `text`."""
    fields = json.loads(text)
    return Message(fields.pop("kind"), fields, samples)


def read(stream: BinaryIO) -> Message | None:
    """The next message, waiting for it; None at the end of the stream."""
    head = stream.read(HEADER.size)
    if len(head) < HEADER.size:
        return None
    text_size, samples_size = HEADER.unpack(head)
    return decode(stream.read(text_size), stream.read(samples_size))
