"""The status of a cluster and what is due on it, read from the cluster or from a snapshot.

Concurrently, the age of the last snapshot, open plans and the brokers' min.insync.replicas are read from the warehouse.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Thread
from typing import Any

from jobs.adapters.brokers.admin_client import read_properties, require_credentials
from jobs.adapters.delta.warehouse import Warehouse
from jobs.advice.next_steps import ClusterSituation, UncommittedPlan, next_steps, uncommitted_plans
from jobs.advice.outage import outage_now
from jobs.advice.reassignments import MAX_MOVES_ATTRIBUTED, owners_of
from jobs.core.errors import SurveyorError
from jobs.measurement.load_summary import LoadFindings, read_load_findings
from jobs.repositories.drained_brokers import has_registered_again
from jobs.repositories.log_sizes import bytes_by_broker
from jobs.repositories.plans.assumptions import assumptions_now
from jobs.repositories.plans.moving_plans import MovingPlan
from jobs.repositories.snapshots import find_snapshot, other_cluster
from jobs.repositories.vanished_topics import vanished_topics
from jobs.repositories.warehouse_status import (
    WarehouseStatus,
    known_min_isr_of,
    missing_since,
    removed_brokers,
    warehouse_status_if_readable,
)
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, with_full_command
from jobs.snapshots.cluster_view import ClusterView, view_now, view_of, with_last_known_replicas
from jobs.snapshots.copy_throttles import throttles_of_view
from jobs.snapshots.health import Health, comparable_brokers, health_of, reassignments_in
from planner.columns.broker_skew import BYTES, EMPTY, FAR_BYTES, far_from_even
from schemas.enums import PlanStatus
from schemas.lease_holder import LeaseHolder
from schemas.topic_configs import DEFAULT_MIN_ISR


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The status of a cluster at one time."""

    settings: Settings
    source: str
    """Description of what was read."""
    snapshot_id: int | None
    """The snapshot that was read, None for the live cluster."""
    taken_at: datetime | None
    """Time of the snapshot, None for the live cluster."""
    situation: ClusterSituation
    surveyor_id: int
    """Controller id of `surveyor control` and of commits in batch mode."""
    min_isr_assumed: bool
    """Whether Kafka's default min.insync.replicas is assumed, because no snapshot has a broker's value."""
    warnings: list[str]
    """Places in which unknown throttles may be set."""
    credentials_fault: str | None = None
    """Reason why no request to brokers is possible, None if credentials are valid, not needed or not checked."""

    @property
    def steps(self) -> list[Suggestion]:
        """The pending work, with commands for this cluster and warehouse."""
        return [with_full_command(self.settings, step) for step in next_steps(self.situation)]

    @property
    def uncommitted(self) -> list[UncommittedPlan]:
        """Plans that no commit has begun with, with commands for this cluster and warehouse."""
        return [
            replace(
                plan,
                review=with_full_command(self.settings, plan.review),
                discard=plan.discard and with_full_command(self.settings, plan.discard),
            )
            for plan in uncommitted_plans(self.situation)
        ]

    @property
    def json(self) -> dict[str, Any]:
        last = self.situation.warehouse_status.snapshot
        age = {"age_seconds": self.situation.snapshot_age}
        return {
            "cluster": self.settings.cluster,
            "at": self.situation.now,
            "snapshot_id": self.snapshot_id,
            "taken_at": self.taken_at,
            **self.situation.health.json,
            "vanished_topics": self.situation.vanished and self.situation.vanished.json,
            "moving_plans": [plan.row.plan_id for plan in self.situation.moving_plans],
            "outage": self.situation.outage and self.situation.outage.json,
            "drained": [
                {"broker_id": row.broker_id, "mode": row.mode, "since": row.since, "plan_id": row.plan_id}
                | {"by": self.situation.warehouse_status.drained_by.get(row.plan_id or "")}
                for row in self.situation.warehouse_status.drained
            ],
            "load": self.situation.load and self.situation.load.json,
            "min_isr_assumed": self.min_isr_assumed,
            "warehouse_fault": self.situation.warehouse_status.fault,
            "last_snapshot": last and {"snapshot_id": last.snapshot_id, "taken_at": last.taken_at, **age},
            "warnings": [*filter(None, [self.credentials_fault]), *self.warnings],
            "due": [{"what": step.what, "command": step.command} for step in self.steps],
            "uncommitted_plans": [
                {
                    "plan_id": plan.plan_id,
                    "what": plan.review.what,
                    "command": plan.review.command,
                    "discard": plan.discard and plan.discard.command,
                }
                for plan in self.uncommitted
            ],
        }


def _without_other_cluster(recent: WarehouseStatus, settings: Settings, cluster_id: str | None) -> WarehouseStatus:
    """Return `recent`, or only a fault if its snapshots are of another cluster or can no longer be read."""
    try:
        fault = other_cluster(settings.warehouse, cluster_id, settings.address)
    except (SurveyorError, OSError) as error:
        fault = str(error)
    return recent if fault is None else WarehouseStatus(fault=fault)


def _may_be_leased(recent: WarehouseStatus) -> bool:
    return bool(recent.throttled) or any(plan.status == PlanStatus.COMMITTING for plan in recent.plans)


def _lease_holder(settings: Settings) -> LeaseHolder | None:
    """Return the holder of the cluster's lease, None if there is none or it cannot be read."""
    try:
        with settings.connect() as cluster:
            return cluster.read_lease_holder()
    except (SurveyorError, OSError):
        return None


class CredentialsCheck:
    """A check in a thread of whether brokers would accept requests, for a cluster whose state is read from ZooKeeper.

    The status does not need them, so it waits a short time only, as for a KDC that does not answer, and runs no command
    for a token. `surveyor doctor` does. The thread does not prevent the process from ending.
    """

    wait_seconds = 2.0
    """Seconds after which the status, which needs no credentials with ZooKeeper, is given without a fault of theirs."""
    interval_seconds = 60.0
    """Seconds between two checks of the credentials while the status is shown repeatedly."""

    def __init__(self, settings: Settings, require: Callable[..., None] = require_credentials) -> None:
        self._settings, self._require = settings, require
        self._is_needed = settings.conf.command_config is not None and settings.has_zookeeper
        self._started_at = -self.interval_seconds
        self._thread: Thread | None = None
        self._fault: str | None = None

    def start(self) -> None:
        """Start the check unless it runs, or ended a short time ago."""
        is_recent = time.monotonic() < self._started_at + self.interval_seconds
        if not self._is_needed or is_recent or (self._thread and self._thread.is_alive()):
            return
        self._started_at = time.monotonic()
        # messages name the places of options of this cluster
        self._thread = Thread(target=copy_context().run, args=(self._run,), name="credentials", daemon=True)
        self._thread.start()

    def fault(self) -> str | None:
        """Return why no broker would accept a request, None if that is not known in time."""
        if self._thread:
            self._thread.join(max(0.0, self._started_at + self.wait_seconds - time.monotonic()))
        return self._fault

    def _run(self) -> None:
        try:
            self._require(read_properties(self._settings.conf.command_config), run_commands=False)
        except SurveyorError as error:
            self._fault = str(error)
        else:
            self._fault = None


def _copy_throttles(warehouse: Warehouse, view: ClusterView, recent: WarehouseStatus) -> list[tuple[str | None, str]]:
    if recent.fault is not None:
        return []
    throttles = throttles_of_view(view, recent.throttles)
    return [(throttle.plan_id, throttle.stored_text(warehouse)) for throttle in throttles]


def _moving_plans(settings: Settings, view: ClusterView, health: Health) -> list[MovingPlan]:
    return owners_of(settings.warehouse, [*health.stalled, *reassignments_in(view, health.live, MAX_MOVES_ATTRIBUTED)])


def _with_bytes(health: Health, warehouse: Warehouse, racks: Mapping[int, str | None]) -> Health:
    """Add whether bytes are far from even, by the last `surveyor sizes`; an empty broker has a remedy of its own."""
    if any(skew.quantity == EMPTY for skew in health.skew):
        return health
    sizes, taken_at = bytes_by_broker(warehouse) if warehouse.exists() else ({}, None)
    compared = {broker: held for broker, held in sizes.items() if broker in racks}
    skew = far_from_even(BYTES, compared, racks, FAR_BYTES)
    return replace(health, skew=[*health.skew, *filter(None, [skew])], sizes_taken_at=taken_at)


def _load_if_readable(settings: Settings, recent: WarehouseStatus) -> LoadFindings | None:
    """Return what a person must know of the load; None if the tables lack it or cannot be read."""
    if recent.fault is not None:
        return None
    try:
        return read_load_findings(settings, recent.snapshot, datetime.now(UTC))
    except (SurveyorError, OSError):
        return None


def read_status(
    settings: Settings, snapshot_id: int | None, credentials: CredentialsCheck | None = None
) -> ClusterStatus:
    """Read the cluster and, concurrently, the warehouse; `credentials` is a check that earlier calls started."""
    login = None if snapshot_id is not None else credentials or CredentialsCheck(settings)
    if login:
        login.start()
    threshold = settings.conf.imbalance_threshold
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(warehouse_status_if_readable, settings.warehouse)
        load = None
        if snapshot_id is None:
            snapshot = None
            load = pool.submit(lambda: _load_if_readable(settings, reading.result()))
            with settings.connect(settings.pace.live) as cluster:
                view, source = view_now(cluster), str(cluster)
        else:
            snapshot = find_snapshot(settings.warehouse, snapshot_id)
            view, source = view_of(settings.warehouse, snapshot), f"snapshot {snapshot_id}"
        recent = reading.result()
    credentials_fault = login.fault() if login else None
    if snapshot is None and recent.snapshot is not None:
        recent = _without_other_cluster(recent, settings, view.cluster_id)
    if snapshot is None and recent.fault is None:
        view = with_last_known_replicas(view, settings.warehouse, recent.snapshot)
    if snapshot is not None:  # exclude what is later than the snapshot
        plans = [plan for plan in recent.plans if plan.snapshot_id <= snapshot.snapshot_id]
        recent = replace(recent, plans=plans, latest_epoch=0)
    config_snapshot = snapshot or recent.snapshot
    registered = {row.broker_id: row.broker_epoch for row in view.brokers}
    recent = replace(recent, drained=[row for row in recent.drained if not has_registered_again(row, registered)])
    drained = [row.broker_id for row in recent.drained]
    min_isr = known_min_isr_of(settings.warehouse, config_snapshot)
    default_min_isr = DEFAULT_MIN_ISR if min_isr is None else min_isr
    history = None if recent.fault else settings.warehouse
    health = health_of(view, default_min_isr=default_min_isr, threshold=threshold, drained=drained)
    if snapshot is None and recent.fault is None:
        health = _with_bytes(health, settings.warehouse, comparable_brokers(view, drained))
    is_known = recent.fault is None and recent.snapshot is not None and view.hidden_topics is None
    before = snapshot.snapshot_id if snapshot else None
    emptied = {broker for skew in health.skew if skew.quantity == EMPTY for broker in skew.amounts}
    if snapshot is None and recent.fault is None and emptied:
        recent = replace(recent, removed=removed_brokers(settings.warehouse, emptied, registered))
    situation = ClusterSituation(
        health=health,
        warehouse_status=recent,
        now=datetime.now(UTC),
        max_plan_age=settings.conf.limits.max_plan_age_hours * 3600,
        outage=outage_now(view, history, config_snapshot) if health.offline_without_isr else None,
        missing_since=missing_since(settings.warehouse, config_snapshot, health.gone) if config_snapshot else {},
        vanished=vanished_topics(settings.warehouse, view.configs, before=before) if is_known else None,
        holder=_lease_holder(settings) if snapshot is None and _may_be_leased(recent) else None,
        moving_plans=_moving_plans(settings, view, health) if recent.fault is None else (),
        copy_throttles=_copy_throttles(settings.warehouse, view, recent),
        load=load.result() if load and recent.fault is None else None,
        names=view.names,
    )
    shown = situation.plans_shown
    assumptions = {plan.plan_id: assumptions_now(settings.warehouse, plan, view.brokers) for plan in shown}
    return ClusterStatus(
        settings=settings,
        source=source,
        snapshot_id=snapshot_id,
        taken_at=snapshot.taken_at if snapshot else None,
        situation=replace(situation, assumptions=assumptions),
        surveyor_id=settings.conf.controller_id,
        min_isr_assumed=min_isr is None,
        credentials_fault=credentials_fault,
        warnings=view.throttle_warnings,
    )
