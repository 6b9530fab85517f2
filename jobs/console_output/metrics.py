"""`surveyor metrics`: the tables as figures for Prometheus: printed, in a file for node_exporter, or served. No JVM.

Every family begins with `surveyor_` and has the label `cluster`. What cannot be known before the first snapshot is
left out, so that nothing is mistaken for zero.
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
    """What the tables say of one cluster at a moment."""

    cluster: str
    now: datetime
    recent: WarehouseStatus
    health: Health | None
    """As the last snapshot left it; None before the first."""
    outcomes: Outcomes

    def family(self, name: str, text: str, value: float | None) -> Family:
        """A gauge of one value; none if it is not known."""
        return self.by("", name, text, {} if value is None else {"": value})

    def by(self, label: str, name: str, text: str, values: Mapping[Any, float]) -> Family:
        """A gauge with a value for each of several."""
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
        raise UsageError("--listen serves the metrics, --out and --json or -o give them once: choose one of these")
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
            print(text, end="")  # noqa: T201 - what Prometheus reads, and nothing else
        return
    replace_file(out, text)
    emit_result(settings, result, f"{len(result['samples'])} samples written to {out}")


def _sample_row(family: Family, sample: Sample) -> Row:
    return {"name": family.name, "type": family.type, **asdict(sample)}


def _serve(settings: Settings, listen: str) -> None:
    """Serve them, read anew for each request.

    What cannot be read at the start is most likely misspelt; what cannot be read later may be readable again.
    """
    address = parse_address("--listen", listen)
    _families_of_all(settings)
    with SinglePageServer(address, PATH, CONTENT_TYPE, lambda: render(_families_of_all(settings))) as page:
        log(f"surveyor: metrics at {page.url}; Ctrl-C ends it")
        page.serve_forever()


def _families_of_all(settings: Settings) -> list[Family]:
    """Of several clusters some may be new; one alone that no snapshot was taken of is a name that nobody meant."""
    if not settings.fleet:
        find_snapshot(settings.lake)
    clusters = settings.fleet or (settings,)
    return merged(family for cluster in clusters for family in families(read_figures(cluster, datetime.now(UTC))))


def read_figures(settings: Settings, now: datetime) -> Figures:
    """Read what the metrics are made of; raise UnreadableError where there is no warehouse."""
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
    assert recent.snapshot is not None  # noqa: S101 - the caller has looked
    return health_of(
        view_of(settings.lake, recent.snapshot),
        default_min_isr=default_min_isr_of(settings.lake, recent.snapshot),
        threshold=settings.conf.imbalance_threshold,
        drained=[row["broker_id"] for row in recent.drained],
    )


def families(figures: Figures) -> Iterator[Family]:
    """Make the families of one cluster."""
    for group in GROUPS:
        yield from group(figures)


def _of_snapshot(figures: Figures) -> Iterator[Family]:
    snapshot = figures.recent.snapshot or {}
    taken_at = snapshot.get("taken_at")
    yield figures.family("snapshot_id", "Id of the last snapshot.", snapshot.get("snapshot_id"))
    yield figures.family(
        "last_snapshot_timestamp_seconds",
        "When the last snapshot was begun.",
        None if taken_at is None else taken_at.timestamp(),
    )
    yield figures.family(
        "last_snapshot_age_seconds",
        "How long ago that was, when these metrics were made.",
        figures.seconds_since(taken_at),
    )
    yield figures.family("last_snapshot_duration_seconds", "How long it took.", snapshot.get("seconds"))


def _of_partitions(figures: Figures) -> Iterator[Family]:
    if (health := figures.health) is None:
        return
    yield figures.family("topics", "Topics.", health.topics)
    yield figures.family("partitions", "Partitions.", health.partitions)
    for name, text in PARTITIONS.items():
        yield figures.family(f"{name}_partitions", text, getattr(health, name))
    yield figures.family("quarantined_znodes", "Znodes that could not be understood.", health.quarantined)
    yield figures.family("blocking_znodes", "Znodes over which something of Kafka cannot start.", len(health.blocking))
    yield figures.family(
        "topic_configs_not_understood",
        "Topics of whose config something could not be understood; it allows no unclean election.",
        health.configs_not_understood,
    )


PARTITIONS: Final[Mapping[str, str]] = {
    "offline": "Partitions whose leader is dead, or that have none.",
    "under_replicated": "Partitions with a replica that is not in sync.",
    "under_min_isr": "Partitions with fewer in sync than min.insync.replicas.",
    "moving": "Partitions that are being reassigned, or are ordered to be.",
    "without_state": "Partitions that are assigned and never had a leader.",
    "leader_outside_isr": "Partitions led by a live broker that is not in the ISR; Kafka leaves them as they are.",
    "not_understood": "Partitions of which a znode could not be understood; they count as nothing else.",
    "mendable": "Partitions that `plan reconcile` finds a change for, without loss.",
    "stuck": "Offline partitions that no replica in sync could lead.",
    "led_by_drained": "Partitions that a drained broker leads, as no other replica was in sync.",
}
"""Counts of Health that become a family each."""


def _of_brokers(figures: Figures) -> Iterator[Family]:
    if (health := figures.health) is None:
        return
    brokers = {"live": len(health.live), "gone": len(health.gone), "not_understood": len(health.not_understood_brokers)}
    yield figures.by(
        "status", "brokers", "Brokers: registered, named by partitions and not registered, not understood.", brokers
    )
    yield figures.by("broker", "gone_broker_partitions", "Partitions that name a broker that is gone.", health.gone)
    yield figures.family("controller_id", "Id in /controller, -1 for none.", health.controller_id)
    yield figures.family("controller_epoch", "Number in /controller_epoch.", health.controller_epoch)
    yield figures.family("drained_brokers", "Brokers that are drained.", len(figures.recent.drained))
    for name, column, text in IMBALANCE:
        values = {row["broker_id"]: row[column] for row in health.imbalance}
        yield figures.by("broker", name, text, values)


IMBALANCE: Final = (
    ("preferred_partitions", "preferred_partitions", "Partitions that prefer a broker as their leader."),
    ("preferred_partitions_not_led", "not_led", "Of these, the ones that it does not lead."),
    ("imbalance_ratio", "ratio", "The share of these."),
)


def _of_plans(figures: Figures) -> Iterator[Family]:
    outcomes = figures.outcomes
    yield figures.by("status", "plans", "Plans by status, without the cycles of `surveyor control`.", outcomes.plans)
    done = {word: count for word, count in outcomes.rows.items() if word != Outcome.PENDING}
    counted = figures.by("outcome", "commit_rows_total", "Rows of plans that commits came to, by outcome.", done)
    yield Family(counted.name, counted.help, counted.samples, "counter")
    yield figures.family(
        "commit_rows_pending",
        "Rows that a commit was about to write and has not recorded an outcome of.",
        outcomes.rows[Outcome.PENDING],
    )
    last = outcomes.last_commit_at
    yield figures.family(
        "last_commit_timestamp_seconds",
        "When a commit last recorded something.",
        None if last is None else last.timestamp(),
    )
    yield figures.family(
        "last_commit_age_seconds", "How long ago that was, when these metrics were made.", figures.seconds_since(last)
    )


GROUPS: Final[tuple[Callable[[Figures], Iterator[Family]], ...]] = (
    _of_snapshot,
    _of_partitions,
    _of_brokers,
    _of_plans,
)
