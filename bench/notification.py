"""How long a commit in batch mode holds the controllership: writing, and notifying brokers that answer at once."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from bench.clusters.synthetic import BROKER_COUNT, TOPIC_SIZE, Cluster, cluster, replicas
from bench.figures import Figure
from jobs.adapters.zookeeper.cluster_state import read_cluster
from jobs.adapters.zookeeper.connection import ZooKeeperSession
from jobs.adapters.zookeeper.controllership import controllership
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.execution.batch.batch_commit import CommitContext, _write_and_notify
from jobs.execution.batch.notification import HoldBudget
from jobs.repositories.plans.commit_log import CommitLog
from jobs.runtime.progress import progress
from jobs.runtime.settings import ClusterConf, Settings
from schemas.enums import Action, PlanKind, PlanStatus
from schemas.rows import Change, PlanRecord, Row
from schemas.stored_plan import Plan
from schemas.tables import CHANGES

CHANGE_COUNT: Final = 100_000
NOTIFIED_BROKERS: Final = 30
HELD_AT_MOST: Final = 15.0
"""Seconds; half of the default of --max-hold."""


def bench_notification(changes: int = CHANGE_COUNT) -> Figure:
    """Commit a leader for every partition, each sent to three of thirty brokers, and its metadata to all."""
    with (
        cluster(changes) as synthetic,
        instant_brokers(NOTIFIED_BROKERS) as ports,
        tempfile.TemporaryDirectory() as folder,
    ):
        synthetic.listen(ports)
        for broker in range(len(ports), BROKER_COUNT):
            synthetic.client.delete(f"/brokers/ids/{broker}")
        settings = Settings("bench", folder, ClusterConf(zookeeper=synthetic.hosts))
        plan, endpoint = _plan(settings, synthetic), ZooKeeperEndpoint(synthetic.hosts)
        with (
            progress(f"committing {changes:,} changes"),
            controllership(endpoint, 2147483647) as control,
        ):
            commit_log = CommitLog.open(settings.warehouse, plan)
            context = CommitContext(settings, ZooKeeperSession(endpoint), commit_log, HoldBudget(600.0))
            notified = _write_and_notify(context, control, plan.changes)
            seconds = control.held()
        assert len(notified.written) == changes, f"{len(notified.written)} of {changes} written"
        assert all(response.error == 0 for response in notified.responses), "a broker was not notified"
        return Figure(
            measured=f"hold the controllership: {changes:,} changes written, {len(ports)} brokers notified",
            seconds=seconds,
            baseline="what it may take",
            baseline_seconds=HELD_AT_MOST,
            target=1.0 if changes >= CHANGE_COUNT else None,
        )


@contextmanager
def instant_brokers(count: int) -> Iterator[list[int]]:
    """Start brokers that answer at once; their ports."""
    command = [sys.executable, "-m", "bench.clusters.instant_brokers", str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        yield [int(process.stdout.readline()) for _ in range(count)]
        process.stdin.close()


def _plan(settings: Settings, synthetic: Cluster) -> Plan:
    settings.warehouse.ensure_tables()
    state = read_cluster(synthetic.client)
    row: Row = {
        "cluster": "bench",
        "plan_id": "0" * 16,
        "snapshot_id": 1,
        "kind": PlanKind.ELECT.value,
        "parameters": "{}",
        "created_at": datetime.now(UTC),
        "status": PlanStatus.PLANNED.value,
        "cluster_id": state.cluster_id,
        "brokers": [{"broker_id": broker, "broker_epoch": epoch} for broker, epoch in sorted(state.live.items())],
    }
    settings.warehouse.replace("plans", [row])
    (stored,) = settings.warehouse.typed_rows(PlanRecord)
    return Plan(stored, [msgspec.convert(_change(number), Change) for number in range(synthetic.partitions)], [], [])


def _change(number: int) -> Row:
    topic, partition = divmod(number, TOPIC_SIZE)
    before = replicas(topic + partition)
    after = [(number + j) % NOTIFIED_BROKERS for j in range(3)]
    same: dict[str, Any] = {"adding": [], "removing": [], "leader_recovery_state": 0}
    return {
        **dict.fromkeys(CHANGES.names),
        "cluster": "bench",
        "plan_id": "0" * 16,
        "reason": "measured",
        **{f"{name}_{when}": value for name, value in same.items() for when in ("before", "after")},
        "wave": 0,
        "topic": f"topic-{topic:05d}",
        "partition": partition,
        "action": Action.ELECT.value,
        "replicas_before": before,
        "replicas_after": after,
        "isr_before": before,
        "isr_after": after,
        "leader_before": before[0],
        "leader_after": after[0],
        "leader_epoch_before": 0,
        "leader_epoch_after": 1,
        "state_version": 0,
        "topic_version": 0,
        "is_new": False,
        "leader_and_isr_to": after,
        "requires_live": after,
        "requires_dead": [],
    }
