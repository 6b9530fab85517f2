"""Topics created under the fence: large ones before their states, too large ones never; multis limited in bytes."""

from functools import partial

import pytest
from kazoo.client import TransactionRequest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.connection import commit
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.adapters.zookeeper.multi_failure import multi_bytes
from jobs.execution.batch import transactions as fenced_multis
from schemas.enums import Outcome, PlanStatus
from schemas.plan import Plan
from schemas.rows import Row
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.plan_rows import creation, store_plan, topic_creation
from tests.jobs.support.zookeeper.fenced_writes import before_multis, write
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

REFUSED = 23
LONG = "n" * 249


def wide(topic: str, partition: int, more: int = 0) -> Row:
    """A partition with a hundred replicas, of which the first `1 + more` are live: 800 bytes of its topic's znode."""
    replicas = [1, *range(1_000_000, 1_000_099)]
    alive = replicas[: 1 + more]
    return creation(topic, partition, replicas) | {"isr_after": alive, "requires_live": [1]}


def wide_topic(tree: KafkaTree, warehouse: Warehouse, partitions: int) -> Plan:
    changes = [wide(LONG, partition) for partition in range(partitions)]
    return store_plan(warehouse, tree, changes, [topic_creation(LONG)])


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each sent multi."""
    sizes: list[int] = []

    def weigh(multi: TransactionRequest) -> object:
        sizes.append(multi_bytes(multi))
        return commit(multi)

    monkeypatch.setattr("jobs.adapters.zookeeper.controllership.commit", weigh)
    return sizes


def test_topic_that_fits_only_alone(
    tree: KafkaTree, control: Controllership, warehouse: Warehouse, sent: list[int]
) -> None:
    """With 400 states it would be 1.1 MB, more than ZooKeeper accepts."""
    written = write(control, wide_topic(tree, warehouse, 1_000))

    assert written.outcomes == dict.fromkeys(range(1_000), Outcome.APPLIED)
    assert len(tree.assignment(LONG).partitions) == 1_000
    assert sent[0] > 800_000
    assert max(sent[1:]) <= fenced_multis.MULTI_BYTES


def test_multis_are_bounded_in_bytes(
    tree: KafkaTree, control: Controllership, warehouse: Warehouse, sent: list[int]
) -> None:
    """Long ISRs, and small topics with long configs: 400 of either would be more than ZooKeeper accepts."""
    states = [wide("wide", partition, more=99) | {"requires_live": [1]} for partition in range(400)]
    topics = [f"small-{number:03}" for number in range(400)]
    changes = [*(creation(topic, 0, [0, 1]) for topic in topics), *states]
    operations = [topic_creation(topic, {"follower.replication.throttled.replicas": "9" * 3_000}) for topic in topics]
    plan = store_plan(warehouse, tree, changes, [*operations, topic_creation("wide")])

    written = write(control, plan)

    assert {row.outcome for row in written.rows} == {Outcome.APPLIED}
    assert len(written.rows) == 800
    assert max(sent) <= fenced_multis.MULTI_BYTES


def test_crash_between_a_topic_and_its_states(
    tree: KafkaTree, control: Controllership, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fenced_multis, "TOPIC_MULTI_BYTES", 10)
    plan = store_plan(
        warehouse, tree, [creation("new", 0, [1, 2]), creation("new", 1, [2, 0])], [topic_creation("new")]
    )

    def crash() -> None:
        raise RuntimeError("crash")

    before_multis(monkeypatch, partial(tree.client.exists, "/"), crash)
    with pytest.raises(RuntimeError, match="crash"):
        write(control, plan)
    halfway = tree.client.get_children("/brokers/topics/new")
    written = write(control, plan)

    assert halfway == []
    assert written.outcomes == {0: Outcome.APPLIED, 1: Outcome.APPLIED}
    assert tree.versions("new") == {0: 0, 1: 0}
    assert tree.client.get("/brokers/topics/new")[1].version == 0


def test_large_topic_needs_its_live_leaders(
    tree: KafkaTree, control: Controllership, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fenced_multis, "TOPIC_MULTI_BYTES", 10)
    plan = store_plan(warehouse, tree, [creation("new", 0, [1, 2])], [topic_creation("new")])
    before_multis(monkeypatch, partial(tree.unregister, 1))

    written = write(control, plan)

    assert written.outcomes == {0: Outcome.STALE}
    assert tree.client.exists("/brokers/topics/new") is None


@pytest.mark.parametrize("flags", [(), ("--apply",)])
def test_topic_too_large_for_zookeeper_is_refused(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, flags: tuple[str, ...]
) -> None:
    plan = wide_topic(tree, warehouse, 1_300)
    before = tree.dump()

    done = surveyor.commit(tree.hosts, plan.plan_id, *flags)

    assert done.exit_code == REFUSED
    assert f"/brokers/topics/{LONG} and its configuration would take 1,0" in done.stderr
    assert "ZooKeeper takes about a megabyte a request (jute.maxbuffer); nothing was written" in done.stderr
    assert tree.dump() == before
    assert surveyor.status(plan.plan_id) == PlanStatus.PLANNED
