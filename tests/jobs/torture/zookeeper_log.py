"""The transactions in the logs of a ZooKeeper ensemble, each once, in the order in which they were decided.

The log contains every write, even of data that existed only briefly, and the session of each transaction. The format is
that of `FileTxnLog` and of the records in `zookeeper.jute`: a checksum, a length, a `TxnHeader` and the record of its
type. Servers preallocate, so a log ends with zeros; that of a killed server may end in the middle of a record.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CREATE, DELETE, SET, CHECK, MULTI, CREATE2, ERROR = 1, 2, 5, 13, 14, 15, -1
_MAGIC: Final = b"ZKLG"
_HEADER: Final = struct.Struct(">qiqqi")
"""Session, request number within it, zxid, milliseconds since 1970, type."""


@dataclass(frozen=True, slots=True)
class Op:
    """One operation; `version` is the znode's version after a SET, and the one that a CHECK compared."""

    kind: int
    path: str
    data: bytes = b""
    version: int = 0


@dataclass(frozen=True, slots=True)
class Transaction:
    """Operations that happened at once; `at` in seconds since 1970."""

    zxid: int
    session: int
    at: float
    ops: tuple[Op, ...]


def transactions(data_folders: Iterable[Path]) -> list[Transaction]:
    """Read the logs of all servers: one that was down lacks transactions that another has."""
    by_zxid: dict[int, Transaction] = {}
    for folder in data_folders:
        for log in sorted((folder / "version-2").glob("log.*")):
            by_zxid |= {transaction.zxid: transaction for transaction in _of_log(log.read_bytes())}
    return [by_zxid[zxid] for zxid in sorted(by_zxid)]


def _of_log(log: bytes) -> Iterator[Transaction]:
    if log[:4] != _MAGIC:
        return
    at = 16
    while at + 12 <= len(log):
        (length,) = struct.unpack_from(">i", log, at + 8)
        entry = log[at + 12 : at + 12 + length]
        if length < _HEADER.size or len(entry) < length:
            return
        session, _, zxid, milliseconds, kind = _HEADER.unpack_from(entry)
        ops = tuple(_ops(kind, entry[_HEADER.size :]))
        if ops:
            yield Transaction(zxid, session, milliseconds / 1000, ops)
        at += 12 + length + 1


def _ops(kind: int, record: bytes) -> list[Op]:
    """The operations of a record.

    None for a refused multi, whose parts are errors, or for a record that writes no znode.
    """
    if kind == MULTI:
        return _of_multi(record)
    if kind not in {CREATE, CREATE2, DELETE, SET, CHECK}:
        return []
    path, rest = _buffer(record)
    name = path.decode()
    if kind in {CREATE, CREATE2}:
        return [Op(CREATE, name, _buffer(rest)[0])]
    if kind == SET:
        data, rest = _buffer(rest)
        return [Op(SET, name, data, *struct.unpack_from(">i", rest))]
    if kind == CHECK:  # what is logged is one more than what was found
        return [Op(CHECK, name, b"", struct.unpack_from(">i", rest)[0] - 1)]
    return [Op(DELETE, name)]


def _of_multi(record: bytes) -> list[Op]:
    (count,), rest = struct.unpack_from(">i", record), record[4:]
    ops: list[Op] = []
    for _ in range(count):
        (kind,) = struct.unpack_from(">i", rest)
        part, rest = _buffer(rest[4:])
        if kind == ERROR:
            return []
        ops += _ops(kind, part)
    return ops


def _buffer(record: bytes) -> tuple[bytes, bytes]:
    """Split off a length and so many bytes, none if it is negative; return the bytes and the rest."""
    (length,) = struct.unpack_from(">i", record)
    end = 4 + max(0, length)
    return record[4:end], record[end:]
