"""TensorBoard's event file, written by hand: TFRecord frames around a few protobuf fields, so no package is needed.

A record is its length, a checksum of the length, the bytes, and a checksum of the bytes. The messages are Event,
Summary and SessionLog of TensorFlow's event.proto and summary.proto, of which only the fields below are written.
"""

import errno
import os
import struct
import time
from pathlib import Path

from qkv.base.files import write_error

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # protobuf's wire types
START = 1  # SessionLog: readers forget older events from this step on


def _checksums() -> list[int]:
    """CRC-32C (Castagnoli) of each byte."""
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ (0x82F63B78 if value & 1 else 0) for value in table]
    return table


TABLE = _checksums()


def masked_crc(data: bytes) -> int:
    """The checksum that TFRecord asks for: CRC-32C, rotated and shifted."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, kind: int, payload: bytes) -> bytes:
    size = _varint(len(payload)) if kind == BYTES else b""
    return _varint(number << 3 | kind) + size + payload


def _event(step: int, *fields: bytes) -> bytes:
    when = _field(1, FIXED64, struct.pack("<d", time.time()))
    return when + _field(2, VARINT, _varint(step)) + b"".join(fields)


def _scalar(tag: str, value: float) -> bytes:
    named = _field(1, BYTES, tag.encode()) + _field(2, FIXED32, struct.pack("<f", value))
    return _field(1, BYTES, named)


def record(data: bytes) -> bytes:
    """The bytes in TFRecord's frame."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def append(path: Path, data: bytes) -> None:
    """Add bytes to the end of a file, for readers to see at once."""
    try:
        with path.open("ab", buffering=0) as file:
            if file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise write_error(path, error) from error


class Events:
    """One event file of one process; what was written can be read at once."""

    def __init__(self, folder: Path) -> None:
        # Readers take the files in the order of their names, so the name starts with the time.
        self.path = folder / f"events.out.tfevents.{time.time_ns()}.{os.getpid()}"
        append(self.path, record(_event(0, _field(3, BYTES, b"brain.Event:2"))))

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Write one value for each name."""
        summary = b"".join(_scalar(tag, value) for tag, value in values.items())
        append(self.path, record(_event(step, _field(5, BYTES, summary))))

    def restart(self, step: int) -> None:
        """Let readers forget what earlier files say of this step and later ones."""
        append(self.path, record(_event(step, _field(7, BYTES, _field(1, VARINT, _varint(START))))))
