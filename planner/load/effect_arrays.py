"""The load of brokers before and after a plan on arrays, for plans that are made without an engine, as rollbacks are.

It is the second form of `plan_effect`, and gives the same rows. In: the lists of all partitions before and after, and
their loads. Out: rows of EFFECT.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from planner.load.effect_figures import ROUNDING
from schemas.enums import NO_LEADER
from schemas.rows import Row

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

SIDES: Final = ("before", "after")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assignments:
    """The replicas of each partition, one row each, padded with NO_LEADER, and its leader."""

    replicas: Ints
    leader: Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowLoads:
    """The loads of partitions in one window: their rows among the assignments, and each measure of `load_profiles`.

    An unknown load is NaN.
    """

    window: str
    row: Ints
    measures: Mapping[str, Floats]


def effect_rows(
    before: Assignments, after: Assignments, loads: Iterable[WindowLoads], counted: tuple[Collection[int], ...]
) -> Iterator[Row]:
    """Yield the rows of EFFECT; `counted` has the brokers that share the load before and after."""
    sides = before, after
    ids = np.unique(np.concatenate([side.replicas.ravel() for side in sides] + [[*some] for some in counted]))
    ids = ids[ids != NO_LEADER]
    is_counted = [np.isin(ids, [*some]) for some in counted]
    for some in loads:
        leads = int(_leads(before, some.row).sum())
        size = np.nan_to_num(some.measures["size_bytes"])
        lists = before.replicas[some.row], after.replicas[some.row]
        held = (lists[1][:, :, None] == lists[0][:, None, :]).any(axis=2)
        copied = float((size[:, None] * ((lists[1] != NO_LEADER) & ~held)).sum())
        by_resource = [_loads(side, some) for side in sides]
        for resource in by_resource[0]:
            if not _is_known(resource, some.measures):
                continue
            sums = [
                _sums(ids, side.replicas[some.row], of[resource]) for side, of in zip(sides, by_resource, strict=True)
            ]
            change = abs(sums[1] - sums[0]) > ROUNDING * np.maximum(*sums)
            row = {"resource": resource, "window": some.window, "changes": bool(change.any())}
            for name, total, marks in zip(SIDES, sums, is_counted, strict=True):
                top = total[marks].argmax()
                row |= {f"most_{name}": float(total[marks][top]), f"least_{name}": float(total[marks].min())}
                row |= {
                    f"mean_{name}": float(total[marks].mean()),
                    f"broker_{name}": int(ids[marks][top]) if total[marks][top] else None,
                }
            yield row | {"partitions": leads, "copied_bytes": copied}


def _loads(side: Assignments, some: WindowLoads) -> dict[str, Floats]:
    """Return the load of each replica by (row, slot) and resource; see `plan_effect`."""
    replicas = side.replicas[some.row]
    held, leads = replicas != NO_LEADER, _leads(side, some.row)
    known = {name: np.nan_to_num(values)[:, None] for name, values in some.measures.items()}
    sent = known["bytes_out"] + known["bytes_in"] * (held.sum(axis=1, keepdims=True) - 1)
    return {
        "disk": held * known["size_bytes"],
        "in": held * known["bytes_in"],
        "out": leads * sent,
        "cpu": held * np.where(leads, known["cpu_leader"], known["cpu_follower"]),
    }


def _leads(side: Assignments, rows: Ints) -> Bools:
    """Mark the replica of each row that leads, by (row, slot)."""
    replicas = side.replicas[rows]
    marks: Bools = (replicas != NO_LEADER) & (replicas == side.leader[rows, None])
    return marks


_MEASURES_OF: Final = {
    "disk": ("size_bytes",),
    "in": ("bytes_in",),
    "out": ("bytes_in", "bytes_out"),
    "cpu": ("cpu_leader", "cpu_follower"),
}


def _is_known(resource: str, measures: Mapping[str, Floats]) -> bool:
    return any(not np.isnan(measures[name]).all() for name in _MEASURES_OF[resource])


def _sums(ids: Ints, replicas: Ints, loads: Floats) -> Floats:
    held = replicas != NO_LEADER
    sums: Floats = np.bincount(np.searchsorted(ids, replicas[held]), loads[held], len(ids)).astype(np.float64)
    return sums
