"""Requests and responses with an entry for each partition, as numpy arrays.

kafka-python makes an object of each entry, which takes microseconds, and a cluster has millions of them. In the
flexible versions of ListOffsets, OffsetFetch and DescribeLogDirs there is a list of topics, each with a name and with
entries of one width, which is encoded and decoded here topic by topic. kafka-python sends the requests, and decodes
what has another form: older versions, and entries with tagged fields.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from kafka.protocol.api_header import RequestHeader

Array = npt.NDArray[Any]

Fields = Sequence[tuple[str, str]]
"""Names, as in kafka-python, and numpy types of the fields of an entry."""

_TAGS: Final = "tags"
"""The last field of an entry, which counts its tagged fields; one byte, as there are none."""

_MORE: Final = 0x80
"""The bit of a varint's byte that another byte follows; the others are digits."""


def as_native(values: Array) -> Array:
    """Return numbers in the byte order of this machine, as Arrow takes them."""
    return values.astype(values.dtype.newbyteorder("="))


class OtherFormError(ValueError):
    """A response has an entry of another width, for example with tagged fields."""


class TopicEntries(NamedTuple):
    """Entries of partitions by topic: the topics' names, the number of entries of each, and all entries."""

    names: Sequence[bytes]
    counts: Array
    entries: Array
    """A structured array."""

    @property
    def topic_of_entry(self) -> Array:
        """The position in `names` of each entry's topic."""
        return np.repeat(np.arange(len(self.names)), self.counts)

    @classmethod
    def of_objects(cls, topics: Sequence[Any], fields: Fields) -> "TopicEntries":
        """Convert topics that kafka-python decoded."""
        rows = [tuple(getattr(row, name) for name, _ in fields) for topic in topics for row in topic.partitions]
        counts = np.array([len(topic.partitions) for topic in topics], np.int64)
        return cls([topic.name.encode() for topic in topics], counts, np.array(rows, np.dtype([*fields])))

    @property
    def objects(self) -> list[tuple[str, list[tuple[Any, ...]]]]:
        """The topics as kafka-python takes them."""
        rows = self.entries.tolist()
        ends = np.cumsum(self.counts).tolist()
        return [
            (name.decode(), rows[end - count : end])
            for name, count, end in zip(self.names, self.counts.tolist(), ends, strict=True)
        ]


class TopicLayout:
    """The form of an encoded list of topics in flexible versions: where entries are, and the bytes between them."""

    def __init__(self, names: Sequence[bytes], counts: Array) -> None:
        between = [_length(len(names))]
        for name, count in zip(names, counts.tolist(), strict=True):
            between[-1] += _length(len(name)) + name + _length(count)
            between.append(b"\0")  # the topic has no tagged fields
        self._between = np.frombuffer(b"".join(between), np.uint8)
        self._sizes = np.empty(2 * len(between) - 1, np.int64)
        self._sizes[::2] = np.fromiter(map(len, between), np.int64, len(between))
        self._counts = counts

    def _is_entry(self, kind: np.dtype[Any]) -> Array:
        """Mark the bytes of entries."""
        self._sizes[1::2] = self._counts * kind.itemsize
        return np.repeat(np.arange(len(self._sizes)) % 2 == 1, self._sizes)

    def encode(self, entries: Array, fields: Fields) -> bytes:
        """Encode the list with these entries, in the order of the topics."""
        filled = np.zeros(len(entries), _entry_type(fields))
        for name, _ in fields:
            filled[name] = entries[name]
        is_entry = self._is_entry(filled.dtype)
        data = np.empty(len(is_entry), np.uint8)
        data[~is_entry] = self._between
        data[is_entry] = filled.view(np.uint8)
        return data.tobytes()

    def decode(self, data: bytes, at: int, fields: Fields) -> Array | None:
        """Decode the entries of a list at an offset; return None if it has another form."""
        kind = _entry_type(fields)
        is_entry = self._is_entry(kind)
        part = np.frombuffer(data, np.uint8)[at : at + len(is_entry)]
        if len(part) < len(is_entry) or not np.array_equal(part[~is_entry], self._between):
            return None
        entries = part[is_entry].view(kind)
        return None if entries[_TAGS].any() else entries


def _entry_type(fields: Fields) -> np.dtype[Any]:
    return np.dtype([*fields, (_TAGS, "u1")])


@cache
def _length(number: int) -> bytes:
    """Encode the length of a list or string as an unsigned varint of one more, because 0 stands for null.

    >>> [_length(number).hex() for number in (0, 126, 127, 299)]
    ['01', '7f', '8001', 'ac02']
    """
    rest = number + 1
    encoded = bytearray()
    while rest >= _MORE:
        encoded.append(rest % _MORE + _MORE)
        rest //= _MORE
    encoded.append(rest)
    return bytes(encoded)


class ResponseReader:
    """Reads a response of a flexible version, from its first field on; raises IndexError where it ends too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, size: int) -> int:
        """Read a number of so many bytes."""
        start, self._at = self._at, self._at + size
        return int.from_bytes(self._data[start : self._at], "big", signed=True)

    def length(self) -> int:
        """Read the length of a list or string, -1 for null."""
        number, self._at = _uvarint(self._data, self._at)
        return number - 1

    def text(self) -> bytes:
        size = self.length()
        start, self._at = self._at, self._at + size
        return self._data[start : self._at]

    def end_structure(self) -> None:
        """Read the number of tagged fields; raise OtherFormError if there are any."""
        if self.number(1):
            raise OtherFormError

    def topics(self, fields: Fields) -> TopicEntries:
        """Read a list of topics with entries of these fields; raise OtherFormError if an entry has another width.

        Each entry ends with the number of its tagged fields. If all of these are 0, each entry has the width that the
        next one was found by.
        """
        try:
            topics = self._topics(_entry_type(fields))
        except (IndexError, ValueError):  # lengths were read where there are none
            raise OtherFormError from None
        if topics.entries[_TAGS].any():
            raise OtherFormError
        return topics

    def _topics(self, kind: np.dtype[Any]) -> TopicEntries:
        names, counts, parts = list[bytes](), list[int](), list[bytes]()
        width, more, topic_count = kind.itemsize, _MORE, self.length()
        data, at = self._data, self._at
        for _ in range(topic_count):  # a hundred thousand times: most lengths take one byte
            size, at = data[at], at + 1
            if size >= more:
                size, at = _uvarint(data, at - 1)
            end = at + size - 1
            names.append(data[at:end])
            count, at = data[end], end + 1
            if count >= more:
                count, at = _uvarint(data, end)
            end = at + (count - 1) * width
            counts.append(count - 1)
            parts.append(data[at:end])
            if data[end]:
                raise OtherFormError
            at = end + 1
        self._at = at
        return TopicEntries(names, np.array(counts, np.int64), np.frombuffer(b"".join(parts), kind))


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Decode an unsigned varint; return it with the offset behind it."""
    number, unit = 0, 1
    while True:
        byte = data[at]
        at += 1
        number += byte % _MORE * unit
        if byte < _MORE:
            return number, at
        unit *= _MORE


class UndecodedResponse(NamedTuple):
    """A response as it was received, behind its header; kafka-python uses it like its own responses."""

    kind: Any
    """kafka-python's class of the response in this version."""
    data: bytes

    @property
    def version(self) -> int:
        return int(self.kind._class_version)  # noqa: SLF001 - kafka-python has no public name for it

    @property
    def is_flexible(self) -> bool:
        return bool(self.kind.flexible_version_q(self.version))

    @property
    def throttle_time_ms(self) -> int:
        """The first field of the responses in question; kafka-python waits so long before the next request."""
        return int.from_bytes(self.data[:4], "big")

    def decode(self) -> Any:  # noqa: ANN401 - kafka-python is untyped
        return self.kind.decode(self.data)


class _Undecoded(NamedTuple):
    """What kafka-python decodes a response by."""

    kind: Any

    def parse_header(self, buffer: Any) -> Any:  # noqa: ANN401 - as above
        return self.kind.parse_header(buffer)

    def decode(self, buffer: Any) -> UndecodedResponse:  # noqa: ANN401 - as above
        return UndecodedResponse(self.kind, buffer.read())


class UndecodedResponseHeader(RequestHeader, init=False):  # type: ignore[call-arg, misc] # kafka-python is untyped
    """The header of a request whose response stays undecoded; a request class names it as its `header_class`."""

    __slots__ = ()

    def get_response_class(self) -> _Undecoded:
        return _Undecoded(super().get_response_class())


def decode_topics(response: UndecodedResponse, fields: Fields) -> TopicEntries:
    """Decode a response that consists of its throttle time and a list of topics."""
    if response.is_flexible:
        reader = ResponseReader(response.data)
        reader.number(4)
        with suppress(OtherFormError):
            return reader.topics(fields)
    return TopicEntries.of_objects(response.decode().topics, fields)
