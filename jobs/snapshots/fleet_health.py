"""The health figures of one cluster in the summary of several, live or at a snapshot."""

from collections.abc import Collection
from typing import Final

from msgspec import Struct

from jobs.adapters.delta.warehouse import Warehouse
from jobs.repositories.warehouse_status import default_min_isr_of
from jobs.snapshots.cluster_view import view_of
from jobs.snapshots.health import Health, health_of
from schemas.rows import BrokerImbalance, Snapshot

WORST_BY: Final = (
    "offline",
    "under_min_isr",
    "brokers_gone",
    "under_replicated",
    "not_understood",
    "imbalanced_brokers",
    "imbalance",
)
"""Figures by which clusters are ordered, the gravest first."""

FIGURES_SHOWN: Final = ("offline", "under_min_isr", "under_replicated", "brokers_gone", "imbalance")
"""Figures shown on the console."""


def health_at(warehouse: Warehouse, snapshot: Snapshot, threshold: float, drained: Collection[int]) -> Health:
    """Return the health at a snapshot; `threshold` is the maximum imbalance."""
    return health_of(
        view_of(warehouse, snapshot),
        default_min_isr=default_min_isr_of(warehouse, snapshot),
        threshold=threshold,
        drained=drained,
    )


class HealthFigures(Struct, frozen=True, kw_only=True):
    """The figures of a cluster in a summary; figures of partitions and brokers are counts."""

    offline: int
    under_min_isr: int
    under_replicated: int
    brokers_gone: int
    imbalance: float
    """The share that the worst live broker does not lead."""
    imbalanced_brokers: int
    moving: int
    not_understood: int

    @property
    def severity(self) -> tuple[float, ...]:
        """The figures by which clusters are ordered, the gravest first; see WORST_BY."""
        return tuple(getattr(self, name) for name in WORST_BY)


class ReportedHealth(Struct, frozen=True, kw_only=True):
    """The part of `Health.json` that a summary of several clusters needs."""

    live: list[int]
    gone: list[dict[str, int]]
    offline: int
    under_min_isr: int
    under_replicated: int
    moving: int
    not_understood: int
    imbalance: list[BrokerImbalance]


def figures_of(health: Health | ReportedHealth) -> HealthFigures:
    """Return the figures of a cluster in a summary.

    >>> rows = [BrokerImbalance(broker_id=broker, preferred_partitions=4, not_led=not_led, ratio=not_led / 4,
    ...     exceeds=True, threshold=0.1) for broker, not_led in ((1, 2), (9, 4))]
    >>> counts = dict.fromkeys(("offline", "under_min_isr", "under_replicated", "moving", "not_understood"), 0)
    >>> gone = [{"broker_id": 9, "partitions": 3}]
    >>> figures_of(ReportedHealth(**counts, gone=gone, live=[1], imbalance=rows)) # doctest: +NORMALIZE_WHITESPACE
    HealthFigures(offline=0, under_min_isr=0, under_replicated=0, brokers_gone=1, imbalance=0.5,
                  imbalanced_brokers=1, moving=0, not_understood=0)
    """
    live = [row for row in health.imbalance if row.broker_id in set(health.live)]
    return HealthFigures(
        offline=health.offline,
        under_min_isr=health.under_min_isr,
        under_replicated=health.under_replicated,
        brokers_gone=len(health.gone),
        imbalance=max((row.ratio for row in live), default=0.0),
        imbalanced_brokers=sum(row.exceeds for row in live),
        moving=health.moving,
        not_understood=health.not_understood,
    )
