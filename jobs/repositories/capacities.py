"""Capacities of brokers: recorded by source, and the one of each broker and resource that counts.

Statements of an operator precede measurements. In order of precedence: a row of table `broker_capacity` for the broker
of source `file`; the section [clusters.NAME.capacity] of the configuration file, which is for every broker; a row of
`file` for every broker (EVERY_BROKER); rows of `prometheus`; rows of `log_dirs`; and of disks the sizes in table
`log_dirs`, which `surveyor sizes` stores. Of one source the newest row of a broker, log dir and resource counts. The
section is not stored, so a changed value counts at once.

The capacity of a disk is that of all log dirs of a broker, as it is compared with the bytes of all replicas there. A
file that states other log dirs than the broker reports does not count, and no source does if a log dir has failed.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import values_of
from jobs.repositories.log_dirs import reported_log_dirs, total_bytes
from jobs.runtime.settings import Settings
from planner.load.resources import DISK, REPLICAS, RESOURCES
from schemas.rows import BrokerCapacity

EVERY_BROKER: Final = -1
"""Broker id of a capacity that is for every broker without a row of its own, as in Cruise Control's files."""

CAPACITY_COLUMNS: Final = ("broker_id", "log_dir", "resource", "capacity", "limit_share", "source")

LOG_DIRS: Final = "log_dirs"
"""The source of capacities that brokers report."""

_PRECEDENCE: Final = (
    *(("file", False), ("conf", True), ("file", True)),
    *(("prometheus", False), ("prometheus", True), (LOG_DIRS, False)),
)
"""Sources, each with whether its rows are those for every broker."""

_KEY: Final = ("broker_id", "log_dir", "resource", "source")


class Capacity(NamedTuple):
    """A capacity to be recorded; null withdraws the recorded one."""

    broker_id: int
    log_dir: str | None
    resource: str
    capacity: float | None
    limit_share: float | None


class _Stated(NamedTuple):
    """A capacity as a source states it; `recorded` orders rows of one source."""

    log_dir: str | None
    capacity: float
    limit_share: float | None
    recorded: float


class _Statements(NamedTuple):
    """What sources state."""

    rows: Mapping[tuple[str, int, str], Sequence[_Stated]]
    """Capacities by source, broker and resource."""
    log_dirs: Mapping[int, AbstractSet[str]]
    """The log dirs of each broker that reported them to `surveyor sizes`."""
    failed: Mapping[int, AbstractSet[str]]
    """Log dirs of unknown size of brokers that reported the size of others."""

    def notes(self, brokers: Collection[int]) -> Iterator[str]:
        """Say which statements about the disks of brokers do not count."""
        for broker in sorted(brokers):
            rows = self.rows.get(("file", broker, DISK)) or self.rows.get(("file", EVERY_BROKER, DISK), ())
            if failed := self.failed.get(broker):
                yield f"broker {broker}: the capacity of its disk is unknown, because {_named(failed)} failed"
            elif others := self.other_log_dirs(broker, rows):
                yield f"broker {broker}: the capacities in a file are not of its log dirs ({_named(others)}): ignored"

    def counting(self, broker: int, resource: str) -> Iterable[tuple[str, Sequence[_Stated]]]:
        """Return the first source that knows a resource of a broker, with its rows; nothing if none does."""
        is_known = resource != DISK or broker not in self.failed
        for source, is_for_all in _PRECEDENCE if is_known else ():
            rows = self.rows.get((source, EVERY_BROKER if is_for_all else broker, resource), ())
            if rows and not (source != LOG_DIRS and self.other_log_dirs(broker, rows)):
                return [(source, rows)]
        return []

    def other_log_dirs(self, broker: int, rows: Sequence[_Stated]) -> AbstractSet[str]:
        """Return the log dirs that only the broker or only the rows have; none if either has no log dirs."""
        stated = {row.log_dir for row in rows if row.log_dir is not None}
        return stated ^ self.log_dirs[broker] if stated and broker in self.log_dirs else set()


class CountingCapacities(NamedTuple):
    """The capacities of brokers that count: rows with the columns CAPACITY_COLUMNS; and notes on those that do not."""

    rows: pa.Table
    notes: list[str]


def broker_capacities(settings: Settings, brokers: Collection[int]) -> CountingCapacities:
    """Return the capacities of brokers, sorted; a few rows a broker.

    A broker and resource has one row without a log dir, or a row for each log dir, whose sum is the broker's capacity;
    or none, if no source knows it. Rows for every broker are applied to these brokers. A null `limit_share` is the
    default of who plans; the share of the configuration file, if it has one, is filled in.
    """
    stated = _statements(settings)
    share = settings.conf.capacity.limit_share
    rows = [
        (
            broker,
            row.log_dir,
            resource,
            row.capacity,
            row.limit_share or (1.0 if resource == REPLICAS else share),
            source,
        )
        for broker in sorted(brokers)
        for resource in (*RESOURCES, REPLICAS)
        for source, counting in stated.counting(broker, resource)
        for row in counting
    ]
    named = [dict(zip(CAPACITY_COLUMNS, row, strict=True)) for row in rows]
    table = pa.Table.from_pylist(named, schema_of(BrokerCapacity.TABLE, *CAPACITY_COLUMNS))
    return CountingCapacities(table, [*stated.notes(brokers)])


def _statements(settings: Settings) -> _Statements:
    reported = reported_log_dirs(settings.warehouse)
    log_dirs, failed = defaultdict[int, set[str]](set), defaultdict[int, set[str]](set)
    statements = _stored(settings.warehouse, failed)
    for resource, rate in settings.conf.capacity.amounts.items():
        statements["conf", EVERY_BROKER, resource] = [_Stated(None, float(rate), None, 0)]
    totals = total_bytes(reported)
    for broker, total in totals.items():
        if not statements.get(key := (LOG_DIRS, broker, DISK)):
            statements[key] = [_Stated(None, float(total), None, 0)]
    for row in reported:
        log_dirs[row.broker_id].add(row.log_dir)
        if row.total_bytes is None and (row.error or row.broker_id in totals):
            failed[row.broker_id].add(row.log_dir)
    return _Statements(statements, log_dirs, failed)


def _named(log_dirs: AbstractSet[str]) -> str:
    return ", ".join(sorted(log_dirs))


def _stored(warehouse: Warehouse, failed: dict[int, set[str]]) -> dict[tuple[str, int, str], list[_Stated]]:
    """Return the newest rows of table `broker_capacity`, without capacities that are null or 0.

    A source states a broker's disk as a whole or by log dir. Of the two the newer statement counts. Log dirs whose size
    a sample found to be unknown are added to `failed`.
    """
    stored = defaultdict[tuple[str, int, str], list[_Stated]](list)
    for broker, log_dir, resource, source, capacity, share, recorded in values_of(
        newest_capacities(warehouse), *_KEY, "capacity", "limit_share", "valid_from"
    ):
        stored[source, broker, resource].append(_Stated(log_dir, capacity, share, recorded.timestamp()))
        if log_dir is not None and (source, resource, capacity) == (LOG_DIRS, DISK, None):
            failed[broker].add(log_dir)
    for key, rows in stored.items():
        is_whole = max((row.recorded, row.log_dir is None) for row in rows)[1]
        of_form = [row for row in rows if (row.log_dir is None) == is_whole and row.capacity]
        stored[key] = sorted(of_form, key=lambda row: row.log_dir or "")
    return dict(stored)


def newest_capacities(warehouse: Warehouse, *sources: str) -> pa.Table:
    """Return the newest row of each broker, log dir, resource and source; a null capacity withdraws earlier rows."""
    if not warehouse.has(BrokerCapacity.TABLE):
        return schema_of(BrokerCapacity.TABLE).empty_table()
    rows = warehouse.read(BrokerCapacity.TABLE, *([("source", "in", list(sources))] if sources else []))
    ordered = rows.sort_by("valid_from")
    numbered = ordered.append_column("row", pa.array(np.arange(ordered.num_rows)))
    newest: pa.Table = ordered.take(numbered.group_by(list(_KEY)).aggregate([("row", "max")])["row_max"])
    return newest


def store_capacities(warehouse: Warehouse, capacities: Iterable[Capacity], source: str, now: datetime) -> int:
    """Record the capacities that differ from the newest ones of their source, valid from now; return their number."""
    warehouse.ensure_tables()
    stored = {
        (broker, log_dir, resource): (capacity, share)
        for broker, log_dir, resource, _, capacity, share in values_of(
            newest_capacities(warehouse, source), *_KEY, "capacity", "limit_share"
        )
    }
    unknown = (None, None)
    changed = [row for row in capacities if stored.get(row[:3], unknown) != row[3:]]
    recorded = {"source": source, "valid_from": now}
    warehouse.append(BrokerCapacity.TABLE, [row._asdict() | recorded for row in changed])
    return len(changed)
