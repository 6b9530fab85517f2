"""Commits in admin mode, and cancellations, that die at any point: the next one finishes what Kafka was asked for.

Every point: KILL_POINTS=all, as in `test_kill_points.py`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.adapters.delta.lake import Lake
from jobs.adapters.embedded.servers import EmbeddedZooKeeper
from jobs.adapters.embedded.sessions import end_session
from jobs.records.plans.stored import Plan
from schemas.names import PlanKind, PlanStatus
from schemas.znodes import decode_assignment
from tests.jobs.execution.killed.lives import KILLED, Dying, Planned, planned, tried
from tests.jobs.support.fake_brokers import FakeBrokers
from tests.jobs.support.kafka_tree import KafkaTree
from tests.jobs.support.move_rows import reassignment
from tests.jobs.support.plan_rows import election, store_plan
from tests.jobs.support.throttled_tree import overrides

pytestmark = pytest.mark.torture

FEW: Final = 1
T: Final = "moves"
BEFORE: Final = {0: [0, 1], 1: [1, 2], 2: [2, 0]}
AFTER: Final = {0: [2, 1], 1: [1, 0], 2: [2, 1]}


def move(lake: Lake, tree: KafkaTree) -> Plan:
    """Two partitions in the first wave, one in the second."""
    tree.add_topic(T, BEFORE)
    rows = [reassignment(tree, T, partition, AFTER[partition], wave=partition // 2) for partition in BEFORE]
    return store_plan(lake, tree, rows, kind=PlanKind.REASSIGN.value)


def drain(lake: Lake, tree: KafkaTree) -> Plan:
    """Broker 0 comes last, and leads no more."""
    tree.add_topic(T, BEFORE)
    orders = [reassignment(tree, T, 0, [1, 0])]
    elected = election(tree, T, 0, leader=1, wave=1, replicas_before=[1, 0], replicas_after=[1, 0])
    said = json.dumps({"brokers": [0], "mode": "admin"})
    return store_plan(lake, tree, [*orders, elected], kind=PlanKind.DRAIN.value, parameters=said)


@dataclass(frozen=True)
class Kind:
    make: Callable[[Lake, KafkaTree], Plan]
    command: tuple[str, ...]
    status: PlanStatus
    is_begun: bool = False
    """Whether a commit has asked for its moves before, and none has arrived."""


THROTTLED: Final = ("commit", "--mode", "admin", "--throttle", "1MB/s")
KINDS: Final = {
    "reassign": Kind(move, THROTTLED, PlanStatus.COMMITTED),
    "drain": Kind(drain, ("commit", "--mode", "admin"), PlanStatus.COMMITTED),
    "cancel": Kind(move, ("cancel",), PlanStatus.CANCELLED, is_begun=True),
}


@pytest.mark.parametrize("name", KINDS)
def test_killed_at_any_point_the_next_one_finishes(
    name: str, mortal: Dying, zookeeper_server: EmbeddedZooKeeper, fake_brokers: FakeBrokers, tmp_path: Path
) -> None:
    kind = KINDS[name]
    with planned(zookeeper_server, fake_brokers, tmp_path, kind.make) as here:
        begin(kind, mortal, here)
        assert run(kind, mortal, here) == 0, mortal.said
        whole, every = shown(here), range(1, len(mortal.points) + 1)
    assert whole["status"] == kind.status

    for die_at in tried(every, FEW):
        with planned(zookeeper_server, fake_brokers, tmp_path, kind.make) as here:
            begin(kind, mortal, here)
            died = run(kind, mortal, here, die_at)
            at = f"killed at point {die_at} of {len(every)}: {mortal.points[-1]}"
            forget_the_dead(here)
            found = (died, run(kind, mortal, here), shown(here))
        assert (at, *found) == (at, KILLED, 0, whole), mortal.said


def begin(kind: Kind, mortal: Dying, here: Planned) -> None:
    """Ask for the first wave, and wait no longer."""
    if kind.is_begun:
        asked = here.command(*THROTTLED[:3], "--max-wait", "0s")
        assert mortal.run(asked, asks=here.tree.hosts, stuck=True) == 25, mortal.said


def run(kind: Kind, mortal: Dying, here: Planned, die_at: int = 0) -> int:
    return mortal.run(here.command(*kind.command), die_at, asks=here.tree.hosts)


def forget_the_dead(here: Planned) -> None:
    """End the session that the lease belongs to, as ZooKeeper does after ten seconds."""
    lease = here.tree.client.exists("/surveyor/commit")
    if lease is not None:
        end_session(here.tree.hosts, lease.ephemeralOwner)


def shown(here: Planned) -> dict[str, Any]:
    """All that matters: who has which replicas, who leads and how often that changed, throttles, and the tables."""
    tree, topics = here.tree, {}
    for topic in tree.client.get_children("/brokers/topics"):
        assignment = decode_assignment(tree.client.get(f"/brokers/topics/{topic}")[0])
        topics[topic] = assignment, {number: tree.state(topic, number) for number in assignment.partitions}
    drained = [row["broker_id"] for row in here.lake.rows("drained")]
    left = [row["resource"] for row in here.lake.rows("throttles")]
    return {"topics": topics, "config": overrides(tree), "drained": drained, "left": left, "status": here.status}
