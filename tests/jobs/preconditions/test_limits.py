"""Limits of a commit, judged from a plan and the state of a cluster alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from jobs.core.errors import RefusedError
from jobs.preconditions.limits import CommitLimits, refuse_beyond, refuse_closed, refuse_other_cluster
from schemas.rows import Broker, BrokerEpoch, QuarantinedZnode
from schemas.stored_plan import Plan
from tests.jobs.support.rows.plan_rows import plan_record
from tests.typed_rows import typed

NOW: Final = datetime(2026, 11, 25, tzinfo=UTC)
EPOCHS: Final = [BrokerEpoch(broker_id=broker, broker_epoch=20 + broker) for broker in (1, 2, 3)]
LIMITS: Final = CommitLimits(max_plan_age=3_600.0, max_changes=2, allow_majority_dead=False)


@dataclass(frozen=True)
class Cluster:
    cluster_id: str | None = "c1"
    migration: str | None = None
    brokers: list[Broker] = field(default_factory=list)
    live: Mapping[int, int | None] = field(default_factory=lambda: {1: 21, 2: 22, 3: 23})
    deleting: frozenset[str] = frozenset()
    quarantine: list[QuarantinedZnode] = field(default_factory=list)


def plan(changes: int = 1, requires_dead: tuple[int, ...] = (), **columns: Any) -> Plan:  # noqa: ANN401
    row = plan_record(**{"created_at": NOW, "cluster_id": "c1", "brokers": EPOCHS, **columns})
    return Plan(row, [typed(partition=number, requires_dead=[*requires_dead]) for number in range(changes)], [], [])


def closed(plan: Plan, cluster: Cluster) -> None:
    refuse_closed(plan, cluster)


def beyond(plan: Plan, cluster: Cluster) -> None:
    refuse_beyond(LIMITS, plan, cluster, NOW)


def elsewhere(plan: Plan, cluster: Cluster) -> None:
    refuse_other_cluster(plan, cluster, "zk1:2181", "--zookeeper")


@pytest.mark.parametrize(
    ("check", "of_plan", "of_cluster", "message"),
    [
        (closed, {}, {"migration": "/migration names KRaft controller 3000"}, "migration to KRaft is in progress"),
        (closed, {"status": "cancelled"}, {}, "is cancelled; plan again"),
        (closed, {"kind": "reconcile", "parameters": '{"control": 8}'}, {}, "records a finished cycle"),
        (elsewhere, {"cluster_id": "c2"}, {}, "zk1:2181 is that of c1; check --cluster and --zookeeper"),
        (elsewhere, {}, {"live": {1: None}}, "and this is a KRaft cluster"),
        (elsewhere, {"brokers": [BrokerEpoch(broker_id=1)]}, {}, "from the brokers of a KRaft cluster"),
        (beyond, {"created_at": NOW - timedelta(hours=2)}, {}, "2.0 h old, older than --max-plan-age allows (1 h)"),
        (beyond, {"created_at": NOW + timedelta(hours=2)}, {}, "its age is unknown"),
        (beyond, {"changes": 3}, {}, "has 3 changes, more than --max-changes 2"),
        (beyond, {"requires_dead": (1, 2)}, {"live": {3: 23}}, "treats 2 of 3 brokers as dead: 1, 2"),
    ],
)
def test_refused(
    check: Callable[[Plan, Cluster], None], of_plan: dict[str, Any], of_cluster: dict[str, Any], message: str
) -> None:
    check(plan(), Cluster())

    with pytest.raises(RefusedError) as refusal:
        check(plan(**of_plan), Cluster(**of_cluster))

    assert message in str(refusal.value)
