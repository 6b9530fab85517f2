"""Capacities of brokers: recorded by source, and the one of each broker and resource that counts.

Statements of an operator precede measurements. In order of precedence: a row of table `broker_capacity` for the broker
of source `file`; the section [clusters.NAME.capacity] of the configuration file, which is for every broker; a row of
`file` for every broker (EVERY_BROKER); rows of `prometheus`; rows of `log_dirs`; and of disks the sizes in table
`log_dirs`, which `surveyor sizes` stores. Of one source the newest row of a broker, log dir and resource counts. The
section is not stored, so a changed value counts at once.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import values_of
from jobs.repositories.log_sizes import total_bytes
from jobs.runtime.settings import Settings
from schemas.rows import BrokerCapacity

EVERY_BROKER: Final = -1
"""Broker id of a capacity that is for every broker without a row of its own, as in Cruise Control's files."""

RESOURCES: Final = ("disk", "in", "out", "cpu")

CAPACITY_COLUMNS: Final = ("broker_id", "log_dir", "resource", "capacity", "limit_share", "source")

_PRECEDENCE: Final = (
    *(("file", False), ("conf", True), ("file", True)),
    *(("prometheus", False), ("prometheus", True), ("log_dirs", False)),
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


_Statements = Mapping[tuple[str, int, str], Sequence[_Stated]]
"""Capacities by source, broker and resource."""


def broker_capacities(settings: Settings, brokers: Collection[int]) -> pa.Table:
    """Return the capacities of brokers, with the columns CAPACITY_COLUMNS, sorted; a few rows a broker.

    A broker and resource has one row without a log dir, or a row for each log dir, whose sum is the broker's capacity;
    or none, if no source knows it. Rows for every broker are applied to these brokers. A null `limit_share` is the
    default of who plans; the share of the configuration file, if it has one, is filled in.
    """
    stated = _statements(settings)
    share = settings.conf.capacity.limit_share
    rows = [
        (broker, row.log_dir, resource, row.capacity, share if row.limit_share is None else row.limit_share, source)
        for broker in sorted(brokers)
        for resource in RESOURCES
        for source, counting in _counting(stated, broker, resource)
        for row in counting
    ]
    named = [dict(zip(CAPACITY_COLUMNS, row, strict=True)) for row in rows]
    return pa.Table.from_pylist(named, schema_of(BrokerCapacity.TABLE, *CAPACITY_COLUMNS))


def _counting(stated: _Statements, broker: int, resource: str) -> Iterable[tuple[str, Sequence[_Stated]]]:
    """Return the source that precedes the others for a broker and resource, with its rows; nothing if none has any."""
    for source, is_for_all in _PRECEDENCE:
        rows = stated.get((source, EVERY_BROKER if is_for_all else broker, resource), ())
        if rows:
            return [(source, rows)]
    return []


def _statements(settings: Settings) -> _Statements:
    statements = _stored(settings.warehouse)
    for resource, rate in settings.conf.capacity.rates.items():
        statements["conf", EVERY_BROKER, resource] = [_Stated(None, float(rate), None, 0)]
    for broker, total in total_bytes(settings.warehouse).items():
        if not statements.get(key := ("log_dirs", broker, "disk")):
            statements[key] = [_Stated(None, float(total), None, 0)]
    return statements


def _stored(warehouse: Warehouse) -> dict[tuple[str, int, str], list[_Stated]]:
    """Return the newest rows of table `broker_capacity`, without capacities that are null or 0.

    A source states a broker's disk as a whole or by log dir. Of the two the newer statement counts.
    """
    stored = defaultdict[tuple[str, int, str], list[_Stated]](list)
    for broker, log_dir, resource, source, capacity, share, recorded in values_of(
        newest_capacities(warehouse), *_KEY, "capacity", "limit_share", "valid_from"
    ):
        stored[source, broker, resource].append(_Stated(log_dir, capacity, share, recorded.timestamp()))
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
