"""Moves, drains, elections, cancellations and rollbacks on real brokers, by one text for clusters of both kinds.

Producers with acks=all lose nothing. The last tests are about requests and configs in ZooKeeper.
"""

import json
import shlex
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from jobs.adapters.brokers.admin_client import connected_admin
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.repositories.actor import this_actor
from jobs.repositories.plans.plans_reader import find_plan
from schemas.columns import TABLE_COLUMNS
from schemas.znode_codecs import encode_config
from tests.docs.blocks import page_path
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.controllers.throttled_tree import overrides
from tests.jobs.support.kafka.planned_kafka import (
    APPLY,
    NO_MAKING,
    RACKS,
    SLOW,
    PlannedKafka,
    committed,
    election,
    kraft_kafka,
)
from tests.jobs.support.kafka.real_cluster import Traffic, create_topics, eventually, kafka_tree
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = [
    pytest.mark.usefixtures("spark"),
    pytest.mark.brokers,
    pytest.mark.cluster(3, first_id=1, racks=RACKS, overrides=NO_MAKING, heap="320m"),
]

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
BOTH = pytest.mark.parametrize("kafka", ["kraft", "zookeeper"], indirect=True)
"""For what no other story with ZooKeeper does."""
CANCELLING = " ".join(page_path("reassigning.md").read_text().split())
"""The page that says how a cancelled commit ends."""


@pytest.fixture(scope="module", params=["kraft", pytest.param("zookeeper", marks=pytest.mark.repeat)])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlannedKafka]:
    """A cluster of each kind."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "kraft":
        with kraft_kafka(folder) as running:
            yield running
        return
    cluster = request.getfixturevalue("cluster")
    surveyor = Surveyor(cluster.zookeeper_server.connect, folder / "warehouse")
    yield PlannedKafka(cluster, surveyor, AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}))


@pytest.mark.first("KRaft: a plan is made, committed and verified")
def test_replicas_move_in_waves_under_a_throttle(kafka: PlannedKafka, tmp_path: Path) -> None:
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


def test_a_dry_run_writes_nothing(kafka: PlannedKafka, tmp_path: Path) -> None:
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


def test_what_changed_since_the_plan_is_refused(kafka: PlannedKafka, tmp_path: Path) -> None:
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


@BOTH
def test_an_addition_and_a_move_are_cancelled_in_the_middle(kafka: PlannedKafka, tmp_path: Path) -> None:
    """Partition 0 is to have a replica more; 1 is to move, and Kafka leaves it in another order."""
    kafka.create({"slow": [[1, 2], [1, 2]]})
    kafka.fill("slow", 10)
    plan = kafka.plan("slow", "reassign", *kafka.targets(tmp_path, ("slow", 0, [1, 2, 3]), ("slow", 1, [2, 3])))
    with Traffic(kafka.cluster.bootstrap, "slow") as traffic:
        ran = kafka.surveyor("commit", "slow", *APPLY, "--throttle", SLOW, "--max-wait", "2s", "--wait")
        assert ran.code == 25, ran
        assert eventually(lambda: kafka.config("broker", "1").get(RATES[0]) == "100000")
        assert eventually(lambda: kafka.moving() == {("slow", 0): [1, 2, 3], ("slow", 1): [2, 3]})
        dry = kafka.surveyor("cancel", "slow")
        assert ("dry run" in dry.stdout, len(kafka.moving())) == (True, 2)
        result = kafka.surveyor.json("cancel", "slow", *APPLY)
    figures = [result[name] for name in ("status", "cancelled_now", "reordered_now", "in_progress")]
    assert figures == ["cancelled", 2, 1, 0]
    assert eventually(lambda: (kafka.moving(), kafka.replicas("slow")) == ({}, {0: [1, 2], 1: [1, 2]}))
    assert eventually(lambda: [kafka.config("broker", str(broker)) for broker in RACKS] == [{}] * 3)
    assert ("cancel", "applied") in kafka.outcomes(plan)
    again = kafka.surveyor.json("cancel", "slow", *APPLY)
    assert (again["cancelled_now"], again["reordered_now"]) == (0, 0)
    assert kafka.surveyor("commit", "slow", *APPLY).code == 23
    assert eventually(lambda: kafka.is_in_sync("slow"))
    assert (traffic.failed, traffic.acknowledged - traffic.stored(2)) == ([], set())


@BOTH
def test_a_plan_is_cancelled_while_its_commit_waits(kafka: PlannedKafka, tmp_path: Path) -> None:
    """The commit lets the cancellation have the lease, and neither leaves a throttle.

    Meanwhile, the commit of another plan is refused; the refusal names the plan that moves and its author.
    """
    kafka.create({"waiting": [[1, 2], [1, 2]]})
    kafka.fill("waiting", 10)
    waiting = kafka.plan("waiting", "reassign", *kafka.targets(tmp_path, ("waiting", 0, [1, 2, 3])))
    kafka.plan("nearby", "reassign", *kafka.targets(tmp_path, ("waiting", 1, [2, 3])))
    commit = kafka.process("commit", "waiting", *APPLY, "--wait", "--throttle", SLOW)
    try:
        assert eventually(lambda: bool(kafka.moving()))
        assert kafka.config("broker", "1").get(RATES[0]) == "100000"
        holder = kafka.lease_holder()
        assert holder is not None
        assert (holder.pid, f"{holder.user}@{holder.host}") == (commit.pid, this_actor().user)
        for more in ((), APPLY):
            refused = kafka.surveyor("commit", "nearby", *more)
            assert refused.code == 23
            assert f"Plan {waiting} (waiting) moves waiting-0 ({holder}; 0 of 1 partition complete)" in refused.stderr
            assert "Wait until it is complete (`surveyor verify waiting --" in refused.stderr
            assert "surveyor cancel" not in refused.stderr
        assert "(process" in kafka.surveyor("verify", "waiting", "--measure", "0s").stdout
        cancelled = kafka.surveyor.json("cancel", "waiting", *APPLY)
        stdout, stderr = commit.communicate(timeout=90)
    finally:
        commit.kill()
    assert (kafka.replicas("waiting"), cancelled["cancelled_now"]) == ({0: [1, 2], 1: [1, 2]}, 1), stderr
    assert eventually(lambda: [kafka.config("broker", str(broker)) for broker in RACKS] == [{}] * 3)
    assert (kafka.surveyor.warehouse.rows("throttles"), kafka.lease_holder()) == ([], None)
    assert commit.returncode == 1
    assert f"It ends with exit code {commit.returncode} and also reports" in CANCELLING
    said = " ".join((stdout + stderr).split())
    assert f"was cancelled by {this_actor().user} at 20" in said
    assert "while it was committed; 1 of 1 were turned back, 0 are as planned" in said
    assert "see what is due now, and plan again" in said
    assert "surveyor commit" not in said


def test_a_plan_is_cancelled_while_its_commit_has_another_wave(kafka: PlannedKafka, tmp_path: Path) -> None:
    kafka.create({"waved": [[1, 2], [1, 2]]})
    kafka.fill("waved", 10)
    goals = [("waved", number, [1, 2, 3]) for number in (0, 1)]
    kafka.plan("waved", "reassign", *kafka.targets(tmp_path, *goals), "--max-moves-per-broker", "1")
    commit = kafka.process("commit", "waved", *APPLY, "--wait", "--throttle", SLOW)
    try:
        assert eventually(lambda: bool(kafka.moving()))
        kafka.surveyor.json("cancel", "waved", *APPLY)
        _, stderr = commit.communicate(timeout=90)
    finally:
        commit.kill()
    assert (commit.returncode, kafka.replicas("waved")) == (23, {0: [1, 2], 1: [1, 2]}), stderr
    assert f"or with exit code {commit.returncode} if a wave" in CANCELLING
    assert f"was cancelled by {this_actor().user} at 20" in stderr


def test_a_complete_move_is_rolled_back(kafka: PlannedKafka, tmp_path: Path) -> None:
    kafka.create({"there": [[1, 2], [1, 2]]})
    plan = kafka.plan("there", "reassign", *kafka.targets(tmp_path, ("there", 0, [1, 2, 3]), ("there", 1, [3, 1])))
    with Traffic(kafka.cluster.bootstrap, "there") as traffic:
        committed(kafka.surveyor("commit", "there", *APPLY, "--wait", "--json"))
        assert eventually(lambda: kafka.replicas("there") == {0: [1, 2, 3], 1: [3, 1]})
        undoing = kafka.surveyor.json("rollback", "there", "--name", "back", *APPLY)
        assert eventually(lambda: kafka.replicas("there") == {0: [1, 2], 1: [1, 2]})
        assert eventually(lambda: kafka.surveyor.json("verify", "back")["complete"] == 2)
    assert (undoing["status"], undoing["changes"], undoing["applied"], undoing["moves"]) == ("committed", 2, 2, 1)
    (row,) = kafka.surveyor.warehouse.rows("plans", ("plan_id", "=", plan))
    assert row["status"] == "rolled_back"
    assert (traffic.failed, traffic.acknowledged - traffic.stored(2)) == ([], set())


def test_moves_and_throttles_of_another_client_are_cancelled(kafka: PlannedKafka, tmp_path: Path) -> None:
    """Those that no plan requested: the throttle first stops the move, and is removed once nothing moves."""
    kafka.create({"other": [[1, 2]]})
    # A throttle stops a replica after its first fetch, which has up to 1 MiB of a partition
    kafka.fill("other", 10)
    rate, replicas = dict.fromkeys(RATES, "1"), dict.fromkeys(THROTTLED, "*")
    with connected_admin(kafka.cluster.bootstrap.split(","), {}) as admin:
        for broker in RACKS:
            assert admin.alter_override("broker", str(broker), rate) == 0
        assert admin.alter_override("topic", "other", replicas) == 0
        assert eventually(lambda: all(kafka.config("broker", str(broker)) == rate for broker in RACKS))
        assert eventually(lambda: kafka.config("topic", "other") == replicas)
        kafka.plan("slowed", "reassign", *kafka.targets(tmp_path, ("other", 0, [3, 2])))
        theirs = "a throttle of 1 B/s on brokers 1, 2, 3 was set by another tool, and 1 partition is copied under it"
        assert theirs in kafka.surveyor("commit", "slowed").stderr
        assert admin.reassign({("other", 0): [3, 2]}) == {("other", 0): 0}
    assert any("was set by another tool" in step["what"] for step in kafka.surveyor.json("status")["due"])
    assert kafka.surveyor("cancel", "--throttles", *APPLY).code == 23
    result = kafka.surveyor.json("cancel", "--partitions", "other-0", *APPLY)
    assert (result["cancelled_now"], result["failed"]) == (1, 0)
    # Kafka leaves the order of the target
    assert eventually(lambda: (kafka.moving(), kafka.replicas("other")) == ({}, {0: [2, 1]}))
    assert kafka.surveyor.json("cancel", "--throttles", *APPLY)["cleared"] == 4
    assert eventually(lambda: [kafka.config("broker", str(broker)) for broker in RACKS] == [{}] * 3)
    assert eventually(lambda: kafka.config("topic", "other") == {})


def test_a_drain_outlasts_a_restart_and_is_undone(kafka: PlannedKafka) -> None:
    before = {0: [1, 2], 1: [2, 1], 2: [1, 3]}
    kafka.create({"drain": [*before.values()], "spread": [[1, 2, 3]] * 16})
    plan = kafka.plan("drain", "drain", "--brokers", "1")
    share = find_plan(kafka.surveyor.warehouse, plan).options["figures"]["largest_share"]
    with Traffic(kafka.cluster.bootstrap, "drain") as traffic:
        committed(kafka.surveyor("commit", "drain", *APPLY, "--wait", "--json"))
        drained = {0: [2, 1], 1: [2, 1], 2: [3, 1]}
        assert eventually(lambda: kafka.replicas("drain") == drained)
        assert eventually(lambda: kafka.leaders("drain") == {0: 2, 1: 2, 2: 3})
        assert kafka.surveyor.json("verify", "drain")["is_complete"]
        assert {3} <= {*kafka.leaders("spread").values()} <= {2, 3}, "Kafka's own order gives all to broker 2"
        led = Counter(leader for topic in kafka.topics_in_snapshot() for leader in kafka.leaders(topic).values())
        assert max(led.values()) == led[share["broker_id"]] == share["leaders"]
        assert led.total() == share["partitions"]
        kafka.brokers[1].restart()
        assert eventually(lambda: kafka.is_in_sync("drain"))
        assert (kafka.leaders("drain"), kafka.replicas("drain")) == ({0: 2, 1: 2, 2: 3}, drained)
        kafka.plan("undrain", "undrain", "--brokers", "1")
        committed(kafka.surveyor("commit", "undrain", *APPLY, "--wait", "--json"))
    assert eventually(lambda: (kafka.leaders("drain"), kafka.replicas("drain")) == ({0: 1, 1: 2, 2: 1}, before))
    assert kafka.surveyor.json("verify", "undrain")["is_complete"]
    assert kafka.surveyor.warehouse.rows("drained") == []
    assert (traffic.failed, traffic.acknowledged - traffic.stored(3)) == ([], set())


@BOTH
def test_one_command_does_a_job_and_names_the_one_that_undoes_it(kafka: PlannedKafka, tmp_path: Path) -> None:
    def done(*command: str) -> list[str]:
        """Run a command that commits; return the commands that it suggests."""
        result = committed(kafka.surveyor(*command, "--yes", "--json"))
        assert (result["is_complete"], result["applied"], result["in_progress"]) == (True, result["complete"], 0)
        return [" ".join(shlex.split(step["command"])[1:]) for step in result["next"] if step["command"]]

    def job(*question: str) -> list[str]:
        return done("plan", *question, "--refresh", "--apply")

    (delete,) = job("assign", "--topic", "job", "--replica-assignment", "1:2,2:1")
    assert eventually(lambda: kafka.is_in_sync("job"))
    (roll_back,) = job("reassign", *kafka.targets(tmp_path, ("job", 0, [3, 2])), "--throttle", "50MB/s")
    assert eventually(lambda: kafka.leaders("job") == {0: 3, 1: 2})
    done(*roll_back.split())
    assert "rolled_back" in {row["status"] for row in kafka.surveyor.warehouse.rows("plans")}
    assert eventually(lambda: kafka.replicas("job") == {0: [1, 2], 1: [2, 1]})
    (undrain,) = job("drain", "--brokers", "1")
    assert eventually(lambda: 1 not in kafka.leaders("job").values())
    done(*undrain.split())
    assert eventually(lambda: kafka.leaders("job") == {0: 1, 1: 2})
    (unset,) = job("config", "--topic", "job", "--set", "retention.ms=60000")
    assert eventually(lambda: kafka.config("topic", "job") == {"retention.ms": "60000"})
    done(*unset.split())
    assert eventually(lambda: kafka.config("topic", "job") == {})
    assert done(*delete.split()) == []
    assert eventually(lambda: "job" not in kafka.admin.list_topics(timeout=90).topics)


def test_a_plan_of_another_process_is_continued_by_its_name(kafka: PlannedKafka, tmp_path: Path) -> None:
    """First nothing of it is committed, then its commit is interrupted; its dry run shows what is written."""
    kafka.create({"named": [[1, 2], [1, 2]]})
    kafka.fill("named", 20)
    question = ["reassign", *kafka.targets(tmp_path, ("named", 0, [1, 2, 3])), "--throttle"]
    plan = kafka.plan("named", *question, SLOW)
    kafka.snapshot()
    dry = kafka.surveyor("commit", "named").stdout
    assert [line for line in dry.splitlines() if "would be written" in line and "named-0" in line] != []
    job = kafka.process("plan", *question, SLOW, "--name", "named", *APPLY)
    try:
        assert eventually(lambda: kafka.moving() == {("named", 0): [1, 2, 3]})
        job.send_signal(signal.SIGINT)
        stdout, stderr = job.communicate(timeout=90)
    finally:
        job.kill()
    assert job.returncode == 25, stderr
    assert f"`surveyor commit {plan} --apply --wait --" in stderr
    assert "would be written" not in stderr, "the review is on stdout, once"
    assert stdout.count("named-0") == 1
    ran = kafka.surveyor("plan", *question, "none", "--name", "named", *APPLY, "--json")
    assert (committed(ran)["plan_id"], ran.json["complete"]) == (plan, 1)
    assert eventually(lambda: kafka.replicas("named")[0] == [1, 2, 3])
    again = kafka.surveyor("plan", *question, "none", "--name", "named", *APPLY, "--refresh")
    assert (again.code, "the name 'named' is taken by plan" in again.stderr) == (23, True), "it is committed"


@BOTH
def test_what_needs_a_dead_broker_is_not_requested(kafka: PlannedKafka, tmp_path: Path) -> None:
    """Broker 3 dies after the plans were made; then it returns, and a plan to empty it while it was dead is stale."""
    kafka.create({"to-dead": [[1, 2]], "led-by-dead": [[1, 3]], "grows": [[1, 2, 3]], "drained": [[1, 3]]})
    with connected_admin(kafka.cluster.bootstrap.split(","), {}) as admin:
        assert admin.reassign({("led-by-dead", 0): [3, 1]}) == {("led-by-dead", 0): 0}
    assert eventually(lambda: kafka.replicas("led-by-dead") == {0: [3, 1]})
    kafka.snapshot()
    plans = {
        "move": (["reassign", *kafka.targets(tmp_path, ("to-dead", 0, [3, 2]))], ["to-dead-0"]),
        "new": (["assign", "--topic", "new", "--partitions", "1", "--replication-factor", "3"], ["new-0"]),
        "more": (["expand", "--topic", "grows", "--partitions", "3"], ["grows-1", "grows-2"]),
        "lead": (election(tmp_path, "led-by-dead"), ["led-by-dead-0"]),
        "drain-1": (["drain", "--brokers", "1"], ["drained-0"]),
    }
    ids = {name: kafka.plan(f"dead-{name}", *question) for name, (question, _) in plans.items()}
    kafka.brokers[3].kill()
    assert eventually(lambda: kafka.surveyor.json("status")["live"] == [1, 2])
    for name, (_, changes) in plans.items():
        lines = kafka.surveyor("commit", f"dead-{name}", "--all").stdout
        assert [f"stale: {change}: broker 3 is not live" in lines for change in changes] == [True] * len(changes), lines
    for name in ("move", "new", "more", "lead"):
        ran = kafka.surveyor("commit", f"dead-{name}", *APPLY, "--json")
        assert (ran.code, ran.json["applied"], ran.json["stale"]) == (21, 0, len(plans[name][1])), ran
        assert {outcome for _, outcome in kafka.outcomes(ids[name])} == {"stale"}
        assert ran.json["status"] == "planned"
    kafka.plan("empty-3", "reassign", "--remove-brokers", "3", "--topics", "led-by-dead")
    kafka.brokers[3].restart()
    assert eventually(lambda: kafka.is_in_sync("led-by-dead"))
    assert (kafka.replicas("to-dead"), list(kafka.replicas("grows"))) == ({0: [1, 2]}, [0])
    assert kafka.partitions("led-by-dead")[0][:2] == (1, [3, 1])
    assert "new" not in kafka.admin.list_topics(timeout=90).topics
    status = kafka.surveyor.json("status")
    (waiting,) = (row for row in status["uncommitted_plans"] if "empty-3" in row["what"])
    assert "2 changes; broker 3 is live again: 2 of 2 changes assume otherwise" in waiting["what"]
    assert [row for row in status["due"] if "empty-3" in row["what"]] == []
    ran = kafka.surveyor("commit", "empty-3")
    assert (ran.code, "stale: led-by-dead-0: broker 3 is live again" in ran.stdout) == (0, True), ran
    assert "plan again" not in ran.stdout, "it would empty a broker that is well"
    assert "discard it: surveyor cancel empty-3 --apply" in ran.stdout
    applied = kafka.surveyor("commit", "empty-3", *APPLY)
    assert (applied.code, "planned; 2 stale" in applied.stdout) == (21, True), applied
    kafka.snapshot()
    status = kafka.surveyor.json("status")
    assert [row for row in status["due"] if "empty-3" in row["what"]] == []
    assert [row["discard"] for row in status["uncommitted_plans"] if "empty-3" in row["what"]] != []
    assert "broker 3 is live again: 2 of 2 changes assume otherwise" in kafka.surveyor("show", "plan", "empty-3").stdout
    cancelled = kafka.surveyor("cancel", "empty-3", *APPLY).stdout
    assert "cancelled; discarded, no commit applied anything of it" in cancelled
    kafka.plan("empty-3-anyway", "reassign", "--remove-brokers", "3", "--topics", "led-by-dead")
    committed(kafka.surveyor("commit", "empty-3-anyway", *APPLY, "--wait", "--json"))
    assert 3 not in kafka.replicas("led-by-dead")[0]


@BOTH
def test_topics_of_another_client_are_not_reported_as_the_planned_ones(kafka: PlannedKafka, tmp_path: Path) -> None:
    """Another client creates and expands the topics of a plan first; `same` becomes as planned, the others do not."""
    kafka.create({"widened": [[1, 2]]})
    file = tmp_path / "topics.json"
    compacted = {"cleanup.policy": "compact", "preallocate": "True"}
    file.write_text(
        json.dumps(
            [
                {"topic": "refunds", "replica_assignment": [[1, 2], [2, 3]], "config": compacted},
                {"topic": "doubled", "replica_assignment": [[1, 2]]},
                {"topic": "same", "replica_assignment": [[1, 2]], "config": compacted},
            ]
        )
    )
    kafka.plan("new", "assign", "--topics-json-file", str(file))
    kafka.plan("wider", "expand", "--topic", "widened", "--partitions", "2", "--replica-assignment", "2:3")
    create_topics(
        kafka.admin,
        NewTopic("refunds", 2, replica_assignment=[[1, 2], [2, 3]]),
        NewTopic("doubled", 2, replica_assignment=[[1, 2], [2, 3]]),
        NewTopic("same", 1, replica_assignment=[[1, 2]], config=compacted),
    )
    more = NewPartitions("widened", 3, replica_assignment=[[2, 3], [3, 1]])
    kafka.admin.create_partitions([more])["widened"].result(20)
    assert eventually(
        lambda: [len(kafka.partitions(topic)) for topic in ("refunds", "doubled", "widened")] == [2, 2, 3]
    )

    created, expanded = (kafka.surveyor("commit", plan, *APPLY) for plan in ("new", "wider"))

    assert (created.code, expanded.code) == (0, 21), created
    assert "partial; 1 applied, 3 stale" in created.stdout
    assert ("planned; 1 stale" in expanded.stdout, "plan again" in expanded.stdout) == (True, False)
    for reason in (
        "refunds-1: topic refunds: cleanup.policy is not set, planned compact",
        "has 2 partitions, planned 1",
    ):
        assert reason in created.stdout
    assert "stale: widened-1: topic widened has 3 partitions, planned 2" in expanded.stdout
    verified = [kafka.surveyor.json("verify", plan) for plan in ("new", "wider")]
    assert [(row["complete"], row["diverged"], row["is_complete"]) for row in verified] == [
        (1, 3, False),
        (0, 1, False),
    ]


ZOOKEEPER = pytest.mark.parametrize("kafka", ["zookeeper"], indirect=True)


@pytest.fixture
def tree(cluster: EmbeddedCluster) -> Iterator[KafkaTree]:
    with kafka_tree(cluster) as connected:
        yield connected


@ZOOKEEPER
def test_status_says_how_to_clear_foreign_moves_and_failed_requests(
    kafka: PlannedKafka, tree: KafkaTree, tmp_path: Path
) -> None:
    """Kafka's controller carries requests out that are there when the znode is created, and reads no later ones."""
    request = "/admin/reassign_partitions"

    def partitions(wanted: Mapping[tuple[str, int], list[int]]) -> bytes:
        rows = [{"topic": name, "partition": number, "replicas": to} for (name, number), to in wanted.items()]
        return json.dumps({"version": 1, "partitions": rows}).encode()

    kafka.create({"vain": [[1, 2], [1, 2]]})
    kafka.plan("vain", "reassign", *kafka.targets(tmp_path, ("vain", 1, [2, 3])))
    dead = {("vain", 0): [1, 99]}
    tree.client.create(request, partitions(dead))
    assert eventually(lambda: tree.assignment("vain").adding_replicas.get(0) == [99])
    tree.client.set(request, partitions(dead | {("ghost", 0): [1], ("vain", 1): [1, 2]}))

    done = kafka.surveyor("commit", "vain", *APPLY, "--wait")
    assert done.code == 0, done.stderr
    assert "vain-0 to [1, 99] (not live: 99); start broker 99, or cancel" in done.stderr
    assert tree.assignment("vain").partitions[1] == [2, 3]

    status = kafka.surveyor.json("status")
    commands = [step["command"] for step in status["due"] if " cancel " in f"{step['command']}"]
    assert len(commands) == 2, status["due"]
    for command in commands:
        cleared = kafka.surveyor(*command.split()[1:], "--apply")
        assert cleared.code == 0, cleared.stderr

    after = kafka.surveyor.json("status")
    assert (after["moving"], after["stalled"], tree.client.exists(request)) == (0, [], None)
    assert tree.assignment("vain").partitions[0] == [1, 2]
    tree.client.create(request, partitions({("vain", 0): [2, 1]}))
    assert eventually(lambda: tree.assignment("vain").partitions[0] == [2, 1]), "Kafka still reads requests"


@ZOOKEEPER
def test_a_throttle_that_was_left_behind_goes_by_what_status_says(
    kafka: PlannedKafka, tree: KafkaTree, cluster_surveyor: Surveyor
) -> None:
    """Rates of one broker and of all, and replicas of a topic, as another tool leaves them."""
    kafka.create({"left": [[1, 2]]})
    rates = dict.fromkeys(RATES, "100000")
    with connected_admin(kafka.cluster.bootstrap.split(","), {}) as admin:
        assert admin.alter_override("topic", "left", dict.fromkeys(THROTTLED, "*")) == 0
        assert admin.alter_override("broker", "1", rates) == 0
    tree.write("/config/brokers/<default>", encode_config(rates))
    assert eventually(lambda: {"brokers/1", "brokers/<default>", "topics/left"} <= overrides(tree).keys())

    status = cluster_surveyor.json("status")  # its warehouse has no plan that is to be continued first
    (command,) = [step["command"] for step in status["due"] if "a throttle is still set" in step["what"]]
    done = cluster_surveyor(*command.split()[1:], "--apply")

    assert done.code == 0, done.stderr
    names = {name for values in overrides(tree).values() for name in values}
    assert not names & {*RATES, *THROTTLED}
