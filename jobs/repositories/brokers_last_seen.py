"""The last known registration of brokers that are not registered now: rack, host, endpoints.

ZooKeeper deletes a broker's registration when its session ends, but its replicas stay assigned, and a plan must know
their racks. A fenced broker of a KRaft cluster counts as not registered here. So each snapshot stores in
`brokers_last_seen` the last readable registration of every broker that has no readable registration now. `surveyor
vacuum` never deletes these rows.
"""

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import UnreadableError
from jobs.repositories.snapshots import live_brokers_as_of, rows_as_of
from schemas.metadata_names import IN_KRAFT, MetadataNames  # noqa: F401 - for the doctests
from schemas.rows import Broker, ClusterEvent, LastSeenBroker, Snapshot

FACTS: Final = ("broker_id", "broker_epoch", "host", "port", "endpoints", "rack")
"""Columns of BROKERS that are stored."""

BROKER_FAILED: Final = "BrokerFailed"
"""Kind of the event for the first snapshot in which a broker was missing."""


def brokers_last_seen(warehouse: Warehouse, snapshot: Snapshot) -> dict[int, LastSeenBroker]:
    """Return, by id, the last registration of brokers that a snapshot found missing or unreadable."""
    is_stored = LastSeenBroker.TABLE in snapshot.versions
    rows = rows_as_of(warehouse, snapshot, LastSeenBroker) if is_stored else _from_events(warehouse, snapshot)
    return {row.broker_id: row for row in rows}


def brokers_seen_by(warehouse: Warehouse, snapshot: Snapshot) -> dict[int, LastSeenBroker]:
    """Return, by id, the last readable registration of every broker in a snapshot or before it."""
    return brokers_last_seen(warehouse, snapshot) | _seen_in(warehouse, snapshot)


def last_seen_after(warehouse: Warehouse, last: Snapshot | None, registered: Iterable[Broker]) -> list[LastSeenBroker]:
    """Return the rows of `brokers_last_seen` for a new snapshot of `registered` brokers; `last` precedes it."""
    if last is None:
        return []
    understood = {row.broker_id for row in registered if row.understood and row.is_live}
    return [row for broker, row in sorted(brokers_seen_by(warehouse, last).items()) if broker not in understood]


def _seen_in(warehouse: Warehouse, snapshot: Snapshot) -> dict[int, LastSeenBroker]:
    """Return the readable registrations of a snapshot as rows of `brokers_last_seen`."""
    return {
        row.broker_id: LastSeenBroker(
            snapshot_id=snapshot.snapshot_id,
            last_seen_at=snapshot.taken_at,
            **{name: getattr(row, name) for name in FACTS},
        )
        for row in live_brokers_as_of(warehouse, snapshot)
        if row.understood
    }


def _from_events(warehouse: Warehouse, snapshot: Snapshot) -> Iterator[LastSeenBroker]:
    """Derive the rows from BrokerFailed events, for a snapshot of an older version without `brokers_last_seen`."""
    registered = {row.broker_id for row in live_brokers_as_of(warehouse, snapshot) if row.understood}
    until = ("snapshot_id", "<=", snapshot.snapshot_id)
    failures = sorted(
        warehouse.typed_rows(ClusterEvent, until, ("kind", "=", BROKER_FAILED)), key=attrgetter("snapshot_id")
    )
    failed_in = {int(row.subject.split(" ")[1]): row.snapshot_id for row in failures}
    earlier = sorted(warehouse.typed_rows(Snapshot, until), key=attrgetter("snapshot_id"))
    for broker, failed in failed_in.items():
        before = [taken for taken in earlier if taken.snapshot_id < failed]
        if broker in registered or not before:
            continue
        try:
            row = _seen_in(warehouse, before[-1]).get(broker)
        except UnreadableError:  # removed by something other than vacuum, so the rack is unknown
            continue
        if row is not None:
            yield row
