"""Check the file FILE-wal of SQLite, which has the latest changes of a journal."""

import struct
from pathlib import Path

from exaul.engine.checks import BadInput


class UnreadableJournal(BadInput):
    """A file whose content cannot be used, although it is a journal."""


def is_in_wal_mode(path: Path) -> bool:
    """Return whether SQLite keeps the newest pages of a file beside it ("Database Header" of its documentation).

    Nobody may have the file open in this process: to close any handle of it releases SQLite's locks.
    """
    with path.open("rb") as handle:
        header = handle.read(19)
    return header.startswith(b"SQLite") and header[-1:] == b"\x02"


def check_wal(path: Path) -> None:
    """Raise UnreadableJournal if a file FILE-wal of SQLite is damaged before its last commit.

    SQLite itself takes the frames from the first damaged one on for those of an earlier use, and drops them.
    They are told apart by their salts: a frame with those of the header was written since the file began anew.
    Damage to the very last frame looks like a power failure, and is allowed.

    Source: "WAL File Format" of SQLite's documentation.
    """
    error = UnreadableJournal(f"{path}: is damaged; entries that were confirmed would be lost")
    with path.open("rb") as file:
        header = file.read(32)
        magic, _, size, *_ = struct.unpack(">8I", header.ljust(32, b"\0"))
        order = {0x377F0682: "<", 0x377F0683: ">"}.get(magic)  # of the words of the checksums
        if order is None or _checksum(order, header[:24], (0, 0)) != struct.unpack(">2I", header[24:]):
            raise error
        checksum, is_broken = struct.unpack(">2I", header[24:]), False
        while len(frame := file.read(24 + size)) == 24 + size:
            is_current = frame[8:16] == header[16:24]
            if is_current and is_broken:
                raise error
            if not is_broken:
                checksum = _checksum(order, frame[24:], _checksum(order, frame[:8], checksum))
                is_broken = not is_current or checksum != struct.unpack(">2I", frame[16:24])


def _checksum(order: str, content: bytes, previous: tuple[int, ...]) -> tuple[int, ...]:
    """Return SQLite's checksum of the words of a content, which continues the ``previous`` checksum."""
    first, second = previous
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for x, y in zip(words[::2], words[1::2], strict=True):
        first = (first + x + second) & 0xFFFFFFFF
        second = (second + y + first) & 0xFFFFFFFF
    return first, second
