"""Loads of brokers by their partitions, against sums in plain Python."""

from collections import defaultdict
from typing import Final

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from planner.load.broker_sums import loads_of_brokers

SCHEMA: Final = pa.schema(
    [
        ("leader", pa.int32()),
        ("replicas", pa.list_(pa.int32())),
        ("bytes_in", pa.float64()),
        ("bytes_out", pa.float64()),
        ("size_bytes", pa.int64()),
    ]
)

ROWS: Final = st.lists(
    st.tuples(
        st.sampled_from([None, -1, 1, 2, 3]),
        st.none() | st.lists(st.integers(1, 4), unique=True, max_size=4),
        st.none() | st.integers(0, 100),
        st.none() | st.integers(0, 100),
        st.integers(0, 1000),
    ),
    max_size=8,
)

NAMES: Final = ("leaders", "replicas", "bytes_in", "replication_in", "bytes_out", "replication_out", "size_bytes")


WRITTEN: Final = ("bytes_in", "replication_in", "replication_out")


@given(ROWS)
def test_sums_in_plain_python(rows: list[tuple[int | None, list[int] | None, int | None, int | None, int]]) -> None:
    """A rate that no row has is unknown."""
    summed: dict[int, dict[str, float]] = defaultdict(lambda: dict.fromkeys(NAMES, 0))
    for leader, replicas, bytes_in, bytes_out, size in rows:
        for broker in replicas or ():
            sums, written = summed[broker], (bytes_in or 0) * (leader in (replicas or ()))
            sums["replicas"] += 1
            sums["size_bytes"] += size
            if broker == leader:
                sums["leaders"] += 1
                sums["bytes_in"] += written
                sums["bytes_out"] += bytes_out or 0
                sums["replication_out"] += written * (len(replicas or ()) - 1)
            else:
                sums["replication_in"] += written
    held = [row for row in rows if row[1] is not None]
    unknown = [name for name in WRITTEN if all(row[2] is None for row in held)]
    unknown += [name for name in ("bytes_out",) if all(row[3] is None for row in held)]
    expected = {broker: sums | dict.fromkeys(unknown) for broker, sums in summed.items()}
    table = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)

    found = {load.broker_id: {name: getattr(load, name) for name in NAMES} for load in loads_of_brokers(table)}
    assert found == expected
    assert list(found) == sorted(found)


def test_sizes_that_nothing_states_are_not_known() -> None:
    row = {"leader": 1, "replicas": [1], "bytes_in": 5.0, "bytes_out": None, "size_bytes": None}
    (load,) = loads_of_brokers(pa.Table.from_pylist([row], SCHEMA))
    assert (load.size_bytes, load.bytes_in, load.bytes_out) == (None, 5.0, None)
