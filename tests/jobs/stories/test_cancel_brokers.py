"""Cancel and rollback on real brokers: moves caught in the middle, and one that was complete. Nothing is lost."""

import json
from collections.abc import Iterable, Iterator, Mapping

import pytest
from confluent_kafka import Producer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.zookeeper.lease import LEASE
from jobs.repositories.actor import this_actor
from jobs.repositories.plans.repository import Plan
from schemas.enums import Action, PlanStatus
from schemas.rows import Row
from schemas.znodes import Assignment, decode_assignment, encode_config
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.controllers.throttled_tree import overrides
from tests.jobs.support.kafka.real_cluster import Traffic, eventually, id_of
from tests.jobs.support.rows.move_rows import commit_process
from tests.jobs.support.rows.plan_rows import creation, election, store_plan, topic_creation
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

Values = Mapping[str, str | None]

BEFORE = {0: [0, 1], 1: [0, 1]}
RATE = 100_000
"""Bytes a second of the copies: what `fill` writes then takes six minutes and more, which no busy machine outlasts."""

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@pytest.fixture
def topic(request: pytest.FixtureRequest, kafka: KafkaTree, surveyor: Surveyor) -> str:
    name = str(request.node.name)
    changes = [creation(name, partition, replicas, id_of(name)) for partition, replicas in BEFORE.items()]
    plan = store_plan(surveyor.warehouse, kafka, changes, [topic_creation(name, topic_id=id_of(name))])
    run(surveyor, kafka, "commit", plan)
    assert eventually(lambda: bool(kafka.client.exists(f"/brokers/topics/{name}/partitions/1/state")))
    return name


def run(surveyor: Surveyor, kafka: KafkaTree, command: str, plan: Plan, *arguments: str) -> Row:
    """Run a command on a plan, for good, and return its JSON."""
    flags = () if command == "verify" else ("--apply",)
    done = surveyor.run(command, plan.plan_id, "--zookeeper", kafka.hosts, "--json", *flags, *arguments)
    assert done.exit_code == 0, done.stderr + done.stdout
    result: Row = json.loads(done.stdout)
    return result


def assignment(kafka: KafkaTree, topic: str) -> Assignment:
    return decode_assignment(kafka.client.get(f"/brokers/topics/{topic}")[0])


def moves(surveyor: Surveyor, kafka: KafkaTree, topic: str, targets: dict[int, list[int]]) -> Plan:
    changes = []
    for partition, after in targets.items():
        before = BEFORE[partition]
        columns = {
            "action": Action.REASSIGN.value,
            "replicas_after": after,
            "adding_after": [broker for broker in after if broker not in before],
            "removing_after": [broker for broker in before if broker not in after],
            "leader_epoch_after": None,
        }
        changes.append(election(kafka, topic, partition, leader=after[0], **columns))
    return store_plan(surveyor.warehouse, kafka, changes, kind="reassign", moves=len(targets))


def configure(cluster: EmbeddedCluster, kind: ConfigResourceType, names: Iterable[object], values: Values) -> None:
    entries = {key: ("DELETE" if value is None else "SET", value) for key, value in values.items()}
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    resources = [ConfigResource(kind, str(name), entries) for name in names]
    client.alter_configs(resources, raise_on_unknown=False, incremental=True)
    client.close()


@pytest.fixture
def throttled(cluster: EmbeddedCluster, topic: str) -> Iterator[None]:
    """Copies of the topic crawl, so that a reassignment is caught in the middle; what is in sync does not."""
    configure(cluster, ConfigResourceType.TOPIC, [topic], dict.fromkeys(THROTTLED, "*"))
    configure(cluster, ConfigResourceType.BROKER, cluster.brokers, dict.fromkeys(RATES, str(RATE)))
    yield
    configure(cluster, ConfigResourceType.BROKER, cluster.brokers, dict.fromkeys(RATES))


def fill(cluster: EmbeddedCluster, topic: str) -> None:
    """Write 40 MB to each partition, as numbers that `Traffic.stored` can read."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for partition in BEFORE:
        for _ in range(400):
            producer.produce(topic, b" " * 100_000 + b"-1", partition=partition)
            producer.poll(0)
    assert producer.flush(60) == 0


@pytest.mark.usefixtures("throttled")
def test_addition_and_move_cancelled_in_the_middle(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, topic: str
) -> None:
    """Partition 0 is to have a replica more; 1 is to move, and Kafka leaves it in another order."""
    fill(cluster, topic)
    plan = moves(surveyor, kafka, topic, {0: [0, 1, 2], 1: [1, 2]})

    with Traffic(cluster.bootstrap, topic) as traffic:
        run(surveyor, kafka, "commit", plan)
        under_way = assignment(kafka, topic)
        dry = surveyor.run("cancel", plan.plan_id, "--zookeeper", kafka.hosts)
        still = assignment(kafka, topic)
        cancelled = run(surveyor, kafka, "cancel", plan)

    assigned = assignment(kafka, topic)
    again = run(surveyor, kafka, "cancel", plan)
    assert under_way.adding_replicas == {0: [2], 1: [2]}
    assert ("dry run" in dry.stdout, still) == (True, under_way)
    assert (assigned.partitions, assigned.adding_replicas, assigned.removing_replicas) == (BEFORE, {}, {})
    assert {name: cancelled[name] for name in ("status", "cancelled_now", "reordered_now", "in_progress")} == {
        "status": PlanStatus.CANCELLED.value,
        "cancelled_now": 2,
        "reordered_now": 1,
        "in_progress": 0,
    }
    assert (again["cancelled_now"], again["reordered_now"]) == (0, 0)
    assert eventually(lambda: all(sorted(kafka.state(topic, partition).isr) == [0, 1] for partition in BEFORE))
    assert traffic.failed == []
    assert traffic.stored(len(BEFORE)) >= traffic.acknowledged


def test_cancelled_while_its_commit_waits(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, topic: str
) -> None:
    """The commit lets the cancellation have the lease, and neither leaves a throttle."""
    fill(cluster, topic)
    plan = moves(surveyor, kafka, topic, {0: [0, 1, 2]})
    before = overrides(kafka)

    with commit_process(kafka.hosts, surveyor.warehouse, plan.plan_id, "--throttle", str(RATE)) as process:
        assert eventually(lambda: bool(assignment(kafka, topic).adding_replicas))
        throttled = overrides(kafka)
        cancelled = run(surveyor, kafka, "cancel", plan)
        stdout, _ = process.communicate(timeout=90)

    assigned = assignment(kafka, topic)
    assert (assigned.partitions, assigned.adding_replicas, cancelled["cancelled_now"]) == (BEFORE, {}, 1), stdout
    assert throttled != before
    assert (overrides(kafka), surveyor.warehouse.rows("throttles")) == (before, [])
    assert (process.returncode, surveyor.status(plan.plan_id)) == (1, PlanStatus.CANCELLED)
    said = " ".join(stdout.split())
    assert f"was cancelled by {this_actor().user} at 20" in said
    assert "while it was committed; 1 of 1 were turned back, 0 are as planned" in said
    assert "see what is due now, and plan again" in said
    assert "surveyor commit" not in said
    assert kafka.client.exists(LEASE) is None


def test_complete_move_rolled_back(cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, topic: str) -> None:
    plan = moves(surveyor, kafka, topic, {0: [0, 1, 2], 1: [2, 0]})

    with Traffic(cluster.bootstrap, topic) as traffic:
        run(surveyor, kafka, "commit", plan)
        assert eventually(lambda: run(surveyor, kafka, "verify", plan)["is_complete"])
        moved = assignment(kafka, topic).partitions
        undoing = run(surveyor, kafka, "rollback", plan)
        assert eventually(lambda: assignment(kafka, topic).partitions == BEFORE)
        back = run(surveyor, kafka, "rollback", plan)

    assert moved == {0: [0, 1, 2], 1: [2, 0]}
    assert (undoing["changes"], undoing["applied"], undoing["moves"]) == (2, 2, 1)
    assert (back["rolled_back"], surveyor.status(plan.plan_id)) == (True, PlanStatus.ROLLED_BACK)
    assert traffic.failed == []
    assert traffic.stored(len(BEFORE)) >= traffic.acknowledged


def test_status_says_how_to_clear_foreign_moves_and_failed_requests(
    kafka: KafkaTree, surveyor: Surveyor, topic: str
) -> None:
    """Kafka's controller carries requests out that are there when the znode is created, and reads no later ones."""
    request = "/admin/reassign_partitions"

    def partitions(wanted: dict[tuple[str, int], list[int]]) -> bytes:
        rows = [{"topic": name, "partition": number, "replicas": to} for (name, number), to in wanted.items()]
        return json.dumps({"version": 1, "partitions": rows}).encode()

    dead = {(topic, 0): [0, 99]}
    kafka.client.create(request, partitions(dead))
    assert eventually(lambda: assignment(kafka, topic).adding_replicas.get(0) == [99])
    kafka.client.set(request, partitions(dead | {("ghost", 0): [1], (topic, 1): BEFORE[1]}))

    plan = moves(surveyor, kafka, topic, {1: [1, 2]})
    done = surveyor.run("commit", plan.plan_id, "--zookeeper", kafka.hosts, "--apply", "--wait")
    assert done.exit_code == 0, done.stderr
    assert f"{topic}-0 to [0, 99] (not alive: 99); start broker 99, or cancel" in done.stderr
    assert assignment(kafka, topic).partitions[1] == [1, 2]

    status = json.loads(surveyor.run("status", "--zookeeper", kafka.hosts, "--json").stdout)
    commands = [step["command"] for step in status["due"] if " cancel " in f"{step['command']}"]
    assert len(commands) == 2, status["due"]
    for command in commands:
        cleared = surveyor.run(*command.split()[1:], "--apply")
        assert cleared.exit_code == 0, cleared.stderr

    after = json.loads(surveyor.run("status", "--zookeeper", kafka.hosts, "--json").stdout)
    assert (after["moving"], after["stalled"], kafka.client.exists(request)) == (0, [], None)
    assert assignment(kafka, topic).partitions[0] == BEFORE[0]
    kafka.client.create(request, partitions({(topic, 0): [1, 0]}))
    assert eventually(lambda: assignment(kafka, topic).partitions[0] == [1, 0]), "Kafka still reads requests"


def test_a_throttle_that_was_left_behind_goes_by_what_status_says(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, topic: str
) -> None:
    """Rates of one broker and of all, and replicas of a topic, as another tool leaves them."""
    configure(cluster, ConfigResourceType.TOPIC, [topic], dict.fromkeys(THROTTLED, "*"))
    configure(cluster, ConfigResourceType.BROKER, [1], dict.fromkeys(RATES, str(RATE)))
    kafka.write("/config/brokers/<default>", encode_config(dict.fromkeys(RATES, str(RATE))))
    assert eventually(lambda: {"brokers/1", "brokers/<default>", f"topics/{topic}"} <= overrides(kafka).keys())

    status = json.loads(surveyor.run("status", "--zookeeper", kafka.hosts, "--json").stdout)
    (command,) = [step["command"] for step in status["due"] if "a throttle is still set" in step["what"]]
    done = surveyor.run(*command.split()[1:], "--apply")

    assert done.exit_code == 0, done.stderr
    names = {name for values in overrides(kafka).values() for name in values}
    assert not names & {*RATES, *THROTTLED}
