"""The effect of a plan on the load of brokers, in Arrow and numpy.

Rows of EFFECT come from `plan_effect`, or for plans that are made without an engine, as rollbacks are, from
`effect_of`. A row for each window and broker is compared with the shares of the brokers.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from planner.load.load_figures import MEASURES, MEASURES_OF, ROUNDING, SIDES, LoadFigures, ResourceEffect, worst_of
from planner.load.resources import RESOURCES
from planner.load.sharing_brokers import Shares

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def load_figures(
    effect: pa.Table, sharing: tuple[Shares, Shares], loads: str, partitions_total: int
) -> LoadFigures | None:
    """Return the figures of rows of EFFECT; None if no partition has a load.

    `sharing` has the brokers that share the load before and after: not those that are being emptied or drained. Those
    without a row count too, with no load. `loads` names the source of the loads.
    """
    effects = resource_effects(effect, sharing)
    if not effects:
        return None
    before, after = (worst_of(effects, side) for side in (0, 1))
    sums = effect.group_by("window").aggregate([("leads", "sum"), ("copied", "sum"), ("disk_known", "sum")])
    copied = pc.max(sums.filter(pc.greater(sums["disk_known_sum"], 0))["copied_sum"]).as_py()
    return LoadFigures(
        bytes=None if copied is None else round(copied),
        worst_before=before.worst[0] if before else None,
        worst_after=after.worst[1] if after else None,
        loads=loads,
        partitions=pc.max(sums["leads_sum"]).as_py(),
        partitions_total=partitions_total,
        effects=effects,
    )


def resource_effects(effect: pa.Table, sharing: tuple[Shares, Shares]) -> list[ResourceEffect]:
    """Compare the brokers by resource and window, in this order; resources without a known load are left out."""
    if not all(sharing):
        return []
    windows = sorted(pc.unique(effect["window"]).to_pylist())
    ids = np.unique(np.concatenate([effect["broker_id"].to_numpy(), *([*shares] for shares in sharing)]))
    place = pc.index_in(effect["window"], pa.array(windows, pa.string())), np.searchsorted(ids, effect["broker_id"])

    def laid_out(column: str) -> Floats:
        """Return a column by (window, broker)."""
        values = np.zeros((len(windows), len(ids)))
        values[place] = pc.fill_null(effect[column], 0).to_numpy()
        return values

    effects = []
    for resource in sorted(RESOURCES):
        loads = [laid_out(f"{resource}_{side}") for side in SIDES]
        changes = np.any(abs(loads[1] - loads[0]) > ROUNDING * np.maximum(*loads), axis=1).tolist()
        by_capacity = any(of[resource] != 1 for shares in sharing for of in shares.values())
        before, after = (
            _extremes(load, ids, {broker: of[resource] for broker, of in shares.items()})
            for load, shares in zip(loads, sharing, strict=True)
        )
        effects += [
            ResourceEffect(
                resource=resource,
                window=windows[at],
                changes=changes[at],
                by_capacity=by_capacity,
                **{name: (before[name][at], after[name][at]) for name in before},
            )
            for at in np.flatnonzero(laid_out(f"{resource}_known").any(axis=1)).tolist()
        ]
    return effects


def _extremes(load: Floats, ids: Ints, shares: Mapping[int, float]) -> dict[str, list[Any]]:
    """Return fields of ResourceEffect by window, of the brokers that have shares."""
    is_counted = np.isin(ids, [*shares])
    brokers, counted = ids[is_counted], load[:, is_counted]
    share = np.array([shares[broker] for broker in brokers.tolist()])
    level = counted / share
    top, bottom = level.argmax(axis=1), len(brokers) - 1 - level[:, ::-1].argmin(axis=1)
    windows = np.arange(len(load))
    most, least = counted[windows, top], counted[windows, bottom]
    return {
        "most": most.tolist(),
        "least": least.tolist(),
        "most_share": np.where(most > 0, share[top], 1.0).tolist(),
        "least_share": np.where(least > 0, share[bottom], 1.0).tolist(),
        "mean": counted.mean(axis=1).tolist(),
        "broker": [broker if load else None for broker, load in zip(brokers[top].tolist(), most.tolist(), strict=True)],
    }


def effect_of(loads: pa.Table) -> pa.Table:
    """Return EFFECT of loads of partitions, as `plan_effect` does.

    `loads` has the columns of LOADS, and `before`, `after`, `leader_before` and `leader_after` of each partition.
    """
    before, after = (_replicas(loads, side) for side in SIDES)
    is_new = pc.invert(pc.is_in(after["replica"], before["replica"]))
    after = after.append_column("copied", pc.if_else(is_new, after["disk_after"], 0.0))
    replicas = pa.concat_tables([before.append_column("leads", before["is_leader"]), after], promote_options="default")
    sums = [name for name in replicas.column_names if name not in {"window", "broker_id", "replica", "is_leader"}]
    effect = replicas.group_by(["window", "broker_id"]).aggregate([(name, "sum") for name in sums])
    return effect.rename_columns(["window", "broker_id", *sums])


def _replicas(loads: pa.Table, side: str) -> pa.Table:
    """Return the loads of each replica before or after; `replica` is a number for its row of `loads` and its broker."""
    lists = loads[side].combine_chunks()
    row, broker = pc.list_parent_indices(lists), pc.list_flatten(lists)
    of = loads.drop_columns([*SIDES]).take(row)
    is_leader = pc.fill_null(pc.equal(broker, of[f"leader_{side}"]), False)  # noqa: FBT003 - Arrow's
    known = {name: pc.fill_null(of[name], 0.0) for name in MEASURES}
    copies = pc.multiply(known["bytes_in"], pc.subtract(pc.list_value_length(lists).take(row), 1))
    return pa.table(
        {
            "window": of["window"],
            "broker_id": broker,
            "replica": pc.add(pc.shift_left(row, 32), broker),
            "is_leader": is_leader.cast(pa.int64()),
            f"disk_{side}": known["size_bytes"],
            f"in_{side}": known["bytes_in"],
            f"out_{side}": pc.if_else(is_leader, pc.add(known["bytes_out"], copies), 0.0),
            f"cpu_{side}": pc.if_else(is_leader, known["cpu_leader"], known["cpu_follower"]),
            **{f"{name}_known": pc.is_valid(pc.coalesce(*(of[m] for m in some))) for name, some in MEASURES_OF.items()},
        }
    )
