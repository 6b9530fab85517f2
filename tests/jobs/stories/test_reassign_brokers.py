"""Reassignments on real brokers: throttled, killed between two waves and gone on with, refused, and by ZooKeeper.

Three brokers and a fourth. A producer with acks=all and a consumer lose nothing.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from jobs.adapters.brokers.admin_client import Admin, bootstrap, connected_admin
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.zookeeper.cluster_state import read_cluster
from schemas.enums import PlanKind, PlanStatus
from schemas.stored_plan import Plan
from schemas.topic_configs import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.controllers.throttled_tree import overrides
from tests.jobs.support.kafka.real_cluster import Traffic, eventually
from tests.jobs.support.rows.move_rows import commit_process, reassignment
from tests.jobs.support.rows.plan_rows import creation, store_plan, topic_creation
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

REPLICAS = {0: [0, 1], 1: [1, 2]}
RECORDS, RECORD_BYTES = 1000, 4000
SLOW = 150_000
REFUSED = 23


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Three brokers, of which one is the controller, and a fourth that joins."""
    with EmbeddedCluster(3) as running:
        running.add_broker(3)
        yield running


@pytest.fixture
def admin(kafka: KafkaTree) -> Iterator[Admin]:
    with connected_admin(bootstrap(read_cluster(kafka.client).brokers, {}), {}) as connected:
        yield connected


@pytest.fixture
def topic(request: pytest.FixtureRequest, cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor) -> str:
    """A topic of the test's own with some MB in each partition, made by Kafka."""
    name = f"{request.node.name}"
    changes = [creation(name, partition, replicas) for partition, replicas in REPLICAS.items()]
    made = store_plan(surveyor.warehouse, kafka, changes, [topic_creation(name)])
    committed(surveyor, kafka, made)
    assert eventually(lambda: all(kafka.client.exists(f"/brokers/topics/{name}/partitions/{p}/state") for p in (0, 1)))
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(RECORDS):
        for partition in REPLICAS:
            producer.produce(name, str(10_000_000 + number).zfill(RECORD_BYTES).encode(), partition=partition)
            producer.poll(0)
    assert producer.flush(60) == 0
    return name


def committed(surveyor: Surveyor, kafka: KafkaTree, plan: Plan, *more: str) -> str:
    """Commit a plan that must come to its end; what was said."""
    flags = ("--zookeeper", kafka.hosts, "--mode", "admin", "--apply")
    done = surveyor.run("commit", plan.plan_id, *flags, *more)
    assert done.exit_code == 0, done.stderr + done.stdout
    assert surveyor.status(plan.plan_id) == PlanStatus.COMMITTED
    return done.stderr


def is_being_reassigned(kafka: KafkaTree, topic: str) -> bool:
    assigned = kafka.assignment(topic)
    return bool(assigned.adding_replicas or assigned.removing_replicas)


def two_waves(warehouse: Warehouse, kafka: KafkaTree, topic: str) -> Plan:
    moves = [reassignment(kafka, topic, 0, [3, 1]), reassignment(kafka, topic, 1, [1, 3], wave=1)]
    return store_plan(warehouse, kafka, moves, kind=PlanKind.REASSIGN.value)


def test_killed_between_two_throttled_waves(  # noqa: PLR0913, PLR0917 - fixtures
    cluster: EmbeddedCluster, kafka: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, topic: str, admin: Admin
) -> None:
    """What stood before is back at the end: an operator's own rate on broker 1, nothing elsewhere."""
    assert admin.alter_override("broker", "1", {LEADER_RATE: "900000000"}) == 0
    before = overrides(kafka)
    plan = two_waves(warehouse, kafka, topic)

    with Traffic(cluster.bootstrap, topic) as traffic:
        with commit_process(kafka.hosts, warehouse, plan.plan_id, "--throttle", str(SLOW)) as process:
            assert eventually(lambda: is_being_reassigned(kafka, topic))
            process.send_signal(signal.SIGKILL)
            process.wait(20)
        caught = kafka.assignment(topic).partitions
        slowed = overrides(kafka)
        sped = {LEADER_RATE: "50000000", FOLLOWER_RATE: "50000000"}
        for broker in (0, 1, 3):
            assert admin.alter_override("broker", str(broker), sped) == 0
        assert eventually(lambda: not is_being_reassigned(kafka, topic))
        for broker in (0, 1, 3):
            assert admin.alter_override("broker", str(broker), dict.fromkeys(sped, str(SLOW))) == 0
        between = kafka.assignment(topic).partitions
        output = committed(surveyor, kafka, plan, "--throttle", "50MB/s")

    assert caught == {0: [3, 1, 0], 1: [1, 2]}
    rates = {LEADER_RATE: str(SLOW), FOLLOWER_RATE: str(SLOW)}
    assert slowed == before | {f"brokers/{broker}": rates for broker in (0, 1, 3)} | {
        f"topics/{topic}": {LEADER_REPLICAS: "0:0,0:1", FOLLOWER_REPLICAS: "0:3"}
    }
    assert between == {0: [3, 1], 1: [1, 2]}
    assert "throttle of plan" in output
    assert kafka.assignment(topic).partitions == {0: [3, 1], 1: [1, 3]}
    assert (overrides(kafka), warehouse.rows("throttles")) == (before, [])
    assert traffic.failed == []
    assert traffic.stored(len(REPLICAS)) >= traffic.acknowledged
    assert admin.alter_override("broker", "1", {LEADER_RATE: None}) == 0


SETS_AND_WAITS = """
import pathlib, time
from jobs.execution.admin import admin_commit as commit_admin
asking = commit_admin.request_changes
def ask(*given):
    while not pathlib.Path({gate!r}).exists():
        time.sleep(0.1)
    return asking(*given)
commit_admin.request_changes = ask
"""
PATIENT = "from jobs.adapters.zookeeper import lease_znode; lease_znode.LEASE_TIMEOUT_SECONDS = 120.0"


def test_two_commits_with_throttles_at_once(kafka: KafkaTree, warehouse: Warehouse, topic: str, tmp_path: Path) -> None:
    """The first has set its throttle and asked for nothing yet when the second comes."""
    first = store_plan(warehouse, kafka, [reassignment(kafka, topic, 0, [3, 1])], kind=PlanKind.REASSIGN.value)
    second = store_plan(warehouse, kafka, [reassignment(kafka, topic, 1, [1, 3])], kind=PlanKind.REASSIGN.value)
    before, gate = overrides(kafka), tmp_path / "gate"
    script = SETS_AND_WAITS.format(gate=str(gate))

    with commit_process(kafka.hosts, warehouse, first.plan_id, "--throttle", "40MB/s", script=script) as one:
        assert eventually(lambda: f"topics/{topic}" in overrides(kafka))
        throttled = overrides(kafka)
        with commit_process(kafka.hosts, warehouse, second.plan_id, "--throttle", "30MB/s", script=PATIENT) as two:
            waiting = next(line for line in two.stdout or () if "has the lease of this cluster" in line)
            still = (overrides(kafka), is_being_reassigned(kafka, topic))
            gate.touch()
            one_output, _ = one.communicate(timeout=120)
            two_output, _ = two.communicate(timeout=120)

    assert f"for `surveyor commit {first.plan_id}`" in waiting
    assert still == (throttled, False)
    assert (one.returncode, two.returncode) == (0, 0), one_output + two_output
    assert kafka.assignment(topic).partitions == {0: [3, 1], 1: [1, 3]}
    assert (overrides(kafka), warehouse.rows("throttles")) == (before, [])
