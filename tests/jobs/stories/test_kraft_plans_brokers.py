"""Plans carried out in a real KRaft cluster: moves, elections, topics, cancellations, rollbacks, kills, the lease."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined] # exported, untyped
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.brokers.admin import connected_admin
from jobs.adapters.delta.lease import WarehouseLease
from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from jobs.adapters.sources.kraft import KRaftSource
from jobs.execution.admin.controller_client import request_changes
from jobs.execution.admin.lease import this_process
from schemas.columns import TABLE_COLUMNS
from tests.jobs.support.commands.commands import Ran, Surveyor
from tests.jobs.support.kafka.real_cluster import create_topics, eventually

pytestmark = pytest.mark.usefixtures("spark")

RACKS = {1: "a", 2: "b", 3: "c"}
NO_MAKING = {"auto.create.topics.enable": "false"}
"""librdkafka asks again for the metadata of topics that a test has deleted, and brokers would create them."""

RECORD = b"x" * 10_000
SLOW = "100kB/s"


@dataclass(frozen=True, slots=True)
class Kafka:
    """The cluster, and Surveyor for it."""

    cluster: EmbeddedKRaftCluster
    surveyor: Surveyor
    admin: AdminClient

    def create(self, topics: Mapping[str, list[list[int]]], **config: str) -> None:
        create_topics(
            self.admin,
            *(
                NewTopic(name, len(replicas), replica_assignment=replicas, config=config)
                for name, replicas in topics.items()
            ),
        )
        assert eventually(lambda: topics.keys() <= self.topics_in_snapshot())

    def topics_in_snapshot(self) -> set[str]:
        self.snapshot()
        return {row["topic"] for row in self.surveyor.warehouse.rows("topics")}

    def snapshot(self) -> None:
        self.surveyor.json("snapshot")

    def fill(self, topic: str, megabytes: int) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all", "log_level": 0})
        for number in range(megabytes * 100):
            producer.produce(topic, RECORD, partition=0)
            if number % 100 == 0:
                producer.flush(60)
        assert producer.flush(60) == 0

    def partitions(self, topic: str) -> dict[int, tuple[int, list[int], set[int]]]:
        """Leader, replicas and ISR of each partition, as librdkafka says."""
        known = self.admin.list_topics(topic, timeout=20).topics[topic].partitions
        return {number: (row.leader, list(row.replicas), set(row.isrs)) for number, row in known.items()}

    def replicas(self, topic: str) -> dict[int, list[int]]:
        return {number: replicas for number, (_, replicas, _) in sorted(self.partitions(topic).items())}

    def config(self, kind: str, name: str) -> dict[str, str]:
        """The dynamic settings of a broker or topic."""
        resource = ConfigResource(ConfigResource.Type[kind.upper()], name)
        (answer,) = self.admin.describe_configs([resource]).values()
        own = {"topic": 1, "broker": 2}[kind]
        return {entry.name: entry.value for entry in answer.result().values() if entry.source == own}

    def moving(self) -> dict[tuple[str, int], list[int]]:
        with connected_admin(self.cluster.bootstrap.split(","), {}) as admin:
            return admin.reassignments()

    def targets(self, tmp_path: Path, *targets: tuple[str, int, list[int]]) -> list[str]:
        rows = [{"topic": topic, "partition": number, "replicas": replicas} for topic, number, replicas in targets]
        path = tmp_path / "targets.json"
        path.write_text(json.dumps({"version": 1, "partitions": rows}))
        return ["--reassignment-json-file", str(path)]

    def plan(self, name: str, *question: str) -> str:
        return str(self.surveyor.json("plan", *question, "--name", name)["plan_id"])

    def outcomes(self, plan_id: str) -> list[tuple[str, str]]:
        rows = self.surveyor.warehouse.rows("commits", ("plan_id", "=", plan_id))
        return sorted((row["action"], row["outcome"]) for row in rows)

    def process(self, *arguments: str, prelude: str = "") -> "subprocess.Popen[str]":
        """A command in a process of its own, which can be killed."""
        code = f"{prelude}\nimport sys; from jobs.entry import main; sys.argv[0] = 'surveyor'; main()"
        options = ["--bootstrap-server", self.surveyor.hosts, "--warehouse", str(self.surveyor.folder)]
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ},
        )


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with EmbeddedKRaftCluster(3, racks=RACKS, overrides=NO_MAKING, heap="320m") as cluster:
        surveyor = Surveyor(cluster.bootstrap, tmp_path_factory.mktemp("kraft") / "warehouse", "--bootstrap-server")
        yield Kafka(cluster, surveyor, AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}))


APPLY = ("--apply", "--yes")


def committed(ran: Ran) -> Any:  # noqa: ANN401 - JSON
    assert ran.code == 0, f"{ran.code}: {ran.stderr}{ran.stdout}"
    assert ran.json["status"] == "committed", ran.stdout
    return ran.json


def test_replicas_move_in_waves_under_a_throttle(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create({"waves": [[1, 2], [1, 2], [1, 2]]})
    goals = [("waves", number, [3, 2]) for number in range(3)]
    plan = kafka.plan("waves", "reassign", *kafka.targets(tmp_path, *goals), "--max-moves-per-broker", "1")
    waves = {row["wave"] for row in kafka.surveyor.warehouse.rows("changes", ("plan_id", "=", plan))}
    assert waves == {0, 1, 2}
    result = committed(kafka.surveyor("commit", "waves", *APPLY, "--wait", "--throttle", "50MB/s", "--json"))
    assert result["applied"] == 3
    assert eventually(lambda: kafka.replicas("waves") == {number: [3, 2] for number in range(3)})
    assert eventually(lambda: [kafka.config("broker", str(broker)) for broker in RACKS] == [{}] * 3)
    assert eventually(lambda: not [name for name in kafka.config("topic", "waves") if "throttled" in name])
    assert kafka.surveyor.warehouse.rows("throttles") == []
    assert ("throttle", "applied") in kafka.outcomes(plan)
    verified = kafka.surveyor.json("verify", "waves")
    assert verified["complete"] == 3
    again = committed(kafka.surveyor("commit", "waves", *APPLY, "--json"))
    assert (again["applied_now"], kafka.replicas("waves")) == (0, {number: [3, 2] for number in range(3)})


def test_a_dry_run_writes_nothing(kafka: Kafka, tmp_path: Path) -> None:
    """Neither into the cluster nor into the warehouse: the twin of the tests that apply the same commands."""
    kafka.create({"dry": [[1, 2]]})
    plan = kafka.plan("dry", "reassign", *kafka.targets(tmp_path, ("dry", 0, [3, 2])))
    before = {name: kafka.surveyor.warehouse.version(name) for name in TABLE_COLUMNS}
    ran = kafka.surveyor("commit", "dry", "--throttle", "1MB/s", "--json")
    assert (ran.code, ran.json["dry_run"], ran.json["due"]) == (0, True, 1)
    for dry in (["cancel", "dry"], ["cancel", "--throttles"], ["cancel", "--partitions", "dry-0"], ["verify", "dry"]):
        assert kafka.surveyor(*dry).code == 0
    assert {name: kafka.surveyor.warehouse.version(name) for name in TABLE_COLUMNS} == before
    assert (kafka.replicas("dry"), kafka.moving(), kafka.outcomes(plan)) == ({0: [1, 2]}, {}, [])


def test_what_changed_since_the_plan_is_refused(kafka: Kafka, tmp_path: Path) -> None:
    """Another client moves one partition between plan and commit; the others are carried out."""
    kafka.create({"shared": [[1, 2], [1, 2]]})
    goals = kafka.targets(tmp_path, ("shared", 0, [3, 2]), ("shared", 1, [3, 2]))
    plan = kafka.plan("shared", "reassign", *goals)
    with connected_admin(kafka.cluster.bootstrap.split(","), {}) as admin:
        assert admin.reassign({("shared", 0): [2, 1]}) == {("shared", 0): 0}
    assert eventually(lambda: kafka.replicas("shared")[0] == [2, 1] and not kafka.moving())
    ran = kafka.surveyor("commit", "shared", *APPLY, "--wait", "--json")
    assert (ran.json["status"], ran.json["applied"], ran.json["stale"]) == ("partial", 1, 1), ran
    assert eventually(lambda: kafka.replicas("shared") == {0: [2, 1], 1: [3, 2]})
    (stale,) = [
        row for row in kafka.surveyor.warehouse.rows("commits", ("plan_id", "=", plan)) if row["outcome"] == "stale"
    ]
    assert stale["partition"] == 0
    assert "its replicas are now [2, 1]" in stale["message"]


def test_a_new_leader_is_a_change_since_the_plan(kafka: Kafka, tmp_path: Path) -> None:
    """The replicas are as planned, and the leader epoch is not."""
    kafka.create({"led": [[1, 2]]})
    plan = kafka.plan("led", "reassign", *kafka.targets(tmp_path, ("led", 0, [3, 2])))
    with connected_admin(kafka.cluster.bootstrap.split(","), {}) as admin:
        for order in ([2, 1], [1, 2]):
            assert admin.reassign({("led", 0): order}) == {("led", 0): 0}
            assert admin.elect_preferred([("led", 0)]) == {("led", 0): 0}
    ran = kafka.surveyor("commit", "led", *APPLY, "--json")
    assert (ran.code, ran.json["stale"]) == (21, 1), ran
    (stale,) = kafka.surveyor.warehouse.rows("commits", ("plan_id", "=", plan))
    assert stale["message"].startswith("changed since the plan: leader epoch 0→"), stale
    assert eventually(lambda: kafka.replicas("led") == {0: [1, 2]})


def test_what_changes_between_the_last_check_and_the_request_is_said(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client changes the leader in these milliseconds; the move is accepted, and read back."""
    kafka.create({"meanwhile": [[1, 2]]})
    kafka.fill("meanwhile", 5)
    plan = kafka.plan("meanwhile", "reassign", *kafka.targets(tmp_path, ("meanwhile", 0, [1, 3])))

    def meanwhile(*arguments: Any) -> None:  # noqa: ANN401 - those of the original
        with connected_admin(kafka.cluster.bootstrap.split(","), {}) as admin:
            assert admin.reassign({("meanwhile", 0): [2, 1]}) == {("meanwhile", 0): 0}
            assert admin.elect_preferred([("meanwhile", 0)]) == {("meanwhile", 0): 0}
        request_changes(*arguments)

    monkeypatch.setattr("jobs.execution.admin.commit.request_changes", meanwhile)
    ran = kafka.surveyor("commit", "meanwhile", *APPLY, "--wait", "--throttle", "500kB/s")
    assert ran.code == 0, ran
    assert "meanwhile-0: accepted; changed at the same time: leader 1→2, leader epoch 0→" in ran.stderr
    rows = kafka.surveyor.warehouse.rows("commits", ("plan_id", "=", plan))
    (applied,) = (row for row in rows if row["action"] == "reassign" and row["outcome"] == "applied")
    assert "changed at the same time: leader 1→2" in applied["message"]
    assert eventually(lambda: kafka.replicas("meanwhile") == {0: [1, 3]})


def test_a_move_is_cancelled_and_its_throttle_removed(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create({"slow": [[1, 2]]})
    kafka.fill("slow", 20)
    plan = kafka.plan("slow", "reassign", *kafka.targets(tmp_path, ("slow", 0, [3, 2])))
    ran = kafka.surveyor("commit", "slow", *APPLY, "--throttle", SLOW, "--max-wait", "2s", "--wait")
    assert ran.code == 25, ran
    assert eventually(lambda: kafka.config("broker", "1").get("leader.replication.throttled.rate") == "100000")
    assert eventually(lambda: kafka.moving() == {("slow", 0): [3, 2]})
    result = kafka.surveyor.json("cancel", "slow", *APPLY)
    assert (result["status"], result["cancelled_now"]) == ("cancelled", 1)
    assert eventually(lambda: (kafka.moving(), kafka.replicas("slow")) == ({}, {0: [1, 2]}))
    assert eventually(lambda: [kafka.config("broker", str(broker)) for broker in RACKS] == [{}] * 3)
    assert ("cancel", "applied") in kafka.outcomes(plan)
    assert kafka.surveyor("commit", "slow", *APPLY).code == 23


def test_moves_and_throttles_of_another_client_are_cancelled(kafka: Kafka) -> None:
    """Those that no plan requested: the throttle first stops the move, and is removed once nothing moves."""
    kafka.create({"other": [[1, 2]]})
    kafka.fill("other", 1)
    rate = {"leader.replication.throttled.rate": "1", "follower.replication.throttled.rate": "1"}
    replicas = {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "*"}
    with connected_admin(kafka.cluster.bootstrap.split(","), {}) as admin:
        for broker in RACKS:
            assert admin.alter_override("broker", str(broker), rate) == 0
        assert admin.alter_override("topic", "other", replicas) == 0
        assert admin.reassign({("other", 0): [3, 2]}) == {("other", 0): 0}
    assert kafka.surveyor("cancel", "--throttles", *APPLY).code == 23
    result = kafka.surveyor.json("cancel", "--partitions", "other-0", *APPLY)
    assert (result["cancelled_now"], result["failed"]) == (1, 0)
    # Kafka leaves the order of the target
    assert eventually(lambda: (kafka.moving(), kafka.replicas("other")) == ({}, {0: [2, 1]}))
    assert kafka.surveyor.json("cancel", "--throttles", *APPLY)["cleared"] == 4
    assert eventually(lambda: [kafka.config("broker", str(broker)) for broker in RACKS] == [{}] * 3)
    assert eventually(lambda: kafka.config("topic", "other") == {})


def test_a_plan_is_rolled_back(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create({"there": [[1, 2], [2, 3]]})
    kafka.plan("there", "reassign", *kafka.targets(tmp_path, ("there", 0, [3, 2]), ("there", 1, [2, 1])))
    committed(kafka.surveyor("commit", "there", *APPLY, "--wait", "--json"))
    result = kafka.surveyor.json("rollback", "there", "--name", "again", *APPLY)
    assert result["status"] == "committed"
    assert eventually(lambda: kafka.replicas("there") == {0: [1, 2], 1: [2, 3]})
    assert eventually(lambda: kafka.surveyor.json("verify", "again")["complete"] == 2)
    (row,) = kafka.surveyor.warehouse.rows("plans", ("name", "=", "there"))
    assert row["status"] == "rolled_back"


def election(tmp_path: Path, topic: str) -> list[str]:
    path = tmp_path / "elect.json"
    path.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0}]}))
    return ["elect", "--preferred", "--path-to-json-file", str(path)]


def test_preferred_leaders_are_elected(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create({"pref": [[1, 2]]})
    with connected_admin(kafka.cluster.bootstrap.split(","), {}) as admin:
        assert admin.reassign({("pref", 0): [2, 1]}) == {("pref", 0): 0}
    assert eventually(lambda: kafka.replicas("pref") == {0: [2, 1]})
    kafka.snapshot()
    kafka.plan("pref", *election(tmp_path, "pref"))
    assert committed(kafka.surveyor("commit", "pref", *APPLY, "--json"))["applied_now"] == 1
    assert eventually(lambda: kafka.partitions("pref")[0][0] == 2)
    assert kafka.surveyor.json("verify", "pref")["complete"] == 1


def test_a_broker_is_drained_and_undrained(kafka: Kafka) -> None:
    kafka.create({"drain": [[1, 2], [2, 1], [1, 3]]})
    kafka.plan("drain", "drain", "--brokers", "1")
    committed(kafka.surveyor("commit", "drain", *APPLY, "--wait", "--json"))
    assert eventually(lambda: 1 not in {leader for leader, _, _ in kafka.partitions("drain").values()})
    assert eventually(lambda: kafka.replicas("drain") == {0: [2, 1], 1: [2, 1], 2: [3, 1]})
    kafka.snapshot()
    kafka.plan("undrain", "undrain", "--brokers", "1")
    committed(kafka.surveyor("commit", "undrain", *APPLY, "--wait", "--json"))
    assert kafka.surveyor.warehouse.rows("drained") == []


def test_topics_are_made_extended_configured_and_deleted(kafka: Kafka) -> None:
    kafka.snapshot()
    kafka.plan("make", "assign", "--topic", "made", "--partitions", "2", "--replication-factor", "2")
    assert committed(kafka.surveyor("commit", "make", *APPLY, "--json"))["applied_now"] == 2
    assert eventually(lambda: len(kafka.replicas("made")) == 2)
    assert kafka.surveyor.json("verify", "make")["complete"] == 2
    kafka.snapshot()
    kafka.plan("extend", "expand", "--topic", "made", "--partitions", "4")
    assert committed(kafka.surveyor("commit", "extend", *APPLY, "--json"))["applied_now"] == 2
    assert eventually(lambda: len(kafka.replicas("made")) == 4)
    kafka.snapshot()
    kafka.plan("configure", "config", "--topic", "made", "--set", "retention.ms=3600000")
    assert committed(kafka.surveyor("commit", "configure", *APPLY, "--json"))["applied_now"] == 1
    assert eventually(lambda: kafka.config("topic", "made") == {"retention.ms": "3600000"})
    assert committed(kafka.surveyor("commit", "configure", *APPLY, "--json"))["applied_now"] == 0
    kafka.snapshot()
    kafka.plan("remove", "delete", "--topics", "made")
    assert committed(kafka.surveyor("commit", "remove", *APPLY, "--json"))["applied_now"] == 1
    assert eventually(lambda: "made" not in kafka.admin.list_topics(timeout=20).topics)
    assert kafka.surveyor.json("verify", "remove")["complete"] == 1


REFUSED: list[list[str]] = [["--mode", "batch"], ["--via", "zookeeper"]]


@pytest.mark.parametrize("options", REFUSED, ids=" ".join)
def test_what_needs_zookeeper_is_refused_in_one_line(kafka: Kafka, tmp_path: Path, options: list[str]) -> None:
    topic = f"mode{REFUSED.index(options)}"
    kafka.create({topic: [[1, 2]]})
    plan = kafka.plan(topic, *election(tmp_path, topic))
    ran = kafka.surveyor("commit", plan, *options, *APPLY)
    assert (ran.code, len(ran.stderr.strip().splitlines())) == (23, 1), ran
    assert "a KRaft cluster has no" in ran.stderr


KILLED_AT: dict[str, tuple[str, str]] = {
    "before the intents": ("jobs.repositories.plans.commit_log.CommitLog", "append_intents"),
    "before the throttle": ("jobs.execution.admin.commit", "set_throttle"),
    "before the request": ("jobs.execution.admin.commit", "request_changes"),
    "after the request": ("jobs.execution.admin.commit", "note_changes_meanwhile"),
    "before the throttle is removed": ("jobs.execution.admin.commit", "end_throttle"),
}
"""Functions that a commit calls, in this order."""


def killing(owner: str, name: str) -> str:
    """Code that makes a process kill itself when it calls a function."""
    module, _, attribute = owner.rpartition(".") if owner.endswith("CommitLog") else (owner, "", "")
    target = f"importlib.import_module({module!r})" + (f".{attribute}" if attribute else "")
    die = "lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)"
    brief = "from jobs.adapters.delta import lease; lease.LEASE_SECONDS, lease.RENEWAL_SECONDS = 8.0, 2.0"
    return f"{brief}; import importlib, os, signal; setattr({target}, {name!r}, {die})"


@pytest.mark.parametrize("point", KILLED_AT)
def test_a_killed_commit_is_run_again(kafka: Kafka, tmp_path: Path, point: str) -> None:
    """The same command does the rest, and nothing twice; its lease and throttle are not left behind."""
    topic = f"killed{[*KILLED_AT].index(point)}"
    kafka.create({topic: [[1, 2], [1, 2]]})
    goals = kafka.targets(tmp_path, (topic, 0, [3, 2]), (topic, 1, [3, 2]))
    plan = kafka.plan(topic, "reassign", *goals, "--max-moves-per-broker", "1")
    command = ["commit", topic, *APPLY, "--wait", "--throttle", "50MB/s"]
    dying = kafka.process(*command, prelude=killing(*KILLED_AT[point]))
    _, stderr = dying.communicate(timeout=120)
    assert dying.returncode == -signal.SIGKILL, stderr
    committed(kafka.surveyor(*command, "--json"))
    assert eventually(lambda: kafka.replicas(topic) == {0: [3, 2], 1: [3, 2]})
    assert eventually(lambda: [kafka.config("broker", str(broker)) for broker in RACKS] == [{}] * 3)
    assert (kafka.surveyor.warehouse.rows("throttles"), kafka.surveyor.warehouse.rows("leases")) == ([], [])
    rows = kafka.surveyor.warehouse.rows("commits", ("plan_id", "=", plan))
    last = max(row["attempt"] for row in rows)
    ends = [
        row for row in rows if row["attempt"] == last and row["action"] == "reassign" and row["outcome"] != "pending"
    ]
    assert [row["outcome"] for row in ends] == ["applied"] * 2


CANCELLATION_KILLED_AT: dict[str, tuple[str, str]] = {
    "before the lease": ("jobs.execution.cancellation", "lease_for"),
    "after the requests": ("jobs.execution.cancellation", "end_throttle"),
}


@pytest.mark.parametrize("point", CANCELLATION_KILLED_AT)
def test_a_killed_cancellation_is_run_again(kafka: Kafka, tmp_path: Path, point: str) -> None:
    topic = f"recalled{[*CANCELLATION_KILLED_AT].index(point)}"
    kafka.create({topic: [[1, 2]]})
    kafka.fill(topic, 10)
    kafka.plan(topic, "reassign", *kafka.targets(tmp_path, (topic, 0, [3, 2])))
    assert kafka.surveyor("commit", topic, *APPLY, "--wait", "--throttle", SLOW, "--max-wait", "1s").code == 25
    dying = kafka.process("cancel", topic, *APPLY, prelude=killing(*CANCELLATION_KILLED_AT[point]))
    _, stderr = dying.communicate(timeout=120)
    assert dying.returncode == -signal.SIGKILL, stderr
    assert eventually(lambda: kafka.surveyor("cancel", topic, *APPLY).code == 0)
    assert eventually(lambda: (kafka.moving(), kafka.replicas(topic)) == ({}, {0: [1, 2]}))
    ran = kafka.surveyor("commit", topic, *APPLY)
    assert ran.code in {0, 23}, ran  # a closed plan: only its throttle is maintained
    assert eventually(lambda: [kafka.config("broker", str(broker)) for broker in RACKS] == [{}] * 3)
    assert (kafka.surveyor.warehouse.rows("throttles"), kafka.surveyor.warehouse.rows("leases")) == ([], [])


def test_two_commands_at_once_are_kept_apart(kafka: Kafka, tmp_path: Path) -> None:
    """The second is told who holds the lease and until when; the first goes on."""
    kafka.create({"apart": [[1, 2]]})
    kafka.fill("apart", 20)
    kafka.plan("apart", "reassign", *kafka.targets(tmp_path, ("apart", 0, [3, 2])))
    first = kafka.process("commit", "apart", *APPLY, "--wait", "--throttle", SLOW, "--max-wait", "60s")
    try:
        assert eventually(lambda: bool(kafka.moving()))
        second = kafka.surveyor("commit", "apart", *APPLY, "--throttle", "none")
        assert second.code == 23, second
        assert f"(process {first.pid})" in second.stderr
        assert " until " in second.stderr
    finally:
        first.send_signal(signal.SIGINT)
        _, stderr = first.communicate(timeout=60)
    assert first.returncode == 25, stderr
    kafka.surveyor.json("cancel", "apart", *APPLY)
    assert eventually(lambda: kafka.replicas("apart") == {0: [1, 2]})


def test_a_holder_whose_lease_was_taken_stops_before_its_next_write(kafka: Kafka, tmp_path: Path) -> None:
    """As if it had been stopped beyond its deadline; the first wave stays, the second is not requested."""
    kafka.create({"taken": [[1, 2], [1, 2]]})
    kafka.fill("taken", 10)
    goals = kafka.targets(tmp_path, ("taken", 0, [3, 2]), ("taken", 1, [3, 2]))
    plan = kafka.plan("taken", "reassign", *goals, "--max-moves-per-broker", "1")
    first = kafka.process("commit", "taken", *APPLY, "--wait", "--throttle", "500kB/s")
    assert eventually(lambda: bool(kafka.moving()))
    (row,) = kafka.surveyor.warehouse.rows("leases")
    past = datetime.now(UTC) - timedelta(seconds=1)
    kafka.surveyor.warehouse.replace("leases", [{**row, "deadline": past, "token": "expired"}])
    other = WarehouseLease(kafka.surveyor.warehouse, this_process("cancel", "other"), print)
    other.take(0.0)
    _, stderr = first.communicate(timeout=180)
    assert first.returncode == 25, stderr
    assert "the lease of this cluster in table leases was lost" in stderr
    requested = {key for key in kafka.moving() if key[0] == "taken"}
    assert ("taken", 1) not in requested
    assert eventually(lambda: kafka.replicas("taken")[1] == [1, 2])
    other.release()
    committed(kafka.surveyor("commit", plan, *APPLY, "--wait", "--throttle", "none", "--json"))
    assert eventually(lambda: kafka.replicas("taken") == {0: [3, 2], 1: [3, 2]})


def quorum_leader(kafka: Kafka) -> int:
    return int(kafka.surveyor.json("snapshot")["controller_id"])


def test_the_quorums_leader_is_killed_in_the_middle_of_a_commit(kafka: Kafka, tmp_path: Path) -> None:
    """Right before the second wave is requested. Whatever the outcome of that run, running it again ends the plan."""
    leader = quorum_leader(kafka)
    source, goal = (node for node in kafka.cluster.nodes if node != leader)
    kafka.create({"quorum": [[source], [source]]})
    goals = kafka.targets(tmp_path, ("quorum", 0, [goal]), ("quorum", 1, [goal]))
    kafka.plan("quorum", "reassign", *goals, "--max-moves-per-broker", "1")
    flag, go = tmp_path / "reached", tmp_path / "go"
    prelude = f"""
import pathlib, time
from jobs.execution.admin import commit
ask, asked = commit.request_changes, []
def meeting(*arguments):
    asked.append(1)
    if len(asked) == 2:
        pathlib.Path({str(flag)!r}).touch()
        while not pathlib.Path({str(go)!r}).exists():
            time.sleep(0.05)
    return ask(*arguments)
commit.request_changes = meeting
"""
    running = kafka.process("commit", "quorum", *APPLY, "--wait", "--json", prelude=prelude)
    try:
        assert eventually(flag.exists)
        kafka.cluster.nodes[leader].kill()
        go.touch()
        stdout, stderr = running.communicate(timeout=180)
        assert running.returncode in {0, 1, 25}, stderr
        if running.returncode == 0:
            assert json.loads(stdout)["status"] == "committed"
        assert eventually(lambda: kafka.surveyor("commit", "quorum", *APPLY, "--wait", "--json").code == 0)
        verified = kafka.surveyor.json("verify", "quorum")
        assert verified["complete"] == 2
    finally:
        running.kill()
        kafka.cluster.nodes[leader].start()
        kafka.cluster.nodes[leader].wait_ready()
    assert eventually(lambda: kafka.replicas("quorum") == {0: [goal], 1: [goal]})


def test_an_unclean_election_is_kafkas_own(kafka: Kafka, tmp_path: Path) -> None:
    """The replica in sync is dead, and the other lacks its records: only with a permission in the plan."""
    in_sync, behind, other = kafka.cluster.nodes
    left = [kafka.cluster.nodes[node].address for node in (behind, other)]

    def alive() -> list[set[int]]:
        return [{row.broker_id for row in KRaftSource(address).read_brokers()} for address in left]

    kafka.create({"unclean": [[in_sync, behind]]})
    kafka.cluster.nodes[behind].kill()
    assert eventually(lambda: kafka.partitions("unclean")[0][2] == {in_sync})
    kafka.fill("unclean", 1)
    kafka.cluster.nodes[in_sync].kill()
    kafka.cluster.nodes[behind].start()
    kafka.cluster.nodes[behind].wait_ready()
    try:
        assert eventually(lambda: alive() == [{behind, other}] * 2)
        assert eventually(lambda: kafka.partitions("unclean")[0][0] == -1)
        kafka.surveyor.json("snapshot")
        elect = [*election(tmp_path, "unclean")[2:]]
        clean = kafka.surveyor.json("plan", "elect", "--offline", *elect)
        assert (clean["changes"], clean["rejected"]) == (0, 1)
        assert kafka.surveyor.json("plan", "elect", "--unclean", *elect, "--name", "unclean")["changes"] == 1
        dry = kafka.surveyor("commit", "unclean", "--json")
        assert (dry.json["due"], kafka.partitions("unclean")[0][0]) == (1, -1)
        assert any("unclean" in warning for warning in dry.json["warnings"]), dry.json["warnings"]
        assert committed(kafka.surveyor("commit", "unclean", *APPLY, "--json"))["applied_now"] == 1
        assert eventually(lambda: kafka.partitions("unclean")[0][0] == behind)
        assert kafka.surveyor.json("verify", "unclean")["complete"] == 1
    finally:
        kafka.cluster.nodes[in_sync].start()
        kafka.cluster.nodes[in_sync].wait_ready()
    again = kafka.surveyor("commit", "unclean", *APPLY, "--json")
    assert (again.code, again.json["applied_now"]) == (0, 0), again
