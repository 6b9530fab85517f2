"""`surveyor metrics`: metrics for Prometheus, printed, written to a file for node_exporter, or served over HTTP.

The name of every metric family starts with `surveyor_`, and every sample has the label `cluster`. Metrics that are
unknown before the first snapshot are omitted, so that they are not mistaken for zero. It needs no JVM.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jobs.adapters.delta.warehouse import Row
from jobs.adapters.delta.warehouse_paths import no_warehouse
from jobs.adapters.http.server import SinglePageServer, parse_address
from jobs.core.errors import UsageError
from jobs.repositories.plans.outcomes import Outcomes, read_outcomes
from jobs.repositories.snapshots import find_snapshot
from jobs.repositories.warehouse_status import WarehouseStatus, default_min_isr_of, read_warehouse_status
from jobs.runtime.atomic_files import refuse_unwritable, replace_file
from jobs.runtime.console import emit_result, log
from jobs.runtime.prometheus_text import CONTENT_TYPE, Family, Sample, merged, render
from jobs.runtime.settings import Settings
from jobs.snapshots.cluster_view import view_of
from jobs.snapshots.health import Health, health_of
from schemas.enums import Outcome

PATH: Final = "/metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The data of one cluster from which metrics are computed."""

    cluster: str
    now: datetime
    recent: WarehouseStatus
    health: Health | None
    """Health at the last snapshot; None before the first."""
    outcomes: Outcomes

    def family(self, name: str, text: str, value: float | None) -> Family:
        """Return a gauge with one value, or with no sample if it is None."""
        return self.by("", name, text, {} if value is None else {"": value})

    def by(self, label: str, name: str, text: str, values: Mapping[Any, float]) -> Family:
        """Return a gauge with a sample for each key of `values`."""
        samples = (Sample(self._labels(label, key), value) for key, value in values.items())
        return Family(f"surveyor_{name}", text, tuple(samples))

    def _labels(self, label: str, key: object) -> dict[str, str]:
        return {"cluster": self.cluster} | ({label: str(key)} if label else {})

    def seconds_since(self, moment: datetime | None) -> float | None:
        return None if moment is None else round((self.now - moment).total_seconds(), 3)


def write_metrics(settings: Settings, out: Path | None, listen: str | None) -> None:
    """Print the metrics, write them to a file, or serve them until interrupted."""
    if listen is None:
        _write(settings, out)
    elif out is not None or not settings.for_people:
        raise UsageError("--listen serves the metrics, while --out, --json and -o write them once; choose one of these")
    else:
        _serve(settings, listen)


def _write(settings: Settings, out: Path | None) -> None:
    if out is not None:
        refuse_unwritable(out)
    families = _families_of_all(settings)
    text = render(families)
    result = {"samples": [_sample_row(family, sample) for family in families for sample in family.samples]}
    if out is None:
        emit_result(settings, result)
        if settings.for_people:
            print(text, end="")  # noqa: T201 - the text that Prometheus reads
        return
    replace_file(out, text)
    emit_result(settings, result, f"{len(result['samples'])} samples written to {out}")


def _sample_row(family: Family, sample: Sample) -> Row:
    return {"name": family.name, "type": family.type, **asdict(sample)}


def _serve(settings: Settings, listen: str) -> None:
    """Serve the metrics; they are computed for each request.

    A read error at the start ends the command, because it is most likely a wrong option. Later errors may be temporary.
    """
    address = parse_address("--listen", listen)
    _families_of_all(settings)
    with SinglePageServer(address, PATH, CONTENT_TYPE, lambda: render(_families_of_all(settings))) as page:
        log(f"surveyor: metrics at {page.url}; press Ctrl-C to stop")
        page.serve_forever()


def _families_of_all(settings: Settings) -> list[Family]:
    """Return the families of all clusters; a single cluster must have a snapshot, as its name may be wrong."""
    if not settings.fleet:
        find_snapshot(settings.lake)
    clusters = settings.fleet or (settings,)
    return merged(family for cluster in clusters for family in families(read_figures(cluster, datetime.now(UTC))))


def read_figures(settings: Settings, now: datetime) -> Figures:
    """Read the data of one cluster; raise UnreadableError if there is no warehouse."""
    lake = settings.lake
    if not lake.exists():
        raise no_warehouse(settings.warehouse, "take a `surveyor snapshot` first")
    recent = read_warehouse_status(lake)
    return Figures(
        cluster=settings.cluster,
        now=now,
        recent=recent,
        health=None if recent.snapshot is None else _health(settings, recent),
        outcomes=read_outcomes(lake),
    )


def _health(settings: Settings, recent: WarehouseStatus) -> Health:
    assert recent.snapshot is not None  # noqa: S101 - the caller checks it
    return health_of(
        view_of(settings.lake, recent.snapshot),
        default_min_isr=default_min_isr_of(settings.lake, recent.snapshot),
        threshold=settings.conf.imbalance_threshold,
        drained=[row["broker_id"] for row in recent.drained],
    )


def families(figures: Figures) -> Iterator[Family]:
    """Return the metric families of one cluster."""
    for group in GROUPS:
        yield from group(figures)


def _of_snapshot(figures: Figures) -> Iterator[Family]:
    snapshot = figures.recent.snapshot or {}
    taken_at = snapshot.get("taken_at")
    yield figures.family("snapshot_id", "Id of the last snapshot.", snapshot.get("snapshot_id"))
    yield figures.family(
        "last_snapshot_timestamp_seconds",
        "Start time of the last snapshot.",
        None if taken_at is None else taken_at.timestamp(),
    )
    yield figures.family(
        "last_snapshot_age_seconds",
        "Age of the last snapshot when these metrics were computed.",
        figures.seconds_since(taken_at),
    )
    yield figures.family("last_snapshot_duration_seconds", "Duration of the last snapshot.", snapshot.get("seconds"))


def _of_partitions(figures: Figures) -> Iterator[Family]:
    if (health := figures.health) is None:
        return
    yield figures.family("topics", "Topics.", health.topics)
    yield figures.family("partitions", "Partitions.", health.partitions)
    for name, text in PARTITIONS.items():
        yield figures.family(f"{name}_partitions", text, getattr(health, name))
    yield figures.family("quarantined_znodes", "Znodes that could not be parsed.", health.quarantined)
    yield figures.family("blocking_znodes", "Znodes that prevent a part of Kafka from starting.", len(health.blocking))
    yield figures.family(
        "topic_configs_not_understood",
        "Topics whose config could not be parsed completely; it allows no unclean election.",
        health.configs_not_understood,
    )


PARTITIONS: Final[Mapping[str, str]] = {
    "offline": "Partitions without a live leader.",
    "under_replicated": "Partitions with a replica that is not in sync.",
    "under_min_isr": "Partitions with fewer in-sync replicas than min.insync.replicas.",
    "moving": "Partitions with a running or requested reassignment.",
    "without_state": "Partitions with an assignment that never had a leader.",
    "leader_outside_isr": "Partitions led by a live broker that is not in the ISR; Kafka does not change them.",
    "not_understood": "Partitions with a znode that could not be parsed; they count in no other metric.",
    "mendable": "Partitions that `plan reconcile` can repair without data loss.",
    "stuck": "Offline partitions without an in-sync replica that can lead.",
    "led_by_drained": "Partitions led by a drained broker, because no other replica was in sync.",
}
"""Counts of Health with a metric family each."""


def _of_brokers(figures: Figures) -> Iterator[Family]:
    if (health := figures.health) is None:
        return
    brokers = {"live": len(health.live), "gone": len(health.gone), "not_understood": len(health.not_understood_brokers)}
    yield figures.by(
        "status", "brokers", "Brokers: live, gone (unregistered but in use by partitions), not_understood.", brokers
    )
    yield figures.by("broker", "gone_broker_partitions", "Partitions that refer to a broker that is gone.", health.gone)
    yield figures.family("controller_id", "Id in /controller, -1 for none.", health.controller_id)
    yield figures.family("controller_epoch", "Number in /controller_epoch.", health.controller_epoch)
    yield figures.family("drained_brokers", "Drained brokers.", len(figures.recent.drained))
    for name, column, text in IMBALANCE:
        values = {row["broker_id"]: row[column] for row in health.imbalance}
        yield figures.by("broker", name, text, values)


IMBALANCE: Final = (
    ("preferred_partitions", "preferred_partitions", "Partitions whose preferred leader is this broker."),
    (
        "preferred_partitions_not_led",
        "not_led",
        "Partitions whose preferred leader is this broker but that it does not lead.",
    ),
    ("imbalance_ratio", "ratio", "Share of its preferred partitions that a broker does not lead."),
)


def _of_plans(figures: Figures) -> Iterator[Family]:
    outcomes = figures.outcomes
    yield figures.by("status", "plans", "Plans by status, without the cycles of `surveyor control`.", outcomes.plans)
    done = {outcome: count for outcome, count in outcomes.rows.items() if outcome != Outcome.PENDING}
    counted = figures.by("outcome", "commit_rows_total", "Rows of plans processed by commits, by outcome.", done)
    yield Family(counted.name, counted.help, counted.samples, "counter")
    yield figures.family(
        "commit_rows_pending",
        "Rows with a recorded intent to write and no recorded outcome.",
        outcomes.rows[Outcome.PENDING],
    )
    last = outcomes.last_commit_at
    yield figures.family(
        "last_commit_timestamp_seconds",
        "Time of the last record of a commit.",
        None if last is None else last.timestamp(),
    )
    yield figures.family(
        "last_commit_age_seconds",
        "Age of the last record of a commit when these metrics were computed.",
        figures.seconds_since(last),
    )


GROUPS: Final[tuple[Callable[[Figures], Iterator[Family]], ...]] = (
    _of_snapshot,
    _of_partitions,
    _of_brokers,
    _of_plans,
)
