"""Topics changed on real brokers, in both modes; reassignments exchanged with Kafka's own tool."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from kafka.admin import ConfigResourceType
from kafka.protocol.admin import DescribeConfigsRequest

from jobs.adapters.brokers.fanout import ask_brokers
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.zookeeper.cluster_state import read_cluster
from jobs.console_output.reassign_partitions_text import kafka_json
from jobs.repositories.plans.plans_reader import read_plan
from jobs.runtime.input_files import read_reassignment
from schemas.enums import NO_LEADER, Action, PlanStatus
from schemas.stored_plan import Plan
from schemas.topic_configs import TIERED, TOPIC_CONFIGS
from schemas.znode_codecs import decode_config
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.kafka.kafka_tools import java_of_tools
from tests.jobs.support.kafka.real_cluster import broker_in_control, eventually, topic_metadata
from tests.jobs.support.rows.operation_rows import alteration, deletion, expansion
from tests.jobs.support.rows.plan_rows import creation, election, store_plan, topic_creation
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = pytest.mark.cluster(3, racks={0: "b", 1: "a", 2: "b"})
"""The racks come in another order than the brokers."""

TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
MODES = ["admin", "batch"]


def commit(surveyor: Surveyor, kafka: KafkaTree, plan: Plan, mode: str) -> None:
    done = surveyor.run("commit", plan.plan_id, "--zookeeper", kafka.hosts, "--mode", mode, "--apply", "--yes")
    assert done.exit_code == 0, done.stderr + done.stdout
    assert surveyor.status(plan.plan_id) == PlanStatus.COMMITTED


def planned(surveyor: Surveyor, kafka: KafkaTree, *arguments: str) -> Plan:
    """Plan on a new snapshot."""
    where = ("--zookeeper", kafka.hosts)
    assert surveyor.run("snapshot", *where).exit_code == 0
    done = surveyor.run("plan", *arguments, *where, "--json")
    assert done.exit_code == 0, done.stderr
    return read_plan(surveyor.warehouse, json.loads(done.stdout)["plan_id"])


@pytest.fixture
def topic(request: pytest.FixtureRequest, kafka: KafkaTree, surveyor: Surveyor) -> str:
    """A topic of the test's own with two partitions, made by Kafka."""
    name = f"{request.node.name.translate(str.maketrans('[]', '..'))}"
    changes = [creation(name, 0, [0, 1]), creation(name, 1, [1, 2])]
    commit(surveyor, kafka, store_plan(surveyor.warehouse, kafka, changes, [topic_creation(name)]), "admin")
    assert eventually(lambda: bool(kafka.client.exists(f"/brokers/topics/{name}/partitions/1/state")))
    return name


@pytest.mark.parametrize("mode", MODES)
def test_a_topic_grows_is_configured_and_goes(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, topic: str, mode: str
) -> None:
    """Every broker knows the partitions that were added, and uses the config that was altered twice."""
    commit(surveyor, kafka, expansion(surveyor.warehouse, kafka, topic, [[2, 0], [0, 2]]), mode)
    steps: list[tuple[dict[str, str | None], dict[str, str | None]]] = [
        ({"retention.ms": None}, {"retention.ms": "7"}),
        ({"retention.ms": "7", "segment.ms": None}, {"retention.ms": None, "segment.ms": "9999"}),
    ]
    for before, after in steps:
        commit(surveyor, kafka, alteration(surveyor.warehouse, kafka, topic, before, after), mode)

    planned = {0: (0, [0, 1], [0, 1]), 1: (1, [1, 2], [1, 2]), 2: (2, [2, 0], [2, 0]), 3: (0, [0, 2], [0, 2])}
    assert decode_config(kafka.client.get(f"/config/topics/{topic}")[0]) == {"segment.ms": "9999"}
    for broker in cluster.brokers.values():
        assert eventually(lambda: topic_metadata(broker.address, topic) == planned)  # noqa: B023 - called at once
        assert eventually(lambda: "segment.ms -> 9999" in _processed(broker.log_of_this_run(), topic))  # noqa: B023

    written(cluster, topic, records=7)
    plan = deletion(surveyor.warehouse, kafka, topic)
    output = surveyor.run("commit", plan.plan_id, "--zookeeper", kafka.hosts, "--mode", mode, "--json").stdout
    commit(surveyor, kafka, plan, mode)

    assert [deleted["records"] for deleted in json.loads(output)["deleted"]] == [7 if mode == "admin" else None]
    assert eventually(lambda: kafka.client.exists(f"/brokers/topics/{topic}") is None)
    result = json.loads(surveyor.run("verify", plan.plan_id, "--zookeeper", kafka.hosts, "--json").stdout)
    assert result["is_complete"]


@pytest.mark.usefixtures("spark")
def test_partitions_are_added_over_racks_as_kafka_adds_them(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, topic: str
) -> None:
    """Asked without an assignment, Kafka uses its rule on a topic's twin."""
    twin = f"{topic}.twin"
    changes = [creation(twin, 0, [0, 1]), creation(twin, 1, [1, 2])]
    commit(surveyor, kafka, store_plan(surveyor.warehouse, kafka, changes, [topic_creation(twin)]), "admin")

    commit(surveyor, kafka, planned(surveyor, kafka, "expand", "--topic", topic, "--partitions", "9"), "admin")
    kafkas = AdminClient({"bootstrap.servers": cluster.bootstrap})
    kafkas.create_partitions([NewPartitions(twin, 9)])[twin].result(20)

    ours, theirs = (kafka.assignment(name) for name in (topic, twin))
    assert sorted(ours.partitions) == list(range(9))
    assert ours.partitions == theirs.partitions


@pytest.mark.first("ZooKeeper: a plan is made and committed in admin mode")
@pytest.mark.usefixtures("spark")
def test_topics_of_a_file_are_created_in_one_plan(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, tmp_path: Path
) -> None:
    topics = [
        {"topic": "file-a", "partitions": 4, "replication_factor": 2, "config": {"retention.ms": "7"}},
        {"topic": "file-b", "partitions": 3, "replication_factor": 3},
        {"topic": "file-c", "replica_assignment": [[2, 0]]},
    ]
    file = tmp_path / "topics.json"
    file.write_text(json.dumps(topics))

    plan = planned(surveyor, kafka, "assign", "--topics-json-file", str(file))
    commit(surveyor, kafka, plan, "admin")

    for name in ("file-a", "file-b", "file-c"):
        changes = [change for change in plan.changes if change.topic == name]
        expected = {c.partition: (c.replicas_after[0], c.replicas_after, c.isr_after) for c in changes}
        for broker in cluster.brokers.values():
            assert eventually(lambda: topic_metadata(broker.address, name) == expected)  # noqa: B023 - called at once
    assert decode_config(kafka.client.get("/config/topics/file-a")[0]) == {"retention.ms": "7"}


def _processed(log: str, topic: str) -> str:
    """The last thing a broker said of a change of this topic's configuration."""
    lines = [line for line in log.splitlines() if "Processing override for entityPath" in line and topic in line]
    return lines[-1] if lines else ""


def written(cluster: EmbeddedCluster, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(records):
        producer.produce(topic, key=str(number))
    assert producer.flush(30) == 0


def test_admin_mode_tells_what_kafka_refuses(kafka: KafkaTree, surveyor: Surveyor, topic: str) -> None:
    plan = alteration(surveyor.warehouse, kafka, topic, {TIERED: None}, {TIERED: "true"})

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", kafka.hosts, "--mode", "admin", "--apply")

    assert done.exit_code == 1
    assert "Tiered Storage functionality is disabled in the broker" in done.stdout


def test_a_broker_lives_after_a_config_written_in_batch_mode(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, topic: str
) -> None:
    """One that it would die of when it starts again is refused before anything is written."""
    values: dict[str, str | None] = {
        "cleanup.policy": "delete, compact",
        "min.cleanable.dirty.ratio": ".5",
        "retention.bytes": "-7",
        "compression.type": " gzip",
        "preallocate": "True",
        "message.format.version": "2.4-IV1",
        "leader.replication.throttled.replicas": "0:1,1:2",
        "segment.bytes": "14",
        "segment.index.bytes": "12",
        "flush.messages": "+1",
    }
    commit(surveyor, kafka, alteration(surveyor.warehouse, kafka, topic, dict.fromkeys(values), values), "batch")
    assert eventually(lambda: broker_in_control(kafka))
    before = kafka.dump()

    for name, value in {"segment.ms": "abc", "segment.index.bytes": "11"}.items():
        bad = alteration(surveyor.warehouse, kafka, topic, {name: values.get(name)}, {name: value})
        refused = surveyor.run("commit", bad.plan_id, "--zookeeper", kafka.hosts, "--mode", "batch", "--apply")
        assert (refused.exit_code, f"{name}='{value}': expected a whole number" in refused.stderr) == (23, True)

    assert kafka.dump() == before
    cluster.brokers[0].kill()
    cluster.brokers[0].start()
    cluster.brokers[0].wait_ready()
    commit(surveyor, kafka, alteration(surveyor.warehouse, kafka, topic, values, dict.fromkeys(values)), "admin")
    assert eventually(lambda: set(topic_metadata(cluster.brokers[0].address, topic)[0][2]) == {0, 1})


TYPES = {1: "BOOLEAN", 2: "STRING", 3: "INT", 5: "LONG", 6: "DOUBLE", 7: "LIST"}


def test_the_table_of_configs_is_the_brokers(cluster: EmbeddedCluster, kafka: KafkaTree, topic: str) -> None:
    brokers = read_cluster(kafka.client).brokers[:1]
    request = DescribeConfigsRequest(resources=[(ConfigResourceType.TOPIC, topic, None)], min_version=3)
    # a broker knows the topics that UpdateMetadata contained
    assert eventually(lambda: bool(topic_metadata(cluster.brokers[0].address, topic)))

    answers, _ = ask_brokers(brokers, {}, 20.0, lambda ask, _: ask(request))

    (answer,) = answers.values()
    types = {config.name: TYPES[config.config_type] for config in answer.results[0].configs}
    assert types == {name: known.type for name, known in TOPIC_CONFIGS.items()}


@pytest.fixture
def second_dir(cluster: EmbeddedCluster, topic: str) -> Iterator[Path]:
    """Another log dir of broker 1, the next to get a log, as the first holds more; gone again afterwards."""
    broker = cluster.brokers[1]
    assert eventually((broker.folder / "data" / f"{topic}-0").is_dir)
    folder = broker.folder / "second"

    def restart(overrides: dict[str, str]) -> None:
        broker.kill()
        broker.overrides = overrides
        broker.start()
        broker.wait_ready()

    before = dict(broker.overrides)
    restart(before | {"log.dirs": f"{broker.folder / 'data'},{folder}"})
    yield folder
    restart(before)


@pytest.mark.usefixtures("spark")
def test_a_failed_log_dir_does_not_lead_again_and_again(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, second_dir: Path
) -> None:
    """Broker 1 is alone in the ISR when its log dir fails; broker 2 is back, but only an unclean election takes it."""
    name = "failed"
    assert eventually(lambda: broker_in_control(kafka))
    commit(
        surveyor,
        kafka,
        store_plan(surveyor.warehouse, kafka, [creation(name, 0, [1, 2])], [topic_creation(name)]),
        "admin",
    )
    assert eventually((second_dir / f"{name}-0").is_dir)
    cluster.brokers[2].kill()
    cluster.brokers[2].expire()
    assert eventually(lambda: kafka.state(name).isr == [1])
    shutil.rmtree(second_dir)
    second_dir.touch()
    assert eventually(lambda: kafka.state(name).leader == NO_LEADER)
    cluster.brokers[2].start()
    cluster.brokers[2].wait_ready()

    def due(*arguments: str) -> tuple[Plan, list[tuple[str, int]]]:
        plan = planned(surveyor, kafka, "reconcile", *arguments)
        changes = [change for change in plan.changes if change.topic == name]
        return plan, [(change.action, change.leader_after) for change in changes]

    plan, elected = due()
    assert elected == [(Action.ELECT, 1)]
    done = surveyor.run("commit", plan.plan_id, "--zookeeper", kafka.hosts, "--mode", "batch", "--apply")
    assert (done.exit_code, "1 partition has no leader (failed-0)" in done.stderr) == (1, True)
    assert eventually(lambda: kafka.state(name).leader == NO_LEADER)
    plan, elected = due()
    assert elected == []
    assert [(row.reason or "").split("; ")[-1] for row in plan.rejections if row.topic == name] == [
        "failed log dir on broker 1 (error 56)"
    ]
    plan, elected = due("--allow-unclean")
    assert elected == [(Action.ELECT, 2)]
    commit(surveyor, kafka, plan, "batch")
    assert eventually(lambda: topic_metadata(cluster.brokers[2].address, name)[0][0] == 2)


def _tool(cluster: EmbeddedCluster, *arguments: str) -> str:
    command = [*java_of_tools(), TOOL, "--bootstrap-server", cluster.bootstrap, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafkas_tool_reads_ours_and_we_read_kafkas(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, topic: str, tmp_path: Path
) -> None:
    after = {"replicas_after": [2, 0], "adding_after": [2], "removing_after": [1], "action": Action.REASSIGN.value}
    plan = store_plan(surveyor.warehouse, kafka, [election(kafka, topic, 0, leader=0, **after)])
    ours, topics_file, theirs = (tmp_path / name for name in ("ours.json", "topics.json", "generated.txt"))
    topics_file.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))

    ours.write_text(surveyor.run("export", plan.plan_id, "--format", "kafka").stdout)
    executed = _tool(cluster, "--execute", "--reassignment-json-file", str(ours))
    moved = eventually(lambda: kafka.assignment(topic).partitions[0] == [2, 0])
    verified = surveyor.run("verify", plan.plan_id, "--zookeeper", kafka.hosts, "--format", "kafka").stdout
    theirs_of_it = _tool(cluster, "--verify", "--reassignment-json-file", str(ours), "--preserve-throttles")
    generate = ("--generate", "--topics-to-move-json-file", str(topics_file), "--broker-list", "0,1,2")
    theirs.write_text(_tool(cluster, *generate))

    proposal = read_reassignment(theirs)
    assert f"Successfully started partition reassignment for {topic}-0" in executed
    assert moved
    assert theirs_of_it.startswith(verified)
    targets = {(row.topic, row.partition): row.replicas for row in proposal}
    assert [*targets] == [(topic, 0), (topic, 1)]
    assert kafka_json(targets) in theirs.read_text().splitlines()
