"""Requests and responses of Kafka's protocol as bytes: headers, and bodies by kio.

Corresponds to `RequestHeader.parse` and `AbstractResponse`. ControlledShutdown v0 has a header without client id;
responses to ApiVersions have header version 0, whatever the version, so that every client can read them.
"""

import importlib
import io
import struct
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from functools import cache
from struct import pack, unpack_from
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i32Timedelta

from jobs.adapters.request_server.api_handler import ApiMessage

API_VERSIONS: Final = 18
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36

VERSIONS: Final[Mapping[int, tuple[int, int]]] = {API_VERSIONS: (0, 4)}
"""APIs that the server answers itself."""

SASL_VERSIONS: Final[Mapping[int, tuple[int, int]]] = {SASL_HANDSHAKE: (1, 1), SASL_AUTHENTICATE: (0, 2)}
"""APIs that it answers at a listener with SASL; the handshake of brokers since 1.0."""

UNSUPPORTED_VERSION: Final = 35
_NO_THROTTLE: Final = i32Timedelta.parse(timedelta(0))
_NULL: Final = -1
_CONTINUATION_BIT: Final = 0x80


class MalformedRequestError(Exception):
    """Bytes that are not a request, or a request that is not served."""


class Header(NamedTuple):
    """The header of a request, and where its body begins."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def read_header(data: bytes, versions: Mapping[int, tuple[int, int]]) -> Header:
    """Read the header of a request; raise MalformedRequestError unless its API and version are among `versions`.

    An unsupported version of ApiVersions is returned unchanged: it gets an answer. Its client id is not read.
    """
    try:
        api_key, version, correlation_id = unpack_from(">hhi", data)
        first, last = versions.get(api_key, (0, -1))
        if not first <= version <= last:
            if api_key == API_VERSIONS:
                return Header(api_key, version, correlation_id, None, len(data))
            raise MalformedRequestError(f"API {api_key} version {version} is not served")
        schema = _schema(api_key, version, EntityType.request).__header_schema__
        if schema.__version__ == 0:
            return Header(api_key, version, correlation_id, None, 8)
        client_id, at = _nullable_text(data, 8)
        if schema.__flexible__:
            at = _skip_tags(data, at)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise MalformedRequestError(f"its header is malformed: {error}") from None
    return Header(api_key, version, correlation_id, client_id, at)


def read_relayed_header(data: bytes) -> Header:
    """Read as much of the header as every request has; another server reads the rest."""
    if len(data) < struct.calcsize(">hhi"):
        raise MalformedRequestError(f"a request of {len(data)} bytes")
    api_key, version, correlation_id = unpack_from(">hhi", data)
    return Header(api_key, version, correlation_id, None, len(data))


def merged_api_versions(
    data: bytes, header: Header, served: Mapping[int, tuple[int, int]], relayed: Mapping[int, tuple[int, int]]
) -> ApiMessage:
    """Read a broker's response to ApiVersions, and put the versions that are served here in place of the broker's.

    `relayed`: APIs whose requests are read here and may be relayed, so both sides must know the version.
    """
    schema = _schema(API_VERSIONS, header.version, EntityType.response)
    response, _ = entity_reader(schema)(data, 4)
    versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    versions |= {
        key: (max(first, versions[key][0]), min(last, versions[key][1]))
        for key, (first, last) in relayed.items()
        if key in versions
    }
    own = api_versions_response(header.version, versions | dict(served))
    return replace(response, api_keys=own.api_keys)


def read_body(data: bytes, header: Header) -> ApiMessage:
    """Read the body of a request; raise MalformedRequestError if it cannot be read, or is followed by more."""
    reader = _reader(header.api_key, header.version)
    try:
        body, size = reader(data, header.body_at)
    except Exception as error:  # noqa: BLE001 - whatever kio raises on foreign bytes
        raise MalformedRequestError(f"the body of API {header.api_key} is malformed: {error}") from None
    if rest := len(data) - header.body_at - size:
        raise MalformedRequestError(f"{rest} bytes follow the body of API {header.api_key}")
    return body


def item_count(response: ApiMessage) -> int:
    """Return the number of topics and partitions in a response: the items of its lists, and of the lists in these."""
    lists = [*_lists(response)]
    return sum(map(len, lists)) + sum(len(inner) for items in lists for item in items for inner in _lists(item))


def _lists(entity: Any) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401 - of any type
    """Yield the lists of an entity; a list of numbers has none."""
    for name in _field_names(entity.__class__):
        value = getattr(entity, name)
        if isinstance(value, tuple):
            yield value


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def encode_response(header: Header, response: ApiMessage) -> bytes:
    """Return a response with its length and header."""
    buffer = io.BytesIO()
    entity_writer(type(response))(buffer, response)
    flexible = response.__header_schema__.__version__ > 0
    body = pack(">i", header.correlation_id) + (b"\0" if flexible else b"") + buffer.getvalue()
    return pack(">i", len(body)) + body


def api_versions_response(version: int, versions: Mapping[int, tuple[int, int]], error: int = 0) -> ApiMessage:
    """Return the versions that are served; an unsupported version of the request is answered as version 0."""
    keys = tuple(
        response_entity(API_VERSIONS, version, "ApiVersion", api_key=key, min_version=first, max_version=last)
        for key, (first, last) in sorted(versions.items())
    )
    return response_entity(API_VERSIONS, version, "ApiVersionsResponse", error_code=ErrorCode(error), api_keys=keys)


def response_entity(api_key: int, version: int, name: str, /, **values: Any) -> ApiMessage:  # noqa: ANN401 - of any type
    """Make an entity of a response, not throttled; values that this version does not have are left out."""
    kind, known = _response_kind(api_key, version, name)
    values.setdefault("throttle_time", _NO_THROTTLE)
    return kind(**{key: value for key, value in values.items() if key in known})


@cache
def _response_kind(api_key: int, version: int, name: str) -> tuple[type[Any], frozenset[str]]:
    """Return a class of a response, and the names of its fields."""
    module = importlib.import_module(f"kio.schema.{api_key_map[api_key]}.v{version}.response")
    kind = getattr(module, name)
    return kind, frozenset(field.name for field in fields(kind))


@cache
def _schema(api_key: int, version: int, kind: EntityType) -> type[Any]:
    module, _, name = schema_name_map[api_key_map[api_key]][version][kind].partition(":")  # type: ignore[index]
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


@cache
def _reader(api_key: int, version: int) -> Any:  # noqa: ANN401 - a function of kio
    return entity_reader(_schema(api_key, version, EntityType.request))


def _nullable_text(data: bytes, at: int) -> tuple[str | None, int]:
    (length,) = unpack_from(">h", data, at)
    start, end = at + 2, at + 2 + max(length, 0)
    if length < _NULL or end > len(data):
        raise MalformedRequestError(f"its client id has {length} bytes")
    return (None if length == _NULL else data[start:end].decode()), end


def _skip_tags(data: bytes, at: int) -> int:
    count, at = _varint(data, at)
    for _ in range(count):
        _, at = _varint(data, at)
        size, at = _varint(data, at)
        at += size
    if at > len(data):
        raise MalformedRequestError("its tagged fields are longer than the request")
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        byte = data[at]
        at += 1
        value |= (byte & ~_CONTINUATION_BIT) << shift
        if not byte & _CONTINUATION_BIT:
            return value, at
    raise MalformedRequestError("a length in its header has more than five bytes")
