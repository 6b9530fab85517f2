"""Brokers that are gone as they were last seen: rack, host, endpoints. No JVM.

ZooKeeper forgets a broker's registration as soon as its session ends, but its replicas stay assigned, and a plan has to
know which rack they are in. So each snapshot keeps, in `brokers_last_seen`, the last registration that was understood
of every broker that is not registered and understood now. `surveyor vacuum` never drops these rows.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from jobs.adapters.delta.warehouse import Row, Warehouse
from jobs.core.errors import UnreadableError
from jobs.repositories.snapshots import as_of

TABLE: Final = "brokers_last_seen"

FACTS: Final = ("broker_id", "broker_epoch", "host", "port", "endpoints", "rack")
"""Columns of BROKERS that are kept."""

BROKER_FAILED: Final = "BrokerFailed"
"""The kind of event that says in which snapshot a broker was first missing."""


def brokers_last_seen(lake: Warehouse, snapshot: Row) -> dict[int, Row]:
    """Return, by id, the brokers that a snapshot found gone or not understood, as they were last seen before."""
    rows = as_of(lake, snapshot, TABLE) if TABLE in snapshot["versions"] else _from_events(lake, snapshot)
    return {row["broker_id"]: row for row in rows}


def brokers_seen_by(lake: Warehouse, snapshot: Row) -> dict[int, Row]:
    """Return every broker that was understood in a snapshot or before it, as it was last seen."""
    return brokers_last_seen(lake, snapshot) | _seen_in(lake, snapshot)


def last_seen_after(lake: Warehouse, last: Row | None, registered: Iterable[Row]) -> list[Row]:
    """Return the rows of `brokers_last_seen` that belong to a snapshot of `registered` brokers; `last` is before it."""
    if last is None:
        return []
    understood = {row["broker_id"] for row in registered if row["understood"]}
    return [row for broker, row in sorted(brokers_seen_by(lake, last).items()) if broker not in understood]


def rack_of_each(registered: Iterable[Row], last_seen: Mapping[int, Row]) -> dict[int, str | None]:
    """Return the rack of each broker: of those registered and understood as it is, of others as last seen.

    A broker that neither names has no entry: its rack is unknown, which is not the same as none.

    >>> registered = [{"broker_id": 1, "rack": "a", "understood": True},
    ...     {"broker_id": 2, "rack": None, "understood": False}]
    >>> rack_of_each(registered, {2: {"rack": "b"}, 3: {"rack": None}})
    {2: 'b', 3: None, 1: 'a'}
    """
    gone = {broker: row["rack"] for broker, row in last_seen.items()}
    return gone | {row["broker_id"]: row.get("rack") for row in registered if row["understood"]}


def _seen_in(lake: Warehouse, snapshot: Row) -> dict[int, Row]:
    """The brokers that a snapshot understood, as rows of `brokers_last_seen`."""
    found = {"snapshot_id": snapshot["snapshot_id"], "last_seen_at": snapshot["taken_at"]}
    brokers = as_of(lake, snapshot, "brokers")
    return {row["broker_id"]: {name: row[name] for name in FACTS} | found for row in brokers if row["understood"]}


def _from_events(lake: Warehouse, snapshot: Row) -> Iterator[Row]:
    """Find the same for a snapshot of an older version, which kept no such table: by the events of brokers failing."""
    registered = {row["broker_id"] for row in as_of(lake, snapshot, "brokers") if row["understood"]}
    until = ("snapshot_id", "<=", snapshot["snapshot_id"])
    failures = lake.rows("events", until, ("kind", "=", BROKER_FAILED))
    failed_in = {int(row["subject"].split(" ")[1]): row["snapshot_id"] for row in _in_order(failures)}
    earlier = _in_order(lake.rows("snapshots", until))
    for broker, failed in failed_in.items():
        before = [row for row in earlier if row["snapshot_id"] < failed]
        if broker in registered or not before:
            continue
        try:
            row = _seen_in(lake, before[-1]).get(broker)
        except UnreadableError:  # dropped by something other than vacuum: then it is unknown
            continue
        if row is not None:
            yield row


def _in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: int(row["snapshot_id"]))
