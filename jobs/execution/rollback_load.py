"""The load of brokers before and after a rollback, which is planned without an engine.

The partitions are those of the newest snapshot, with the lists and leaders that the rollback finds and restores. Loads
are read from a profile, or imported; without either they would be the hours of a week, which only an engine reads.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import places_of, rows_of
from jobs.measurement.load_summary import read_capacities
from jobs.repositories.drained_brokers import able_brokers, drained_brokers
from jobs.repositories.load_basis import LoadRows, plan_loads
from jobs.repositories.snapshots import last_snapshot, live_brokers_as_of, rows_as_of, table_as_of
from jobs.runtime.settings import Settings
from planner.load.load_figures import MEASURES, LoadFigures
from planner.load.resource_effects import effect_of, load_figures
from planner.load.sharing_brokers import sharing_brokers
from schemas.enums import EVERY_HOUR, NO_LEADER
from schemas.rows import Change, PartitionLoad, ProfiledLoad, Snapshot, Topic


def load_of_rollback(settings: Settings, changes: Sequence[Change]) -> LoadFigures | None:
    """Return the figures by load of a rollback with these changes; None if no load, or no snapshot, is known."""
    warehouse = settings.warehouse
    source, snapshot = plan_loads(warehouse), last_snapshot(warehouse)
    if source is None or source.window.newest is not None or snapshot is None:
        return None
    stored = table_as_of(warehouse, snapshot, "partitions", columns=["topic", "partition", "replicas", "leader"])
    loads = _read(warehouse, source, snapshot)
    places = places_of(loads, stored)
    partitions = _before_and_after(stored, changes).take(places.drop_null())
    for name in ("window", *MEASURES):
        column = loads[name] if name in loads.column_names else pa.chunked_array([pa.nulls(len(places))])
        kind = pa.string() if name == "window" else pa.float64()
        partitions = partitions.append_column(name, column.cast(kind).filter(places.is_valid()))
    counted = able_brokers(live_brokers_as_of(warehouse, snapshot), drained_brokers(warehouse))
    shares = sharing_brokers(counted, read_capacities(settings, counted))
    return load_figures(effect_of(partitions), (shares, shares), source.title, stored.num_rows)


def _before_and_after(stored: pa.Table, changes: Sequence[Change]) -> pa.Table:
    """Return the lists and leaders of stored partitions before the first change of each and after its last one."""
    ordered = sorted(changes, key=lambda change: change.wave)
    first, last = {change.key: change for change in reversed(ordered)}, {change.key: change for change in ordered}
    topics, numbers = pa.array([key[0] for key in first], pa.string()), pa.array([key[1] for key in first], pa.int32())
    places = rows_of(pa.table({"topic": topics, "partition": numbers}), stored)
    changed: dict[str, tuple[str, Sequence[object]]] = {
        "before": ("replicas", [change.replicas_before or [] for change in first.values()]),
        "after": ("replicas", [last[key].replicas_after for key in first]),
        "leader_before": ("leader", [change.leader_before for change in first.values()]),
        "leader_after": ("leader", [last[key].leader_after for key in first]),
    }
    return pa.table({name: _replaced(stored[column], places, values) for name, (column, values) in changed.items()})


def _replaced(column: pa.ChunkedArray, places: npt.NDArray[np.int64], values: Sequence[object]) -> pa.Array:
    """Return a column with other values in some places, except NO_LEADER."""
    rows = np.arange(len(column))
    is_stored = places != NO_LEADER
    rows[places[is_stored]] = len(column) + np.flatnonzero(is_stored)
    return pa.concat_arrays([*column.chunks, pa.array(values, column.type)]).take(pa.array(rows))


def _read(warehouse: Warehouse, source: LoadRows, snapshot: Snapshot) -> pa.Table:
    """Return the loads of topics that exist, as LOADS."""
    loads = warehouse.read(PartitionLoad.TABLE if source.profile is None else ProfiledLoad.TABLE, *source.filters)
    if source.profile is None:
        loads = loads.append_column("window", pa.repeat(EVERY_HOUR, loads.num_rows))
    topics = {row.topic: row.topic_id for row in rows_as_of(warehouse, snapshot, Topic)}
    current = pa.array([topics.get(topic) for topic in loads["topic"].to_pylist()], pa.string())
    return loads.filter(pc.fill_null(pc.equal(loads["topic_id"].cast(pa.string()), current), True))  # noqa: FBT003
