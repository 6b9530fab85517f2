"""Malformed znodes: wrong bytes, fields or endpoints, or all of them.

Choices from lists are made by `random`, many znodes from one seed. If Hypothesis drew each choice, they would cost ten
times the processor time, and such znodes need no shrinking.
"""

import json
from random import Random
from typing import Any, Final

from hypothesis import strategies as st

from tests.schemas.kafka_znodes import BY_KAFKA, TOPIC_ID

ZNODES: Final = [data for _, data, _ in BY_KAFKA.values()]
OBJECTS: Final = [data for data in ZNODES if data.lstrip().startswith(b"{")]

# Fragments that break parsers, and elements of JSON.
TOKENS: Final = [
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\x00", b"\n", b" ", b"\xff", b"\xc3", b"\xed\xa0\x80",
    b"\xef\xbb\xbf", b"-", b".", b"0", b"1", b"e9", b"null", b"true", b"NaN", b"1e400", b"2147483648", b"[1,1]",
    b'"1"', b"\\ud800", b"\\u0031", b"/", b"://", b"//", b"9" * 5000,
]  # fmt: skip


def damaged(chance: Random) -> bytes:
    """Return a znode of Kafka's with a few stretches removed, doubled or replaced."""
    data = chance.choice(ZNODES)
    for _ in range(chance.randint(1, 3)):
        start = chance.randint(0, len(data))
        end = chance.randint(start, min(start + 4, len(data)))
        kept = chance.choice([b"", data[start:end], data[start:end] * 2])
        put = chance.choice([chance.choice(TOKENS), chance.randbytes(chance.randint(0, 3))])
        data = data[:start] + kept + put + data[end:]
    return data


class Pairs(list[Any]):
    """A JSON object that may have a key twice."""


class Raw(str):
    """Raw JSON, valid or not."""

    __slots__ = ()


def as_json(value: object) -> str:
    if isinstance(value, Raw):
        return value
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{json.dumps(key)}:{as_json(inner)}" for key, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(as_json, value)) + "]"
    return json.dumps(value)


WRONG_VALUES: Final = [
    Raw(value)
    for value in (
        "null", "true", "false", "0", "1", "2", "3", "-1", "-2", "-0", "01", "+1", "1.0", "1.5", "1e0", "1e400", "NaN",
        "-Infinity", "2147483647", "2147483648", "9223372036854775808", "1" + "0" * 5000, "[]", "{}", "[1,1]", "[-1]",
        "[null]", "[[1]]", '{"0":[1]}', '{"0":[]}', '{"00":[1]}', '{"-1":[1]}', '{"-0":[1]}', '{"1e0":[1]}',
        '{"\\u0030":[1]}', '""', '"1"', '"x"', '"."', '"a/b"', '"\\ud800"', '"\\ud83d\\ude00"', '"\\u0000"', '"\x01"',
        '"é"', '"PLAINTEXT"', '"PLAINTEXT://h:1"', '["PLAINTEXT://h:1","PLAINTEXT://i:1"]', "[" * 100 + "]" * 100,
        f'"{TOPIC_ID}"', f'"{TOPIC_ID}\\n"', f'"{TOPIC_ID}=="',
    )
]  # fmt: skip


def containers(value: object) -> list[list[Any]]:
    """Return all arrays and objects within a document, including itself."""
    if isinstance(value, Pairs):
        return [value, *(inner for _, part in value for inner in containers(part))]
    if isinstance(value, list):
        return [value, *(inner for part in value for inner in containers(part))]
    return []


def misshapen(chance: Random) -> bytes:
    """Return a znode of Kafka's with a few fields removed, doubled or of another type."""
    document = json.loads(chance.choice(OBJECTS), object_pairs_hook=Pairs)
    for _ in range(chance.randint(1, 3)):
        spoil(chance, chance.choice(containers(document)))
    return as_json(document).encode() + chance.choice([b"", b"", b"", b" \n", b"x", b"}", b"\x00"])


def spoil(chance: Random, where: list[Any]) -> None:
    at = chance.randint(0, max(0, len(where) - 1))
    values: list[Any] = [value for _, value in where] if isinstance(where, Pairs) else where
    value = chance.choice([chance.choice(WRONG_VALUES), chance.choice(values or [0])])
    new = (where[at][0] if where else "0", value) if isinstance(where, Pairs) else value
    match chance.choice(["replace", "replace", "insert", "drop"]):
        case "replace":
            where[at : at + 1] = [new]
        case "insert":
            where.insert(chance.randint(0, len(where)), new)
        case _:
            del where[at : at + 1]


KEYS: Final = st.sampled_from(
    [
        "version", "host", "port", "endpoints", "listener_security_protocol_map", "rack", "partitions", "0", "-1", "x",
        "adding_replicas", "removing_replicas", "topic_id", "controller_epoch", "leader", "leader_epoch", "isr",
        "leader_recovery_state", "brokerid", "kraftControllerEpoch", "topic", "partition", "replicas", "broker",
        "event", "config", "id", "kraft_controller_id",
    ],
)  # fmt: skip
SCALARS: Final[st.SearchStrategy[Any]] = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 4), st.integers(), st.floats(), st.text(max_size=6)
)
VALUES: Final = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
ANY_JSON: Final = st.dictionaries(KEYS, VALUES, max_size=8) | VALUES

SEVEN: Final = "\N{ARABIC-INDIC DIGIT SEVEN}"
HOSTS: Final = ["h", "H0", "::1", ".", "_", "-", "%eth0", ":", "/", "[", "]", " ", "\n", "é", "\x00", SEVEN]
ENDPOINTS: Final = (
    ["PLAINTEXT", "SSL", "L", "unknown", "ssl", "", " ", "L:", "a/b"],
    ["://"] * 8 + [":/", "//", ":"],
    ["", "", "["],
    ["", "", "]"],
    [":"] * 8 + ["", "::"],
    ["1", "9092", "0", "00001", "65535", "65536", "99999", "100000", "", "-1", "1\n", "x", SEVEN],
)


def endpoint(chance: Random) -> str:
    """Return an endpoint of valid or invalid parts; its host may be missing, or have up to three parts."""
    listener, slashes, opened, closed, colon, port = map(chance.choice, ENDPOINTS)
    host = "".join(chance.choices(HOSTS, k=chance.randint(0, 3)))
    return f"{listener}{slashes}{opened}{host}{closed}{colon}{port}"
