"""The load of brokers before and after a rollback, which is planned without an engine.

The partitions are those of the newest snapshot, with the lists and leaders that the rollback finds and restores. Loads
are read from a profile, or imported; without either they would be the hours of a week, which only an engine reads.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import StoredRows
from jobs.repositories.drained_brokers import drained_brokers
from jobs.repositories.plan_loads import LoadRows, plan_loads
from jobs.repositories.snapshots import last_snapshot, live_brokers_as_of, rows_as_of, table_as_of
from planner.load.effect_arrays import Assignments, Floats, WindowLoads, effect_rows
from planner.load.effect_figures import MEASURES, LoadFigures, load_figures
from schemas.enums import EVERY_HOUR, NO_LEADER
from schemas.rows import Change, PartitionLoad, ProfiledLoad, Snapshot, Topic

NO_ROW: Final = -1


def load_of_rollback(warehouse: Warehouse, changes: Sequence[Change]) -> LoadFigures | None:
    """Return the figures by load of a rollback with these changes; None if no load, or no snapshot, is known."""
    source, snapshot = plan_loads(warehouse), last_snapshot(warehouse)
    if source is None or source.since is not None or snapshot is None:
        return None
    partitions = table_as_of(warehouse, snapshot, "partitions", columns=["topic", "partition", "replicas", "leader"])
    keys = _keys(partitions)
    first, last = ({change.key: change for change in ordered} for ordered in _by_wave(changes))
    before = _assignments(partitions, keys, [(c, c.replicas_before or [], c.leader_before) for c in first.values()])
    after = _assignments(partitions, keys, [(c, c.replicas_after, c.leader_after) for c in last.values()])
    live = {broker.broker_id for broker in live_brokers_as_of(warehouse, snapshot)}
    counted = sorted(live - drained_brokers(warehouse) or live)
    effect = effect_rows(before, after, _loads(_read(warehouse, source, snapshot), keys), (counted, counted))
    return load_figures(effect, source.title, len(keys))


def _by_wave(changes: Sequence[Change]) -> tuple[list[Change], list[Change]]:
    """Return the changes so that the first one of a partition comes last, and so that its last one does."""
    ordered = sorted(changes, key=lambda change: change.wave)
    return ordered[::-1], ordered


def _keys(rows: pa.Table) -> pa.Array:
    """Return a text for each row that identifies its partition."""
    texts = (rows[name].cast(pa.string()) for name in ("topic", "partition"))
    return pc.binary_join_element_wise(*texts, "\0").combine_chunks()


def _assignments(
    partitions: pa.Table, keys: pa.Array, changed: Sequence[tuple[Change, list[int], int | None]]
) -> Assignments:
    """Return the partitions, of which those that change have these lists and leaders."""
    stored = StoredRows(partitions).brokers("replicas")
    width = max([stored.shape[1], *(len(replicas) for _, replicas, _ in changed)])
    lists = np.pad(stored.astype(np.int64), ((0, 0), (0, width - stored.shape[1])), constant_values=NO_LEADER)
    leader = pc.fill_null(partitions["leader"], NO_LEADER).to_numpy().astype(np.int64)
    names = [f"{change.topic}\0{change.partition}" for change, _, _ in changed]
    rows = pc.fill_null(pc.index_in(pa.array(names, pa.string()), value_set=keys), NO_ROW).to_pylist()
    for row, (_, replicas, led_by) in zip(rows, changed, strict=True):
        if row != NO_ROW:
            lists[row] = [*replicas, *[NO_LEADER] * (width - len(replicas))]
            leader[row] = NO_LEADER if led_by is None else led_by
    return Assignments(replicas=lists, leader=leader)


def _read(warehouse: Warehouse, source: LoadRows, snapshot: Snapshot) -> pa.Table:
    """Return the loads of topics that exist, as LOADS."""
    if source.profile is not None:
        of_profile = ("profile", "=", source.profile), ("version", "=", source.version)
        loads = warehouse.read(ProfiledLoad.TABLE, *of_profile)
    else:
        loads = warehouse.read(PartitionLoad.TABLE, ("hour", "is", None))
        loads = loads.append_column("window", pa.repeat(EVERY_HOUR, loads.num_rows))
    topics = {row.topic: row.topic_id for row in rows_as_of(warehouse, snapshot, Topic)}
    current = pa.array([topics.get(topic) for topic in loads["topic"].to_pylist()], pa.string())
    return loads.filter(pc.fill_null(pc.equal(loads["topic_id"].cast(pa.string()), current), True))  # noqa: FBT003


def _loads(loads: pa.Table, keys: pa.Array) -> Iterator[WindowLoads]:
    """Yield the loads of each window, of partitions that exist."""
    unknown = pa.nulls(loads.num_rows, pa.float64())
    for window in sorted(pc.unique(loads["window"]).to_pylist()):
        some = loads.filter(pc.equal(loads["window"], window))
        rows = pc.fill_null(pc.index_in(_keys(some), value_set=keys), NO_ROW).to_numpy()
        yield WindowLoads(
            window=window,
            row=rows[rows != NO_ROW].astype(np.int64),
            measures={
                name: _floats(some[name] if name in some.column_names else unknown)[rows != NO_ROW] for name in MEASURES
            },
        )


def _floats(values: pa.ChunkedArray) -> Floats:
    floats: Floats = pc.fill_null(values.cast(pa.float64()), np.nan).to_numpy()
    return floats
