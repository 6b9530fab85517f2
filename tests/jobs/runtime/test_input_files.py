"""Input files as people have them: in every encoding, with what Kafka's tools print around the JSON."""

import codecs
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.errors import UsageError
from jobs.core.properties import read_key_values
from jobs.core.text_decoding import decoded
from jobs.planning.placement.weights import read_size_file
from jobs.runtime.input_files import read_election, read_new_topics, read_reassignment, read_topics_to_move
from jobs.runtime.settings import load_conf
from schemas.replica_assignment import PartitionTarget

pytestmark = pytest.mark.unit

JSON: Final = '{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[3,1],"log_dirs":["any","any"]}]}'
NOW: Final = JSON.replace("[3,1]", "[1,2]")
GENERATED: Final = (
    f"Current partition replica assignment\n{NOW}\n\nProposed partition reassignment configuration\n{JSON}"
)
EXECUTED: Final = (
    f"Current partition replica assignment\n\n{JSON}\n\nSave this to use as the --reassignment-json-file option during "
    "rollback\nWarning: You must run --verify periodically, until the reassignment completes, to ensure the throttle "
    "is removed.\nThe inter-broker throttle limit was set to 50 B/s\n"
    "Successfully started partition reassignments for foo-0\n"
)
WRITTEN: Final[list[tuple[str, Callable[[str], bytes]]]] = [
    ("as it is", str.encode),
    ("byte order mark", lambda text: codecs.BOM_UTF8 + text.encode()),
    ("CRLF", lambda text: text.replace("\n", "\r\n").encode()),
    ("PowerShell", lambda text: codecs.BOM_UTF16_LE + text.replace("\n", "\r\n").encode("utf-16-le")),
    ("UTF-16, big-endian", lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be")),
    ("UTF-16 without a mark", lambda text: text.encode("utf-16-le")),
]
ZK: Final = "zk:2181"
SIZES: Final = '{"partitions":[{"topic":"foo","partition":0,"bytes":7}]}'
FILES: Final[list[tuple[str, Callable[[Path], Any], Any]]] = [
    (JSON, read_reassignment, [PartitionTarget(topic="foo", partition=0, replicas=[3, 1])]),
    (f"\n{JSON}\n\n", read_reassignment, [PartitionTarget(topic="foo", partition=0, replicas=[3, 1])]),
    (GENERATED, read_reassignment, [PartitionTarget(topic="foo", partition=0, replicas=[3, 1])]),
    (
        GENERATED.replace("configuration\n", "configuration \n\n"),
        read_reassignment,
        [PartitionTarget(topic="foo", partition=0, replicas=[3, 1])],
    ),
    (EXECUTED, read_reassignment, [PartitionTarget(topic="foo", partition=0, replicas=[3, 1])]),
    ('{"topics":[{"topic":"foo"}]}', read_topics_to_move, ["foo"]),
    ('{"partitions":[{"topic":"foo","partition":0}]}', read_election, [("foo", 0)]),
    ('[{"topic":"foo","partitions":3}]', lambda path: read_new_topics(path)[0].partitions, 3),
    (SIZES, lambda path: read_size_file(path)["bytes"].to_pylist(), [7]),
    ("topic,partition,bytes\nfoo,0,7\n", lambda path: read_size_file(path)["bytes"].to_pylist(), [7]),
    (
        f"[clusters.default]\nzookeeper = '{ZK}'\n",
        lambda path: load_conf(path).clusters["default"].zookeeper,
        "zk:2181",
    ),
    ("known=a\n", lambda path: read_key_values(path, f"--command-config {path}", ["known"]), {"known": "a"}),
]


@pytest.mark.parametrize(("how", "encode"), WRITTEN, ids=[how for how, _ in WRITTEN])
@pytest.mark.parametrize(("text", "read", "expected"), FILES)
def test_every_file_is_read_however_it_is_written(  # noqa: PLR0913, PLR0917 - two tables
    tmp_path: Path, text: str, read: Callable[[Path], Any], expected: object, how: str, encode: Callable[[str], bytes]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(encode(text))
    assert read(path) == expected, how


WRONG: Final[list[tuple[Callable[[Path], Any], str, str]]] = [
    (read_reassignment, f"{JSON}\n\n$ date\n", "line 3: remove the text after the JSON: '$ date'"),
    (read_reassignment, f"$ cat plan\n{JSON}", "line 1: remove the text before the JSON: '$ cat plan'"),
    (read_reassignment, f"{GENERATED}\ndone", "line 6: remove the text after the JSON: 'done'"),
    (read_reassignment, f"{NOW}\n{JSON}", "line 2: a second JSON value begins: keep one of them"),
    (read_reassignment, GENERATED.partition("\n\n")[0], "holds the current assignment and no proposal"),
    (read_reassignment, JSON.replace('"version":1', '"version":2'), "not supported version: Invalid enum value 2"),
    (read_reassignment, JSON.replace('"version":1', '"version":"1"'), "not supported version"),
    (read_topics_to_move, '{"version":2,"topics":[{"topic":"foo"}]}', "leave it out or say 1"),
    (read_size_file, SIZES.replace("{", '{"version":2,', 1), "leave it out or say 1"),
    (read_topics_to_move, '{"topics":[{"topic":"foo"},{"topic":"foo"}]}', "names twice: foo"),
    (read_reassignment, JSON.replace('["any","any"]', '["any"]'), "has 2 replicas and 1 log dir for foo-0"),
    (read_election, '{"partitions":[{"topic":"foo","partition":0}]} ;', "remove the text after the JSON: ';'"),
    (read_election, "nothing", "expected"),
]


@pytest.mark.parametrize(("read", "text", "message"), WRONG)
def test_file_errors_say_what_to_remove(tmp_path: Path, read: Callable[[Path], Any], text: str, message: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(UsageError) as raised:
        read(path)
    assert message in str(raised.value)


@pytest.mark.parametrize("without", ['"version":1,', ',"log_dirs":["any","any"]'])
def test_what_kafka_does_without_may_be_missing(tmp_path: Path, without: str) -> None:
    path = tmp_path / "file"
    path.write_text(JSON.replace(without, ""))
    assert read_reassignment(path)[0].replicas == [3, 1]


def test_what_is_no_text_is_said(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xff\xfa\x80")
    with pytest.raises(UsageError, match="it is neither UTF-8 nor UTF-16; save it as UTF-8"):
        read_reassignment(path)


@given(st.text(st.characters(exclude_characters="\0\r\ufeff", codec="utf-8")))
def test_any_text_is_the_same_in_every_encoding(text: str) -> None:
    """A file begins with a character of ASCII: without a mark, that identifies UTF-16."""
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        assert decoded(f"a{text}".encode(encoding)) == f"a{text}"
