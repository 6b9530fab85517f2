"""Requests and responses with an entry for each partition, as numpy arrays.

kafka-python makes an object of each entry, which takes microseconds, and a cluster has millions of them. In the
flexible versions of ListOffsets, OffsetFetch and DescribeLogDirs there is a list of topics, each with a name and with
entries of one width, which is encoded and decoded here topic by topic. kafka-python sends the requests, and decodes
what has another form: older versions, and entries with tagged fields.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
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

    names: pa.Array
    """As bytes."""
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
        names = pa.array([topic.name.encode() for topic in topics], pa.binary())
        return cls(names, counts, np.array(rows, np.dtype([*fields])))

    @property
    def objects(self) -> list[tuple[str, list[tuple[Any, ...]]]]:
        """The topics as kafka-python takes them."""
        rows = self.entries.tolist()
        ends = np.cumsum(self.counts).tolist()
        return [
            (name.decode(), rows[end - count : end])
            for name, count, end in zip(self.names.to_pylist(), self.counts.tolist(), ends, strict=True)
        ]


class TopicLayout:
    """The form of an encoded list of topics in flexible versions: where entries are, and the bytes between them."""

    def __init__(self, names: pa.Array, counts: Array) -> None:
        lengths = _lengths(pc.binary_length(names)), _lengths(pa.array(counts))
        heads = pc.binary_join_element_wise(_NO_TAGS, lengths[0], names, lengths[1], b"")
        begin, sizes = _length(len(names)), pc.binary_length(heads).to_numpy()
        joined = np.frombuffer(heads.buffers()[-1] or b"", np.uint8)[: sizes.sum()]
        # the first topic has the length of the list before it, and not the end of another topic
        self._between = np.concatenate([np.frombuffer(begin, np.uint8), joined[1:], joined[:1]])
        self._sizes = np.zeros(2 * len(names) + 1, np.int64)
        self._sizes[::2] = np.append(sizes, 1)
        self._sizes[0] += len(begin) - 1
        self._counts = counts
        self._marks: dict[int, Array] = {}

    def _is_entry(self, kind: np.dtype[Any]) -> Array:
        """Mark the bytes of entries."""
        if kind.itemsize not in self._marks:
            self._sizes[1::2] = self._counts * kind.itemsize
            self._marks[kind.itemsize] = np.repeat(np.arange(len(self._sizes)) % 2 == 1, self._sizes)
        return self._marks[kind.itemsize]

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


_NO_TAGS: Final = b"\0"
"""The end of a structure without tagged fields."""


def _lengths(numbers: pa.Array) -> pa.Array:
    """Encode numbers as `_length` does."""
    distinct = numbers.dictionary_encode()
    return pa.array(map(_length, distinct.dictionary.to_pylist()), pa.binary()).take(distinct.indices)


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
        starts = np.fromiter(self._starts(self.length(), kind.itemsize), np.int64)
        sizes, begins = _uvarints(self._data, starts)
        ends = begins + sizes - 1
        counts, at = _uvarints(self._data, ends)
        counts -= 1
        data = np.frombuffer(self._data, np.uint8)
        if data[at + counts * kind.itemsize].any():
            raise OtherFormError
        before = np.cumsum(counts) - counts
        at = np.repeat(at - before * kind.itemsize, counts)
        at += np.arange(len(at)) * kind.itemsize
        entry_at = np.ndarray(max(0, len(data) - kind.itemsize + 1), kind, self._data, strides=(1,))
        return TopicEntries(_texts(self._data, begins, ends), counts, entry_at[at])

    def _starts(self, count: int, width: int) -> Iterator[int]:
        """Yield where each topic begins, and go on behind the last one; most lengths take one byte."""
        data, at, more = self._data, self._at, _MORE
        sizes = [(length - 1) * width + 2 for length in range(more)]
        if count > len(data):
            raise IndexError
        for _ in range(count):  # a hundred thousand times
            yield at
            size = data[at]
            if size >= more:
                size, at = _uvarint(data, at)
                at -= 1
            at += size
            length = data[at]
            if length < more:
                at += sizes[length]
            else:
                length, at = _uvarint(data, at)
                at += (length - 1) * width + 1
        self._at = at


def _texts(data: bytes, begins: Array, ends: Array) -> pa.Array:
    """Return parts of `data`, copied at once; raise ValueError if they do not follow each other."""
    cuts = np.zeros(2 * len(begins) + 1, np.int32)
    cuts[1::2], cuts[2::2] = begins, ends
    if (np.diff(cuts) < 0).any():
        raise ValueError("a part begins before the end of another")
    buffers = [None, pa.py_buffer(cuts), pa.py_buffer(data)]
    parts = pa.Array.from_buffers(pa.binary(), len(cuts) - 1, buffers)
    return parts.take(pa.array(np.arange(1, len(cuts), 2)))


def _uvarints(data: bytes, at: Array) -> tuple[Array, Array]:
    """Decode the unsigned varints at some offsets; return them with the offsets behind them."""
    numbers, behind = np.frombuffer(data, np.uint8)[at].astype(np.int64), at + 1
    for row in np.flatnonzero(numbers >= _MORE).tolist():
        numbers[row], behind[row] = _uvarint(data, int(at[row]))
    return numbers, behind


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
        return UndecodedResponse(self.kind, bytes(memoryview(buffer)[buffer.tell() :]))  # read() copies it twice


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
