"""Notification of brokers by a commit in batch mode: which must answer before it writes, and what follows a refusal."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from kazoo.client import KazooClient

from jobs.adapters.delta.arrow_reads import Filter
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import SurveyorError
from jobs.execution.batch.notification import HoldBudget, NotificationResult, verify_written
from jobs.repositories.plans.commit_log import CommitLog
from schemas.enums import Outcome, PlanStatus
from schemas.stored_plan import Plan, RowOutcome
from schemas.znode_codecs import State, encode_state
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.commands.paces import NO_TAKEOVER
from tests.jobs.support.controllers.kafka_controller import delay_once
from tests.jobs.support.kafka.fake_brokers import FakeBrokers
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

T = "t"
PARTITIONS = range(4)
DONE, ERROR, USAGE, REFUSED = 0, 1, 2, 23
CLUSTER_AUTHORIZATION_FAILED = 31
UNKNOWN_SERVER_ERROR = -1


def test_every_answer_is_a_row(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, fake_brokers: FakeBrokers, warehouse: Warehouse
) -> None:
    surveyor.apply(tree.hosts, plan.plan_id)

    rows = warehouse.rows("answers")
    leaders = {(r["broker_id"], r["topic"], r["partition"], r["error"]) for r in rows if r["api"] == "LeaderAndIsr"}
    assert leaders == {(broker, T, partition, 0) for broker in range(3) for partition in PARTITIONS}
    assert {(r["controller_epoch"], r["leader_epoch"]) for r in rows if r["topic"]} == {(8, 6)}
    assert [r["api"] for r in rows].count("UpdateMetadata") == 3
    assert fake_brokers[2].leader_epochs == {(T, partition): 6 for partition in PARTITIONS}


@pytest.mark.parametrize("pace", [replace(NO_TAKEOVER, contact=1.0)])
def test_silent_broker_is_refused_before_the_take_over(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, fake_brokers: FakeBrokers
) -> None:
    fake_brokers[2].stop()
    before = tree.dump()

    dry, done = surveyor.commit(tree.hosts, plan.plan_id), surveyor.apply(tree.hosts, plan.plan_id)

    assert (dry.exit_code, done.exit_code) == (REFUSED, REFUSED)
    assert "--allow-silent 2 writes anyway" in done.stderr
    assert tree.dump() == before
    assert surveyor.commits(plan.plan_id) == []


@pytest.mark.parametrize("pace", [replace(NO_TAKEOVER, contact=1.0)])
def test_silent_broker_may_be_allowed_by_its_id(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, fake_brokers: FakeBrokers
) -> None:
    fake_brokers[2].stop()

    other = surveyor.apply(tree.hosts, plan.plan_id, "--allow-silent", "0,1")
    done = surveyor.apply(tree.hosts, plan.plan_id, "--allow-silent", "2")

    assert (other.exit_code, done.exit_code) == (REFUSED, DONE)
    assert "accepted by brokers 0, 1\n" in done.stderr
    assert "no answer from brokers 2: Kafka's next controller sends them the changes" in done.stderr
    assert surveyor.status(plan.plan_id) == PlanStatus.COMMITTED


def test_invalid_list_of_brokers_is_a_usage_error(tree: KafkaTree, surveyor: Surveyor, plan: Plan) -> None:
    assert surveyor.commit(tree.hosts, plan.plan_id, "--allow-silent", "all").exit_code == USAGE


def test_silent_broker_is_ignored_if_nothing_is_due(
    tree: KafkaTree, surveyor: Surveyor, warehouse: Warehouse, plan: Plan, fake_brokers: FakeBrokers
) -> None:
    surveyor.apply(tree.hosts, plan.plan_id)
    warehouse.update("plans", "true", status="'partial'")
    fake_brokers[2].stop()

    assert surveyor.apply(tree.hosts, plan.plan_id).exit_code == DONE


def test_commit_without_cluster_action_does_not_take_over(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, fake_brokers: FakeBrokers
) -> None:
    fake_brokers[2].is_authorized = False
    before = tree.dump()

    dry, done = surveyor.commit(tree.hosts, plan.plan_id), surveyor.apply(tree.hosts, plan.plan_id)

    assert [dry.exit_code, done.exit_code] == [REFUSED, REFUSED]
    assert "needs ClusterAction on the Cluster" in done.stderr
    assert (tree.dump(), surveyor.commits(plan.plan_id), fake_brokers[0].received) == (before, [], [])


@pytest.mark.usefixtures("successor")
@pytest.mark.parametrize(
    ("successor", "status"), [(-1, PlanStatus.PARTIAL), (1, PlanStatus.COMMITTED)], indirect=["successor"]
)
def test_commit_that_every_broker_refused_is_an_error(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, fake_brokers: FakeBrokers, status: str
) -> None:
    """The changes are in ZooKeeper; the plan is committed only if a broker became the controller and announced them."""
    for broker in range(3):
        fake_brokers[broker].refuses = CLUSTER_AUTHORIZATION_FAILED

    done = surveyor.apply(tree.hosts, plan.plan_id, "--json")

    assert done.exit_code == ERROR
    assert (json.loads(done.stdout)["status"], surveyor.status(plan.plan_id)) == (status, status)
    assert "none of brokers 0, 1, 2 accepted the changes; the changes are stored in ZooKeeper" in done.stderr
    assert "responded to LeaderAndIsr with ClusterAuthorizationFailedError (31) for 4 partitions" in done.stderr
    assert len([line for line in done.stderr.splitlines() if "responded to" in line]) <= 5


def test_one_refusing_broker_is_reported_and_no_error(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, fake_brokers: FakeBrokers
) -> None:
    fake_brokers[0].refuses = CLUSTER_AUTHORIZATION_FAILED

    done = surveyor.apply(tree.hosts, plan.plan_id)

    assert (done.exit_code, surveyor.status(plan.plan_id)) == (DONE, PlanStatus.COMMITTED)
    assert "accepted by brokers 1, 2\n" in done.stderr
    (handed_back,) = (row["message"] for row in surveyor.commits(plan.plan_id) if row["action"] == "hand_back")
    assert handed_back.endswith("what was written was not accepted by 0: left to Kafka's controller")


@pytest.mark.usefixtures("successor")
@pytest.mark.parametrize("successor", [1], indirect=True)
def test_failing_leaders_are_reported_despite_a_fail_over(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, fake_brokers: FakeBrokers
) -> None:
    """As with a config with which no log can be opened: Kafka's controller gets the same response."""
    for broker in range(3):
        fake_brokers[broker].refuses = UNKNOWN_SERVER_ERROR

    done = surveyor.apply(tree.hosts, plan.plan_id)

    assert (done.exit_code, surveyor.status(plan.plan_id)) == (ERROR, PlanStatus.PARTIAL)
    assert "4 partitions have no leader (t-0, t-1, t-2, ...): the brokers elected to lead them answered" in done.stderr
    assert "announced" not in done.stderr


@pytest.mark.usefixtures("successor")
@pytest.mark.parametrize(
    ("successor", "code", "status"),
    [(-1, ERROR, PlanStatus.PARTIAL), (1, DONE, PlanStatus.COMMITTED)],
    indirect=["successor"],
)
def test_no_broker_is_notified_after_max_hold(  # noqa: PLR0913, PLR0917 - fixtures
    tree: KafkaTree,
    surveyor: Surveyor,
    plan: Plan,
    fake_brokers: FakeBrokers,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    status: str,
) -> None:
    monkeypatch.setattr(HoldBudget, "seconds_left", lambda *_: 0.0)

    done = surveyor.apply(tree.hosts, plan.plan_id)

    assert (done.exit_code, surveyor.status(plan.plan_id)) == (code, status)
    assert [fake_brokers[broker].received for broker in range(3)] == [[], [], []]
    assert "--max-hold was over before the brokers could be notified" in done.stderr
    messages = [row["message"] for row in surveyor.commits(plan.plan_id) if row["action"] == "hand_back"]
    assert "--max-hold was over before the brokers could be notified" in messages[0]


def test_answers_are_stored_after_the_resignation(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: dict[str, bool] = {}
    rewrite = Warehouse.transform_rows

    def watched(self: Warehouse, table: str, limit: Filter, make: Callable[[pa.Table], pa.Table]) -> None:
        held[table] = tree.client.exists("/controller") is not None
        rewrite(self, table, limit, make)

    monkeypatch.setattr(Warehouse, "transform_rows", watched)

    surveyor.apply(tree.hosts, plan.plan_id)

    assert held["answers"] is False


def test_lagging_zookeeper_server_is_no_alarm(tree: KafkaTree, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an ensemble one server may lag behind; with `sync` it catches up."""
    sync = KazooClient.sync_async

    def catch_up(client: KazooClient, path: str) -> object:
        if not tree.version(T, 0):
            ours = State(controller_epoch=8, leader=1, leader_epoch=6, isr=[1])
            tree.write(state_path(T, 0), encode_state(ours))
        return sync(client, path)

    monkeypatch.setattr(KazooClient, "sync_async", catch_up)

    written = RowOutcome(plan.changes[0], Outcome.APPLIED, "written", 1)
    verify_written(tree.client, NotificationResult(epoch=8, written=[written]))

    assert tree.version(T, 0) == 1  # it was read after the server had caught up


def test_unreadable_registration_during_take_over_leaves_no_open_intent(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = partial(tree.client.create, "/brokers/ids/9", b"what?", ephemeral=True)
    delay_once(monkeypatch, CommitLog, "append_intents", register)

    done = surveyor.apply(tree.hosts, plan.plan_id)

    assert done.exit_code == REFUSED
    assert "/brokers/ids/9 is not understood" in done.stderr
    outcomes = Counter(row["outcome"] for row in surveyor.commits(plan.plan_id) if row["topic"] is not None)
    assert outcomes == {"pending": 4, "skipped": 4}
    assert set(tree.versions(T).values()) == {0}


@pytest.mark.parametrize(
    ("epoch", "version", "is_found", "ours"),
    [
        (8, 1, False, True),
        (9, 2, False, True),
        (7, 1, False, False),
        (8, 0, False, False),
        (7, 1, True, True),
        (7, 0, True, False),
    ],
)
def test_later_writes_of_the_same_states_are_no_alarm(  # noqa: PLR0913 - the fields of a state
    tree: KafkaTree, plan: Plan, epoch: int, version: int, *, is_found: bool, ours: bool
) -> None:
    """Since the resignation a leader may have changed its ISR, or Kafka's controller the leader.

    A state that was found as planned may be from another commit, which was the controller before us.
    """
    for _ in range(version):
        tree.write(state_path(T, 0), encode_state(State(controller_epoch=epoch, leader=1, leader_epoch=6, isr=[1])))
    written = RowOutcome(plan.changes[0], Outcome.APPLIED, "written", 1, is_found=is_found)
    result = NotificationResult(epoch=8, written=[written])

    if ours:
        verify_written(tree.client, result)
    else:
        with pytest.raises(SurveyorError, match="another client writes states without being the controller"):
            verify_written(tree.client, result)
