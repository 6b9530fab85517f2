"""What a plan's changes depend on in addition to their own columns, in a cluster without versions.

Eligible leader replicas are not in the table `changes`, so they are read from the snapshot. They are unknown for a
rollback, which is computed from the live cluster and not from a snapshot. They are also unknown for a plan with
versions of znodes, which does not need them.
"""

from collections.abc import Iterable

from jobs.adapters.delta.warehouse import Warehouse, values_of
from jobs.preconditions.changes import NO_PREMISES, Premises, is_unversioned
from jobs.repositories.plans.repository import Plan
from jobs.repositories.snapshots import find_snapshot, table_as_of
from schemas.rows import Change, Key

_COLUMNS = ("topic", "partition", "eligible_leader_replicas")


def planned_premises(warehouse: Warehouse, plan: Plan) -> Premises:
    """Return what a plan's changes of existing partitions depend on."""
    changes = [change for change in plan.changes if is_unversioned(change)]
    if not changes:
        return NO_PREMISES
    first_waves = _first_waves(changes)
    if "rollback_of" in plan.row.options:
        return Premises(first_waves=first_waves)
    topics = sorted({topic for topic, _ in first_waves})
    snapshot = find_snapshot(warehouse, plan.row.snapshot_id)
    rows = table_as_of(warehouse, snapshot, "partitions", ("topic", "in", topics), columns=_COLUMNS)
    eligible = {
        (topic, partition): replicas
        for topic, partition, replicas in values_of(rows, *_COLUMNS)
        if (topic, partition) in first_waves
    }
    return Premises(eligible, first_waves)


def _first_waves(changes: Iterable[Change]) -> dict[Key, int]:
    first_waves: dict[Key, int] = {}
    for change in changes:
        first_waves[change.key] = min(change.wave, first_waves.get(change.key, change.wave))
    return first_waves
