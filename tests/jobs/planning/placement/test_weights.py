"""Sizes as weights: read strictly from a file, read from the table, and filled in if unknown."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.arrow_rows import rows_of
from jobs.core.errors import RefusedError, SurveyorError
from jobs.planning.placement.weights import UNKNOWN_SIZE, digest, fill_unknown, read_size_file
from planner.placement.types import PlacementPartitions

CSV = "topic,partition,bytes\norders,0,1024\norders,1,0\n"
JSON = (
    '{"version":1,"partitions":[{"topic":"orders","partition":0,"bytes":1024},'
    '{"topic":"orders","partition":1,"bytes":0}]}'
)
ROWS = [{"topic": "orders", "partition": n, "bytes": size} for n, size in enumerate((1024, 0))]


@pytest.mark.parametrize("text", [CSV, JSON])
def test_files_that_are_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sizes"
    path.write_text(text)
    assert read_size_file(path).to_pylist() == ROWS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begins with ''; expected topic,partition,bytes"),
        ("orders,0,1\n", "begins with 'orders,0,1'; expected topic,partition,bytes"),
        ("topic,partition,bytes\n", "has no sizes"),
        ('{"partitions":[]}', "has no sizes"),
        (CSV + "orders,2\n", "line 4: 'orders,2'; expected topic,partition,bytes, as in orders,0,1024"),
        (CSV + ",2,1\n", "line 4: ',2,1'"),
        (CSV + "orders,2,-1\n", "line 4: bytes '-1'; expected a whole number from 0 to 1152921504606846976"),
        (CSV + "orders,2,1 KiB\n", "line 4: bytes '1 KiB'"),
        (CSV + "orders,2,\u0664\n", "line 4: bytes '\u0664'"),
        (CSV + f"orders,2,{2**60 + 1}\n", "line 4: bytes"),
        (CSV + f"orders,2,{'9' * 9999}\n", "line 4: bytes"),
        (CSV + f"orders,{2**31},1\n", "line 4: partition '2147483648'"),
        (CSV + "orders,0,7\n", "names orders-0 twice"),
        (CSV + '"orders,2,1\n', "line 4: a quote is not closed"),
        (CSV + '"orders",2,1\n"a"b,2,1\n', "is neither CSV nor JSON"),
        (JSON.replace("1024", "-1"), "Expected `int` >= 0 - at `$.partitions[0].bytes`"),
        (JSON.replace("1024", str(2**61)), "Expected `int` <= 1152921504606846976"),
        (JSON.replace(',"bytes":0', ""), "missing required field `bytes`"),
        (JSON.replace('"partition":1', '"partition":0'), "names orders-0 twice"),
        (JSON[:-1], "truncated"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "sizes"
    path.write_text(text)
    with pytest.raises(SurveyorError) as refused:
        read_size_file(path)
    assert message in str(refused.value)
    assert str(path) in str(refused.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"topic,partition,bytes\n\xe4,0,1\n")
    for name, message in (("latin", "it is neither UTF-8 nor UTF-16"), ("none", "cannot read"), (".", "cannot read")):
        with pytest.raises(SurveyorError, match=message):
            read_size_file(tmp_path / name)


def test_nothing_known_is_refused() -> None:
    with pytest.raises(RefusedError, match="run `surveyor sizes`, or give a file"):
        fill_unknown(np.array([UNKNOWN_SIZE, UNKNOWN_SIZE]), np.array([0, 1]))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 2**60)), min_size=1, max_size=12))
def test_unknown_sizes_are_means(rows: list[tuple[int, int]]) -> None:
    known = [size for _, size in rows if size != UNKNOWN_SIZE]
    if not known:
        return
    expected = []
    for topic, size in rows:
        of_topic = [other for of, other in rows if of == topic and other != UNKNOWN_SIZE] or known
        expected.append(size if size != UNKNOWN_SIZE else -(-sum(of_topic) // len(of_topic)))
    filled, assumed = fill_unknown(np.array([size for _, size in rows]), np.array([topic for topic, _ in rows]))
    assert (filled.tolist(), assumed) == (expected, len(rows) - len(known))


PARTITIONS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=12)


def _named(rows: list[tuple[str, int]]) -> pa.Table:
    schema = pa.schema([("topic", pa.string()), ("partition", pa.int32())])
    return pa.Table.from_pylist([{"topic": topic, "partition": number} for topic, number in rows], schema=schema)


@given(PARTITIONS, st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), min_size=1, max_size=12, unique=True))
def test_rows_are_found_by_name(looked_up: list[tuple[str, int]], names: list[tuple[str, int]]) -> None:
    expected = [names.index(name) if name in names else -1 for name in looked_up]
    assert rows_of(_named(looked_up), _named(names)).tolist() == expected


def _digest(sizes: list[tuple[int, int, int]]) -> str:
    """Return the digest of topic, partition and bytes."""
    topic, partition, weights = (np.array(column, dtype=np.int64) for column in zip(*sizes, strict=True))
    some = np.zeros((len(sizes), 1), dtype=np.int64)
    rows = PlacementPartitions(topic=topic, partition=partition, replicas=some, movable=np.ones(len(sizes), dtype=bool))
    return digest(weights, rows)


def test_the_digest_ignores_the_order_of_sizes() -> None:
    sizes = [(0, 0, 5), (0, 1, 6), (1, 0, 7)]
    assert _digest(sizes) == _digest(sizes[::-1])
    assert _digest(sizes) != _digest([(0, 0, 6), (0, 1, 5), (1, 0, 7)])
