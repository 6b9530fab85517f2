"""The differences between two snapshots, as `surveyor show diff` shows them.

DuckDB joins the tables on their keys and compares them column by column; only differing rows become Python objects.
Only partitions with a row in the history between the two snapshots can differ, so only they are read. An empty
list equals null.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import values_of
from jobs.core.masking import mask
from jobs.repositories.snapshots import PARTITION, newest_rows, table_as_of
from schemas.rows import Row, Snapshot

CONTROLLER: Final = ("controller_id", "controller_epoch")
BROKER: Final = ("broker_epoch", "endpoints", "rack", "understood")
TOPIC: Final = ("topic_id", "deletion_requested", "understood", "config")
STATE: Final = (
    "replicas",
    "adding_replicas",
    "removing_replicas",
    "leader",
    "isr",
    "leader_epoch",
    "partition_state",
)

Pair = tuple[Row | None, Row | None]
"""A row before and after, None if absent."""


class Difference(NamedTuple):
    """One column of something that differs; the fields are the columns of `surveyor show diff`."""

    what: str
    """The kind of difference."""
    subject: str
    column: str
    before: Any
    after: Any


def differences(warehouse: Warehouse, before: Snapshot, after: Snapshot) -> list[Difference]:
    """Return the differences between two snapshots; partitions, the most numerous, come last."""
    both = before, after
    return [
        *_changed("controller changed", "controller", before.columns(), after.columns(), CONTROLLER),
        *_brokers(_pairs_of(warehouse, both, "brokers", ["broker_id"], BROKER)),
        *_topics(_pairs_of(warehouse, both, "topics", ["topic"], TOPIC)),
        *_quarantine(_pairs_of(warehouse, both, "quarantine", ["path", "reason"], [])),
        *_partitions(_partition_pairs(warehouse, before.snapshot_id, after.snapshot_id)),
    ]


def _brokers(pairs: Sequence[Pair]) -> Iterator[Difference]:
    for old, new in pairs:
        subject = f"broker {(old or new or {})['broker_id']}"
        if old is None or new is None:
            what = "broker joined" if old is None else "broker gone"
            yield _difference(what, subject, "broker_epoch", old, new)
            continue
        yield from _changed("broker bounced", subject, old, new, ["broker_epoch"])
        yield from _changed("broker changed", subject, _with_urls(old), _with_urls(new), BROKER[1:])


def _with_urls(broker: Row) -> Row:
    """Format endpoints as `LISTENER://host:port (security protocol)`."""
    endpoints = broker["endpoints"] or []
    return {**broker, "endpoints": ["{listener}://{host}:{port} ({security_protocol})".format(**e) for e in endpoints]}


def _topics(pairs: Sequence[Pair]) -> Iterator[Difference]:
    for old, new in pairs:
        topic = (old or new or {})["topic"]
        if old is None or new is None:
            yield _difference("topic created" if old is None else "topic vanished", topic, "topic_id", old, new)
            continue
        yield from _changed("topic changed", topic, old, new, TOPIC[:-1])
        old_config, new_config = old["config"] or {}, new["config"] or {}
        for config in _changed("topic config", topic, old_config, new_config, sorted({*old_config, *new_config})):
            before, after = (mask(value, config.column) for value in (config.before, config.after))
            yield config._replace(before=before, after=after)


def _quarantine(pairs: Sequence[Pair]) -> Iterator[Difference]:
    for old, new in pairs:
        what = "quarantined" if old is None else "no longer quarantined"
        yield _difference(what, (old or new or {})["path"], "reason", old, new)


def _partitions(pairs: Sequence[Pair]) -> Iterator[Difference]:
    for old, new in pairs:
        verb = "created" if old is None else "vanished" if new is None else "changed"
        subject = "{topic}-{partition}".format(**(old or new or {}))
        yield from _changed(f"partition {verb}", subject, old or {}, new or {}, STATE)


def _changed(what: str, subject: str, old: Row, new: Row, columns: Sequence[str]) -> Iterator[Difference]:
    for column in columns:
        difference = _difference(what, subject, column, old, new)
        if difference.before != difference.after:
            yield difference


def _difference(what: str, subject: str, column: str, old: Row | None, new: Row | None) -> Difference:
    before, after = (None if value == [] else value for value in ((old or {}).get(column), (new or {}).get(column)))
    return Difference(what, subject, column, before, after)


def _pairs_of(
    warehouse: Warehouse,
    both: tuple[Snapshot, Snapshot],
    table: str,
    key: Sequence[str],
    columns: Sequence[str],
) -> list[Pair]:
    old, new = (table_as_of(warehouse, snapshot, table) for snapshot in both)
    return pairs(old, new, key, columns)


def _partition_pairs(warehouse: Warehouse, before: int, after: int) -> list[Pair]:
    """Compare the partitions with a row in the history between two snapshots, in either order."""
    older, newer = sorted((before, after))
    read = partial(warehouse.read, "partition_history", columns=["snapshot_id", *PARTITION, *STATE])
    between = read(("snapshot_id", ">", older), ("snapshot_id", "<=", newer))
    if not between.num_rows:
        return []
    topics = ("topic", "in", pc.unique(between["topic"]).to_pylist())
    until = read(("snapshot_id", "<=", older), topics)
    touched = between.select(PARTITION).group_by(PARTITION).aggregate([])
    numbered = until.select(PARTITION).append_column("row", pa.array(np.arange(until.num_rows)))
    old = until.take(numbered.join(touched, PARTITION, join_type="inner")["row"])
    states = {older: newest_rows(old), newer: newest_rows(between)}
    return pairs(states[before], states[after], PARTITION, STATE)


def pairs(before: pa.Table, after: pa.Table, key: Sequence[str], columns: Sequence[str]) -> list[Pair]:
    """Join two states of a table on `key`; return the rows that differ in any of `columns`, ordered by key.

    A column that does not differ is None on both sides, because lists are slow to convert and not needed.
    """
    from jobs.sql_views.database import new_database  # noqa: PLC0415 - slow to import and needed by few commands

    with closing(new_database()) as database:
        database.register("b", before.select([*key, *columns]))
        database.register("a", after.select([*key, *columns]))
        kinds = {column: before.schema.field(column).type for column in columns}
        return [*values_of(database.sql(_joined(key, kinds)).to_arrow_table(), "before", "after")]


def _joined(key: Sequence[str], kinds: Mapping[str, pa.DataType]) -> str:
    """Return the SQL query of differing rows of `b` and `a`, each as a struct, null if absent."""
    differs = {column: _differs(column, kind) for column, kind in kinds.items()}
    sides = {
        side: [*(f'"{name}" := {side}."{name}"' for name in key), *_differing_columns(side, differs)]
        for side in ("b", "a")
    }
    packed = (f"CASE WHEN {side}.there THEN struct_pack({', '.join(some)}) END" for side, some in sides.items())
    old, new = packed
    names = ", ".join(f'"{name}"' for name in key)
    either = " OR ".join(["b.there IS NULL", "a.there IS NULL", *differs.values()])
    return f"""
        SELECT {old} AS before, {new} AS after
        FROM (SELECT *, true AS there FROM b) AS b FULL JOIN (SELECT *, true AS there FROM a) AS a USING ({names})
        WHERE {either} ORDER BY {names}
    """  # noqa: S608 - names of columns


def _differing_columns(side: str, differs: Mapping[str, str]) -> Iterator[str]:
    return (f'"{column}" := CASE WHEN {differ} THEN {side}."{column}" END' for column, differ in differs.items())


def _differs(column: str, kind: pa.DataType) -> str:
    """Return the SQL condition that a column differs; an empty list equals null, and maps are unordered.

    >>> _differs("leader", pa.int32())
    'b."leader" IS DISTINCT FROM a."leader"'
    """
    form = "{}"
    if pa.types.is_map(kind):
        form = "coalesce(list_sort(map_entries({})), [])"
    elif pa.types.is_list(kind):
        form = "coalesce({}, [])"
    old, new = (form.format(f'{side}."{column}"') for side in ("b", "a"))
    return f"{old} IS DISTINCT FROM {new}"
