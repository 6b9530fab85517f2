"""The load before and after a plan as stored in the column `figures` of `plans`.

Loads are compared as multiples of the share that a broker should have, by capacity or of the mean, so that all
resources have one measure. The worst broker of a resource is the one with the highest multiple in any window. The
figures explain a plan; neither its id nor its commit depends on them.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Struct

from schemas.rows import PlanRecord

MEASURES: Final = ("bytes_in", "bytes_out", "size_bytes", "cpu_leader", "cpu_follower")
"""The columns of `load_profiles` that loads of brokers are summed from."""

MEASURES_OF: Final = {
    "disk": ("size_bytes",),
    "in": ("bytes_in",),
    "out": ("bytes_in", "bytes_out"),
    "cpu": ("cpu_leader", "cpu_follower"),
}
"""By resource the measures, one of which must be known for the load of a partition on it to be known."""

ROUNDING: Final = 1e-9
"""Sums of the same loads in another order differ by less than this share."""

WIDENED: Final = 0.02
"""How much a plan may raise the worst multiple of a resource without a warning."""

UNEVEN: Final = 1.1
"""Multiples of the mean up to which a resource counts as even, however much a plan raises them."""

MULTIPLE_DIGITS: Final = 4
"""Decimals of a multiple of the mean that distinguish two windows."""

SCALES: Final = ("the mean", "its share by capacity")
"""Names of the share of a resource that a broker should have: the same for all, and by capacity."""

SHARES: Final = ("the mean", "its share (by capacity where that differs)")
"""The same for multiples of several resources, of which the capacities of some may be equal or unknown."""

SIDES: Final = ("before", "after")

Sides = tuple[float | None, float | None]
"""A multiple of the share before and after a plan; None if the mean is 0."""


class ResourceEffect(Struct, frozen=True, kw_only=True):
    """The most and the least loaded broker of a resource in one window, before and after."""

    resource: str
    window: str
    most: tuple[float, float]
    least: tuple[float, float]
    mean: tuple[float, float]
    broker: tuple[int | None, int | None]
    """The broker with the most load by its share."""
    most_share: tuple[float, float] = (1.0, 1.0)
    """The share by capacity of this broker, as a multiple of the mean."""
    least_share: tuple[float, float] = (1.0, 1.0)
    by_capacity: bool = False
    """Whether shares differ by capacity."""
    changes: bool
    """Whether the load of some broker changes."""

    @property
    def worst(self) -> Sides:
        return self._multiples(self.most, self.most_share)

    @property
    def best(self) -> Sides:
        """The multiples of its share of the least loaded broker."""
        return self._multiples(self.least, self.least_share)

    @property
    def scale(self) -> str:
        """The name of the share that multiples are of."""
        return SCALES[self.by_capacity]

    def _multiples(self, loads: tuple[float, float], shares: tuple[float, float]) -> Sides:
        before, after = (
            load / (mean * share) if mean else None for load, mean, share in zip(loads, self.mean, shares, strict=True)
        )
        return before, after


class LoadFigures(Struct, frozen=True, kw_only=True):
    """The figures of a plan by measured or imported load."""

    bytes: int | None = None
    """Bytes of the replicas that the plan copies, as far as their size is known; None if no size is known."""
    bytes_bound: int | None = None
    """The least bytes that any plan with the same goal copies; None for plans that do not even loads."""
    worst_before: float | None = None
    """The highest multiple of its share of any broker, resource and window."""
    worst_after: float | None = None
    loads: str = ""
    """The rows that the loads are from."""
    partitions: int = 0
    """Partitions with a leader and a load, in the window that has most of them."""
    partitions_total: int = 0
    effects: list[ResourceEffect] = []

    @property
    def by_resource(self) -> dict[str, list[ResourceEffect]]:
        """The effects on resources of which the plan changes the load of some broker."""
        changed = {effect.resource for effect in self.effects if effect.changes}
        return {
            resource: [effect for effect in self.effects if effect.resource == resource]
            for resource in RESOURCE_NAMES
            if resource in changed
        }


RESOURCE_NAMES: Final = {"in": "bytes in", "out": "bytes out", "disk": "disk", "cpu": "CPU"}
"""The resources of brokers in the order shown, with their names."""


def worst_of(effects: Iterable[ResourceEffect], side: int) -> ResourceEffect | None:
    """Return the effect with the highest multiple, before (0) or after (1); None without any load.

    Of windows with the same multiple it is the one with the highest load.
    """
    loaded = [
        (round(multiple, MULTIPLE_DIGITS), effect.mean[side], effect)
        for effect in effects
        if (multiple := effect.worst[side]) is not None
    ]
    return max(loaded, key=lambda worst: worst[:2])[2] if loaded else None


def stored_load(plan: PlanRecord) -> LoadFigures | None:
    """Return the figures of a plan by load; None if it has none, or of a shape that is unknown here."""
    with suppress(msgspec.DecodeError, msgspec.ValidationError):
        return msgspec.json.decode(plan.figures, type=LoadFigures) if plan.figures else None
    return None


def encoded(figures: LoadFigures) -> str:
    """Return the figures as stored in `plans`."""
    return msgspec.json.encode(figures).decode()


def load_in_json(plan: PlanRecord) -> dict[str, Any]:
    """Return the figures for JSON output; empty if the plan has none."""
    return {"load": msgspec.json.decode(plan.figures)} if stored_load(plan) and plan.figures else {}
