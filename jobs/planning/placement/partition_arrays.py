"""The partitions of a snapshot as arrays for the optimiser, with the names of the rows.

A Scope is the topics that a request concerns. Partitions never change if their topic is being deleted, if they are
being reassigned or wait for it, if they are not understood, or if no live member of their ISR leads them.
"""

import re
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.arrow_rows import StoredRows, rows_of
from jobs.core.errors import RefusedError
from jobs.planning.planning_tables import PlanningTables, requests_of
from jobs.preconditions.unread_metadata import QUARANTINE_COMMAND, UnreadMetadata
from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.repositories.snapshots import live_brokers_as_of, rows_as_of, table_as_of, unread_in
from jobs.runtime.console import log
from planner.placement.replica_arrays import is_in_row, pad_rows
from planner.placement.types import NO_BROKER, Bools, Ints, PlacementPartitions
from schemas.enums import NO_LEADER
from schemas.rows import Topic
from schemas.text import partition_name

SOURCE_COLUMNS: Final = (
    "topic",
    "partition",
    "replicas",
    "adding_replicas",
    "removing_replicas",
    "leader",
    "isr",
    "understood",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The topics that may change: `named` or all, whose whole name matches `topics`, without matches of `exclude`."""

    named: AbstractSet[str] | None = None
    topics: re.Pattern[str] | None = None
    exclude: re.Pattern[str] | None = None

    def among(self, names: Collection[str]) -> set[str]:
        """Return the topics of these names that may change; warn if `exclude` matches none of them.

        >>> sorted(Scope(topics=re.compile("pay.v1")).among(["pay.v1", "pay_v1"]))
        ['pay.v1']
        """
        chosen = set(names) if self.topics is None else matching(self.topics, names)
        excluded = set() if self.exclude is None else matching(self.exclude, names)
        if self.exclude is not None and not excluded:
            log(f"surveyor: --exclude {self.exclude.pattern!r} matches no topic")
        return (chosen if self.named is None else chosen & self.named) - excluded


def matching(pattern: re.Pattern[str], names: Collection[str]) -> set[str]:
    """Return the names that a pattern matches as a whole; the exact name of a topic matches only that topic.

    >>> [sorted(matching(re.compile(text), ["a.b", "a_b", "c"])) for text in ("a.b", "a.b|c", "a..|c", "a[.]b")]
    [['a.b'], ['a.b', 'c'], ['a.b', 'a_b', 'c'], ['a.b']]
    """
    parts = [pattern.pattern] if set(pattern.pattern) & set("()[]\\") else pattern.pattern.split("|")
    exact = set(parts).intersection(names)
    rest = [re.compile(part) for part in parts if part not in exact]
    return exact | {name for name in names if any(part.fullmatch(name) for part in rest)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NamedPartitions:
    """Partitions of a snapshot for the optimiser, with their names.

    `barred`: requested partitions that may not change. `leader`: the leading broker of each, NO_LEADER for none.
    """

    names: pa.Table
    partitions: PlacementPartitions
    barred: Bools
    leader: Ints

    def name_of(self, row: int) -> str:
        """Return the name of a partition, as orders-7."""
        topic, partition = (self.names[column][row].as_py() for column in ("topic", "partition"))
        return partition_name(topic, partition)


def read_partitions(tables: PlanningTables, scope: Scope) -> NamedPartitions:
    """Read the partitions of a snapshot; raise RefusedError if the scope is empty."""
    rows = table_as_of(tables.warehouse, tables.snapshot, "partitions", columns=SOURCE_COLUMNS)
    encoded = rows["topic"].combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    number = encoded.indices.to_numpy(zero_copy_only=False)
    inside = scope.among(names)
    in_scope = _by_number([name in inside for name in names], number)
    if not in_scope.any():
        _refuse_nothing(scope, names, unread_in(tables.warehouse, tables.snapshot), tables)
    deleted = _being_deleted(tables)
    bar = _by_number([name in deleted for name in names], number) | ~_understood(rows)
    bar |= StoredRows(rows).is_being_reassigned()
    bar |= _requested(tables, rows) | ~_led(tables, rows)
    replicas = lists_of(rows["replicas"])
    place_of = np.argsort(np.argsort(np.array(names, dtype=object)))
    return NamedPartitions(
        names=rows.select(["topic", "partition"]),
        partitions=PlacementPartitions(
            topic=place_of[number].astype(np.int64),
            partition=rows["partition"].to_numpy().astype(np.int64),
            replicas=replicas,
            movable=in_scope & ~bar & (replicas[:, 0] != NO_BROKER),
            in_sync=_in_sync(replicas, rows["isr"]),
        ),
        barred=in_scope & bar,
        leader=pc.fill_null(rows["leader"], NO_LEADER).to_numpy().astype(np.int64),
    )


def _by_number(marks: list[bool], number: Ints) -> Bools:
    marked: Bools = np.array(marks, dtype=bool)[number]
    return marked


def _being_deleted(tables: SnapshotTables) -> set[str]:
    topics = rows_as_of(tables.warehouse, tables.snapshot, Topic, ("deletion_requested", "=", True))
    return {row.topic for row in topics}


def _requested(tables: SnapshotTables, rows: pa.Table) -> Bools:
    """Return a mask of rows with a pending request in /admin/reassign_partitions."""
    requested = np.zeros(rows.num_rows, dtype=bool)
    requests = [{"topic": row.topic, "partition": row.partition} for row in requests_of(tables)]
    if requests and rows.num_rows:
        numbers = rows_of(pa.Table.from_pylist(requests), rows)
        requested[numbers[numbers != NO_BROKER]] = True
    return requested


def _led(tables: SnapshotTables, rows: pa.Table) -> Bools:
    """Return a mask of rows led by a registered member of their ISR, as `planner.columns.broker_sets.is_led_in_isr`."""
    registered = [row.broker_id for row in live_brokers_as_of(tables.warehouse, tables.snapshot)]
    leader = pc.fill_null(rows["leader"], NO_LEADER).to_numpy()
    in_sync = (lists_of(rows["isr"]) == leader[:, None]).any(axis=1)
    led: Bools = in_sync & np.isin(leader, registered)
    return led


def _understood(rows: pa.Table) -> Bools:
    understood: Bools = pc.fill_null(rows["understood"], True).to_numpy()  # noqa: FBT003 - as the rules read null
    return understood


def _in_sync(replicas: Ints, isr: pa.ChunkedArray) -> Bools:
    """Return by (row, slot) whether the replica is in the ISR; all replicas of a partition without an ISR are.

    >>> _in_sync(np.array([[1, 2], [1, 2]]), pa.chunked_array([[[2], None]])).tolist()
    [[False, True], [True, True]]
    """
    isr_lists = lists_of(pc.fill_null(isr, []))
    in_sync: Bools = is_in_row(replicas.T, isr_lists.T).T | (isr_lists[:, :1] == NO_BROKER)
    return in_sync


def lists_of(replicas: pa.ChunkedArray) -> Ints:
    """Return lists of brokers, one row per partition, padded with NO_BROKER."""
    lists = replicas.combine_chunks().cast(pa.list_(pa.int64()))
    return pad_rows(lists.offsets.to_numpy(), lists.values.to_numpy())


def _refuse_nothing(scope: Scope, names: Sequence[str], unread: UnreadMetadata, tables: SnapshotTables) -> None:
    """Raise RefusedError: no partition is in scope, perhaps because the requested topics cannot be decoded."""
    snapshot_id = tables.snapshot.snapshot_id
    not_understood_topics = sorted(scope.among(unread.topics))
    if not_understood_topics:
        others = f"no partition of snapshot {snapshot_id} is in another requested topic"
        raise RefusedError(
            f"{UnreadMetadata(not_understood_topics).sentence()}, and {others}; {QUARANTINE_COMMAND} says why"
        )
    unknown = sorted((scope.named or set()) - set(names))
    if unknown and not set(names) & (scope.named or set()):
        raise RefusedError(f"topics {', '.join(unknown)} are not in snapshot {snapshot_id}; {tables.age_hint}")
    pattern = "" if scope.topics is None else f" ({scope.topics.pattern})"
    raise RefusedError(f"no partition of snapshot {snapshot_id} is in a requested topic{pattern}; {tables.age_hint}")
