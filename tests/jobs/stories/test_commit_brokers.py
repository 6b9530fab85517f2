"""Commits on real brokers: they learn what was written, their clients lose nothing, one of them is in control again."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kazoo.exceptions import NodeExistsError
from msgspec.structs import replace
from pyspark.sql import SparkSession

from jobs.adapters.brokers.admin_client import AdminUnavailableError, bootstrap, connected_admin
from jobs.adapters.brokers.delivery import deliver
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.zookeeper.cluster_state import read_cluster
from jobs.adapters.zookeeper.connection import commit as commit_multi
from jobs.adapters.zookeeper.controllership import check_absent, controllership
from jobs.adapters.zookeeper.multi_operations import add
from jobs.adapters.zookeeper.znode_reads import Znode
from jobs.execution.admin.connections import admin_of
from jobs.execution.batch.topic_znode_content import TopicZnodes
from jobs.execution.batch.transactions import required_reads, topic_ops
from jobs.runtime.settings import ClusterConf, Settings
from schemas.enums import PlanStatus
from schemas.rows import Row
from schemas.stored_plan import Plan
from schemas.znode_codecs import Assignment, encode_assignment, encode_epoch, encode_state
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.commands.documented_commands import ROOT
from tests.jobs.support.kafka.real_cluster import Traffic, broker_in_control, eventually, id_of, topic_metadata
from tests.jobs.support.rows.plan_rows import creation, election, store_plan, topic_creation
from tests.jobs.support.zookeeper.client_cluster import ClientCluster
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path
from tests.jobs.torture.faults import pids_of, stopped
from tests.jobs.torture.rounds import prepare, run_round
from tests.jobs.torture.small_cluster import SCRIPT, SmallTortureCluster
from tests.jobs.torture.traffic import Traffic as RoundTraffic

OURS = 2147483647
REPLICAS = {0: [0, 1, 2], 1: [1, 2, 0], 2: [2, 0, 1]}


def commit(surveyor: Surveyor, kafka: KafkaTree, plan: Plan) -> None:
    done = surveyor.run("commit", plan.plan_id, "--zookeeper", kafka.hosts, "--mode", "batch", "--apply")
    assert done.exit_code == 0, done.stderr
    assert surveyor.status(plan.plan_id) == PlanStatus.COMMITTED


@pytest.fixture
def topic(request: pytest.FixtureRequest, kafka: KafkaTree, surveyor: Surveyor) -> str:
    """A topic of the test's own, created in batch mode."""
    name = f"{request.node.originalname}.topic"
    create(surveyor, kafka, name)
    return name


def create(surveyor: Surveyor, kafka: KafkaTree, topic: str) -> Plan:
    topic_id = id_of(topic)
    changes = [creation(topic, partition, replicas, topic_id) for partition, replicas in REPLICAS.items()]
    operation = topic_creation(topic, {"min.insync.replicas": "2"}, topic_id)
    plan = store_plan(surveyor.warehouse, kafka, changes, [operation])
    commit(surveyor, kafka, plan)
    return plan


def leaders(kafka: KafkaTree, topic: str) -> dict[int, int]:
    return {partition: kafka.state(topic, partition).leader for partition in REPLICAS}


def moves(kafka: KafkaTree, topic: str) -> list[Row]:
    """Every partition gets its second replica as its leader."""
    return [election(kafka, topic, partition, leader=replicas[1]) for partition, replicas in REPLICAS.items()]


def test_a_created_topic_is_known_and_takes_records_at_once(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, topic: str
) -> None:
    """Every broker accepts what it is notified of; then one of them is the controller again."""
    planned = {partition: (replicas[0], replicas, replicas) for partition, replicas in REPLICAS.items()}
    metadata = {broker_id: topic_metadata(broker.address, topic) for broker_id, broker in cluster.brokers.items()}
    with Traffic(cluster.bootstrap, topic) as traffic:
        pass

    assert metadata == dict.fromkeys(REPLICAS, planned)
    assert traffic.failed == []
    assert traffic.stored(len(REPLICAS)) >= traffic.acknowledged
    answers = surveyor.warehouse.rows("answers")
    assert {row["error"] for row in answers} == {0}
    responses = sorted((row["broker_id"], row["partition"]) for row in answers if row["topic"])
    assert responses == [(broker, partition) for broker in range(3) for partition in range(3)]
    assert [row["api"] for row in answers].count("UpdateMetadata") == 3
    assert broker_in_control(kafka)
    handed_back = next(row for row in surveyor.warehouse.rows("commits") if row["action"] == "hand_back")
    assert "is the controller; held for" in handed_back["message"]


def test_controller_that_zookeeper_names_is_asked(
    kafka: KafkaTree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Brokers name the one before, here Surveyor, until the next one notifies them."""

    async def former(_: KafkaAdminClient) -> int:
        return OURS

    monkeypatch.setattr(KafkaAdminClient, "_refresh_controller_id", former)
    state = ClientCluster(kafka.client).read_cluster()
    with connected_admin(bootstrap(state.brokers, {}), {}) as admin, pytest.raises(AdminUnavailableError):
        admin.unresponsive_reason()
    with admin_of(Settings("default", str(tmp_path), ClusterConf()), state) as admin:
        assert admin.unresponsive_reason() is None


@pytest.mark.first("ZooKeeper: a plan is committed in batch mode while records are written")
def test_elections_lose_no_record(cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, topic: str) -> None:
    """A dry run touches nothing. Kafka's controller neither reverts the elections nor elects again."""
    plan = store_plan(surveyor.warehouse, kafka, moves(kafka, topic))
    before = kafka.dump()
    dry = surveyor.run("commit", plan.plan_id, "--zookeeper", kafka.hosts)
    assert "mode admin (broker" in dry.stdout
    assert "dry run: nothing was written" in dry.stdout
    assert kafka.dump() == before

    with Traffic(cluster.bootstrap, topic) as traffic:
        commit(surveyor, kafka, plan)

    elected = {0: 1, 1: 2, 2: 0}
    for broker in cluster.brokers.values():
        assert {p: leader for p, (leader, _, _) in topic_metadata(broker.address, topic).items()} == elected
    assert leaders(kafka, topic) == elected
    assert kafka.versions(topic) == dict.fromkeys(REPLICAS, 1)
    assert {kafka.state(topic, partition).leader_epoch for partition in REPLICAS} == {1}
    assert traffic.failed == []
    assert traffic.stored(len(REPLICAS)) >= traffic.acknowledged


def test_a_host_without_java_plans_and_commits(kafka: KafkaTree, warehouse: Warehouse, tmp_path: Path) -> None:
    """The commands get HOME and no PATH; JAVA_HOME names a folder without Java, so that any use of it is an error."""
    environment = {"HOME": str(tmp_path), "JAVA_HOME": str(tmp_path)}

    def run(*arguments: str) -> Any:  # noqa: ANN401 - its JSON
        command = [
            sys.executable,
            "-m",
            "jobs.cli",
            *arguments,
            "--zookeeper",
            kafka.hosts,
            "--warehouse",
            warehouse.uri,
        ]
        done = subprocess.run(
            [*command, "--json"], env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    run("snapshot")
    plan = run("plan", "assign", "--topic", "without.java", "--partitions", "3", "--replication-factor", "2")
    assert run("commit", plan["plan_id"], "--apply", "--yes")["applied_now"] == 3
    assert eventually(lambda: "without.java" in topics_of(kafka))
    assert run("verify", plan["plan_id"])["complete"] == 3


def topics_of(kafka: KafkaTree) -> list[str]:
    return [*kafka.client.get_children("/brokers/topics")]


def test_dead_brokers_partition_is_elected_and_it_comes_back(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, topic: str
) -> None:
    """If Kafka's controller is first, the rows are stale; if Surveyor is first, they are applied."""
    cluster.brokers[1].kill()
    cluster.brokers[1].expire()
    assert eventually(lambda: not cluster.brokers[1].is_registered())
    assert eventually(lambda: leaders(kafka, topic)[1] == 2)

    plan = store_plan(surveyor.warehouse, kafka, [election(kafka, topic, 1, leader=0, requires_dead=[1])])
    commit(surveyor, kafka, plan)
    elected = kafka.state(topic, 1)
    cluster.brokers[1].restart()

    assert (elected.leader, elected.isr) == (0, [2, 0])
    assert eventually(lambda: sorted(kafka.state(topic, 1).isr) == [0, 1, 2])


def test_topic_without_states_is_taken_up_by_kafka_and_by_us(
    kafka: KafkaTree, surveyor: Surveyor, warehouse: Warehouse
) -> None:
    """A crash between a large topic and its states leaves this; Kafka's controller makes the states as planned."""
    topic_id = id_of("without.states")
    changes = [creation("without.states", partition, replicas, topic_id) for partition, replicas in REPLICAS.items()]
    plan = store_plan(warehouse, kafka, changes, [topic_creation("without.states", topic_id=topic_id)])
    with controllership(kafka.endpoint, 2147483647) as held:
        nothing = {path: Znode(path, None, None) for path in required_reads(plan.changes)}
        made = topic_ops("without.states", plan.changes, TopicZnodes.of(plan), nothing)
        assert held.commit(made) is None
    assert eventually(lambda: bool(kafka.client.exists("/brokers/topics/without.states/partitions/2/state")))

    commit(surveyor, kafka, plan)

    assert leaders(kafka, "without.states") == {0: 0, 1: 1, 2: 2}
    assert kafka.versions("without.states") == dict.fromkeys(REPLICAS, 0)


def elect_again(kafka: KafkaTree, epoch: int | None) -> None:
    """Let a broker be elected after /controller_epoch was set, or deleted as by a clean-up script."""
    if epoch is None:
        kafka.client.delete("/controller_epoch")
    else:
        kafka.client.set("/controller_epoch", encode_epoch(epoch))
    kafka.client.delete("/controller")
    assert eventually(lambda: read_cluster(kafka.client).controller.broker_id in {0, 1, 2})


def test_take_over_exceeds_the_epoch_of_brokers_after_a_deletion(
    kafka: KafkaTree, cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    """Kafka begins at 1 again, is refused by every broker, and announces nothing.

    The warehouse has recorded nothing, so that only the brokers' answers say that the epoch after the states' is early.
    """
    latest = read_cluster(kafka.client).epoch + 50
    state = replace(kafka.state(topic, 0), controller_epoch=latest)
    kafka.client.set(state_path(topic, 0), encode_state(state))
    elect_again(kafka, latest + 5)
    assert eventually(lambda: broker_in_control(kafka))
    elect_again(kafka, None)
    assert read_cluster(kafka.client).epoch == 1
    other = Surveyor(Warehouse(str(tmp_path / "another"), "default"))

    status = other.run("status", "--zookeeper", kafka.hosts)
    doctor = other.run("doctor", "--zookeeper", kafka.hosts)
    plan = store_plan(other.warehouse, kafka, moves(kafka, topic))
    done = other.run("commit", plan.plan_id, "--zookeeper", kafka.hosts, "--mode", "batch", "--apply", "--yes")

    assert f", epoch 1, earlier than the latest known, {latest}" in " ".join(status.stdout.split())
    assert f"/controller_epoch is 1, earlier than controller epoch {latest}" in " ".join(doctor.stdout.split())
    assert (doctor.exit_code, done.exit_code) == (1, 0), done.stderr
    assert f"brokers 0, 1, 2 refused controller epoch {latest + 1} as stale" in done.stderr
    assert "accepted by brokers 0, 1, 2" in done.stderr
    moved = {partition: replicas[1] for partition, replicas in REPLICAS.items()}
    assert leaders(kafka, topic) == moved
    assert kafka.state(topic, 0).controller_epoch == latest + 1
    for broker in cluster.brokers.values():
        assert {
            partition: metadata[0] for partition, metadata in topic_metadata(broker.address, topic).items()
        } == moved
    assert eventually(lambda: broker_in_control(kafka))  # under an epoch that all brokers take


def test_reconcile_takes_over_above_an_epoch_that_was_set_back(
    kafka: KafkaTree, cluster: EmbeddedCluster, topic: str, spark: SparkSession, warehouse: Warehouse
) -> None:
    """Kafka's controller is refused by every broker, though nothing else is due."""
    assert spark
    surveyor = Surveyor(warehouse)
    commit(surveyor, kafka, store_plan(warehouse, kafka, moves(kafka, topic)))
    latest = kafka.state(topic, 0).controller_epoch
    elect_again(kafka, 1)
    later = f"{topic}.later"
    kafka.client.create(f"/brokers/topics/{later}", encode_assignment(Assignment(REPLICAS, {}, {}, None)))
    assert eventually(lambda: kafka.client.exists(state_path(later, 0)) is not None)
    assert not eventually(lambda: later in known_to(cluster), 2)

    dry = surveyor.run("reconcile", "--zookeeper", kafka.hosts)
    done = surveyor.run("reconcile", "--zookeeper", kafka.hosts, "--apply", "--yes")

    assert f"/controller_epoch is 2, earlier than controller epoch {latest}" in dry.stdout
    assert "--apply takes the controllership with a later epoch" in dry.stdout
    assert done.exit_code == 0, done.stderr
    assert "the controllership was taken with a later epoch" in done.stdout
    assert read_cluster(kafka.client).epoch > latest
    assert eventually(lambda: broker_in_control(kafka))
    assert eventually(lambda: later in known_to(cluster))


def known_to(cluster: EmbeddedCluster) -> set[str]:
    """Topics that every broker reports to its clients."""
    known = [
        AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=10)
        for broker in cluster.brokers.values()
    ]
    return set.intersection(*({*metadata.topics} for metadata in known))


def test_broker_registers_while_its_absence_is_proved(cluster: EmbeddedCluster, kafka: KafkaTree, topic: str) -> None:
    """It never meets what proves it, and a controller that is notified of it each time finds nothing changed."""
    results: list[object] = []
    with Traffic(cluster.bootstrap, topic) as traffic:
        cluster.brokers[2].kill()
        cluster.brokers[2].expire()
        assert eventually(lambda: not cluster.brokers[2].is_registered())
        cluster.brokers[2].start()
        absent = -1
        while not any(isinstance(result, Exception) for result in results):
            absent += 1
            multi = kafka.client.transaction()
            add(multi, check_absent(2))
            results = [*commit_multi(multi)]
            time.sleep(0.01)
        cluster.brokers[2].wait_ready()
        assert eventually(lambda: all(len(kafka.state(topic, p).isr) == 3 for p in REPLICAS))

    assert isinstance(results[0], NodeExistsError)
    assert absent > 10
    assert "Error while creating ephemeral" not in cluster.brokers[2].log_of_this_run()
    assert traffic.failed == []
    assert traffic.stored(len(REPLICAS)) >= traffic.acknowledged


def test_broker_that_stops_in_the_middle_does_not_hold_the_others(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broker 1 gets SIGSTOP between the writing and the telling; it stays registered until its session ends."""
    pid = cluster.brokers[1].pid
    assert pid

    def with_one_stopped(*arguments: Any) -> Any:  # noqa: ANN401 - whatever `announce` takes and returns
        os.kill(pid, signal.SIGSTOP)
        return deliver(*arguments)

    monkeypatch.setattr("jobs.execution.batch.notification.deliver", with_one_stopped)
    plan = store_plan(surveyor.warehouse, kafka, moves(kafka, topic))
    try:
        done = surveyor.run("commit", plan.plan_id, "--zookeeper", kafka.hosts, "--mode", "batch", "--apply")
        cluster.brokers[1].expire()
        assert eventually(lambda: not cluster.brokers[1].is_registered())
    finally:
        os.kill(pid, signal.SIGCONT)

    seconds = re.search(r"held for ([\d.]+) s; what was written was not accepted by 1", done.stderr)
    assert done.exit_code == 0
    assert seconds, done.stderr
    assert float(seconds[1]) < 20
    assert eventually(cluster.brokers[1].is_registered)
    assert eventually(lambda: all(sorted(kafka.state(topic, p).isr) == [0, 1, 2] for p in REPLICAS))


def test_stopped_brokers_hold_up_no_request_to_the_controller(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor
) -> None:
    """Two of three are stopped and still registered."""
    controller = read_cluster(kafka.client).controller.broker_id
    others = [broker for number, broker in cluster.brokers.items() if number != controller]
    names = [f"only-{number}" for number in range(4)]
    plans = [
        store_plan(
            surveyor.warehouse, kafka, [creation(name, 0, [controller], id_of(name))], [topic_creation(name, {}, None)]
        )
        for name in names
    ]
    began = time.monotonic()
    with stopped(pids_of(*others)):
        ran = [surveyor.run("commit", plan.plan_id, "--zookeeper", kafka.hosts, "--apply") for plan in plans]
        seconds = time.monotonic() - began
        assert {broker.broker_id for broker in read_cluster(kafka.client).brokers} == {0, 1, 2}

    assert [done.exit_code for done in ran] == [0] * len(plans), [done.output for done in ran]
    assert all("mode admin" in done.output for done in ran)
    assert seconds < 4 * len(plans)
    assert all(kafka.state(name, 0).leader == controller for name in names)


def test_a_round_in_small(cluster: EmbeddedCluster, kafka: KafkaTree, warehouse: Warehouse, tmp_path: Path) -> None:
    """As tests/jobs/torture/test_rounds.py has them by chance, and with the same checks."""
    with SmallTortureCluster(cluster, warehouse, tmp_path) as torture_cluster:
        prepare(torture_cluster, kafka.client)
        with RoundTraffic(cluster.bootstrap) as traffic:
            wrong, summary = run_round(torture_cluster, kafka.client, traffic, SCRIPT)

    assert wrong == [], summary
