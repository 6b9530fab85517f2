"""Plans that commits submit to the resident controller, and their results."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.controllership import Controllership, session_of
from jobs.controller.auto_rebalance import AutoLeaderRebalance
from jobs.controller.controller import ResidentController
from jobs.controller.decision_engine import DecisionEngine
from jobs.controller.write_behind import WriteBehindLog
from jobs.execution.cancellation import cancel_running
from jobs.execution.commit import apply_plan
from jobs.repositories.actor import AIRFLOW, this_process
from jobs.repositories.plans.commit_log import CommitLog
from jobs.repositories.plans.plans_reader import read_plan
from jobs.repositories.plans.plans_writer import record_submission
from schemas.enums import DrainMode, Outcome
from schemas.lease_holder import LeaseHolder
from schemas.rows import Change, DrainedBroker, Snapshot
from schemas.stored_plan import RowOutcome
from schemas.submitted_plan import SubmittedPlan, decode_submitted, encode_submitted, submission_of
from schemas.znode_codecs import State, TopicPartition, decode_partitions, encode_partitions, encode_state
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.commands.settings import settings_of
from tests.jobs.support.controllers.recorded_log import RecordedLog
from tests.jobs.support.controllers.resident import drain_watches, run_until_quiet
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.rows.move_rows import CommitProcess, reassignment
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import CLUSTER_ID, KafkaTree, state_path

REASSIGN = "/admin/reassign_partitions"
ORDERS = {0: [0, 1, 2], 1: [1, 2, 0], 2: [2, 1, 0]}


@pytest.fixture
def surveyor(tree: KafkaTree, tmp_path: Path, spark: SparkSession) -> Surveyor:
    del spark
    tree.add_topic("orders", ORDERS, topic_id=None)
    return Surveyor(tree.hosts, tmp_path / "warehouse")


@pytest.fixture
def plan(tree: KafkaTree, surveyor: Surveyor) -> str:
    """Broker 1 should lead the first partition."""
    return store_plan(surveyor.warehouse, tree, [election(tree, "orders", 0, 1)]).plan_id


@pytest.fixture
def controller(
    tree: KafkaTree, control: Controllership, surveyor: Surveyor, tmp_path: Path
) -> Iterator[ResidentController]:
    conf = tmp_path / "surveyor.toml"
    conf.write_text('[clusters.default]\ncontrol_listener = "PLAINTEXT"\n', encoding="utf-8")
    settings = settings_of(str(surveyor.folder), tree.hosts, conf_path=conf)
    engine = DecisionEngine(surveyor.warehouse, [])
    snapshot = Snapshot(snapshot_id=1, taken_at=datetime.now(UTC), cluster_id=CLUSTER_ID)
    controller_ = ResidentController(
        control,
        engine,
        WriteBehindLog(surveyor.warehouse),
        snapshot,
        RecordedLog(),
        settings,
    )
    controller_.auto_rebalance = AutoLeaderRebalance(float("inf"), 0.1)
    controller_.initialize()
    yield controller_
    controller_.stop()


def commit(surveyor: Surveyor, plan: str, *options: str) -> CommitProcess:
    where = ("--zookeeper", surveyor.hosts, "--warehouse", str(surveyor.folder))
    return CommitProcess(
        [sys.executable, "-m", "jobs.entry", "commit", plan, *where, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def carried_out(controller: ResidentController, process: CommitProcess) -> tuple[int, str]:
    """Run cycles until the commit has ended; return its exit code and its output."""

    def has_ended() -> bool:
        controller.cycle()
        return process.poll() is not None

    with process:
        assert eventually(has_ended)
        stdout, stderr = process.communicate()
    assert eventually(lambda: not controller.cycle() and not is_busy(controller))
    return process.returncode, stdout + stderr


def is_busy(controller: ResidentController) -> bool:
    return bool(controller.broker_requests.channels.busy) or (
        controller.plan_inbox is not None and controller.plan_inbox.is_busy
    )


def partitions_drained_from(tree: KafkaTree, broker: int, api: str) -> set[int]:
    """The partitions of orders in requests of an API to a broker, since the last call."""
    assert tree.brokers is not None
    partitions = {partition for one in tree.brokers[broker].of(api) for _, partition in one.partitions}
    tree.brokers[broker].received.clear()
    return partitions


def test_requests_use_the_configured_listener(controller: ResidentController) -> None:
    assert controller.broker_requests.channels.listener.name == "PLAINTEXT"


def test_broker_is_drained_and_undrained(
    tree: KafkaTree, controller: ResidentController, surveyor: Surveyor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`KafkaController.doControlledShutdown` and `onBrokerStartup`: its followers stop, then are started again."""
    controller.cycle()
    assert eventually(lambda: not controller.broker_requests.channels.busy)
    drain = surveyor.json("plan", "drain", "--brokers", "1", "--mode", "resident")["plan_id"]
    for broker in (0, 1, 2):
        partitions_drained_from(tree, broker, "leader_and_isr")

    monkeypatch.setenv(AIRFLOW[1], "manual__1")
    code, output = carried_out(controller, commit(surveyor, drain, "--apply"))
    monkeypatch.delenv(AIRFLOW[1])

    assert (code, "committed; 3 applied" in output) == (0, True), output
    assert set(surveyor.rows("commits", "plan_id", "controller_epoch", "run")) == {
        (drain, controller.control.epoch, "/manual__1/")
    }
    states = [tree.state("orders", partition) for partition in ORDERS]
    assert [(s.leader, s.isr, s.leader_epoch) for s in states] == [(0, [0, 2], 6), (2, [2, 0], 6), (2, [2, 0], 6)]
    assert partitions_drained_from(tree, 1, "stop_replica") == {0, 2}
    assert surveyor.rows("drained", "broker_id", "controller_epoch") == [(1, controller.control.epoch)]
    assert tree.client.get_children("/surveyor/plans") == []

    controller.broker_requests.ask_for_log_dirs(1)
    controller.broker_requests.resend(controller.context.partitions.keys())
    assert eventually(lambda: not controller.broker_requests.channels.busy)
    assert partitions_drained_from(tree, 1, "leader_and_isr") == set()  # it would start its replicas

    undrain = surveyor.json("plan", "undrain", "--brokers", "1")["plan_id"]
    code, output = carried_out(controller, commit(surveyor, undrain, "--apply"))

    assert code == 0, output
    assert partitions_drained_from(tree, 1, "leader_and_isr") == {0, 1, 2}
    assert surveyor.rows("drained", "broker_id") == []
    assert controller.engine.drained == []


def test_resident_drain_ends_at_reregistration(
    tree: KafkaTree, controller: ResidentController, surveyor: Surveyor
) -> None:
    """The broker is sent all its partitions, at the epochs at which it was stopped, as it starts without state."""
    controller.log.start()
    controller.cycle()
    drain = surveyor.json("plan", "drain", "--brokers", "1", "--mode", "resident")["plan_id"]
    code, output = carried_out(controller, commit(surveyor, drain, "--apply"))
    assert code == 0, output
    partitions_drained_from(tree, 1, "leader_and_isr")

    tree.bounce(1)
    assert eventually(
        lambda: not controller.cycle() and partitions_drained_from(tree, 1, "leader_and_isr") == {0, 1, 2}
    )

    assert controller.engine.drained == []
    assert controller.broker_requests.drained_brokers == frozenset()
    controller.log.close()
    assert surveyor.rows("drained", "broker_id") == []


@pytest.mark.parametrize("mode", DrainMode)
def test_drained_broker_is_elected_if_alone_in_sync(
    tree: KafkaTree, controller: ResidentController, mode: DrainMode
) -> None:
    """It also becomes the leader of a new topic whose other replicas are down."""
    controller.engine.drained = [
        DrainedBroker(
            broker_id=1,
            mode=mode.value,
            broker_epoch=tree.client.exists("/brokers/ids/1").czxid,
            since=datetime.now(UTC),
        )
    ]
    tree.write(state_path("orders", 0), encode_state(State(controller_epoch=1, leader=0, leader_epoch=5, isr=[0, 1])))
    controller.cycle()
    tree.unregister(0)
    tree.add_topic("new", {0: [0, 1]})
    tree.client.delete(state_path("new", 0))

    def are_led() -> bool:
        controller.cycle()
        written = tree.client.exists(state_path("new", 0))
        return bool(written) and [tree.state("orders", 0).leader, tree.state("new", 0).leader] == [1, 1]

    assert eventually(are_led)
    assert eventually(lambda: 0 in partitions_drained_from(tree, 1, "leader_and_isr"))


@pytest.mark.usefixtures("controller")
def test_dry_run_names_the_resident_controller(tree: KafkaTree, surveyor: Surveyor, plan: str) -> None:
    before = tree.dump()

    done = surveyor("commit", plan)

    assert done.code == 0
    assert "for `surveyor control`, is the controller; the plan is submitted to it" in done.stdout
    assert tree.dump() == before


def test_interrupted_commit_withdraws_its_plan(
    tree: KafkaTree, controller: ResidentController, surveyor: Surveyor, plan: str
) -> None:
    with commit(surveyor, plan, "--apply") as process:
        assert eventually(lambda: bool(tree.client.get_children("/surveyor/plans")))
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=60)
    controller.cycle()

    assert process.returncode == 143, stdout + stderr
    assert [tree.version("orders", partition) for partition in ORDERS] == [0, 0, 0]
    assert tree.client.get_children("/surveyor/plans") == []


def test_refused_plan_gets_a_result(
    tree: KafkaTree, controller: ResidentController, surveyor: Surveyor, plan: str
) -> None:
    """The controller checks the plan itself: one is not in its warehouse, and one is too large."""
    assert controller.plan_inbox is not None
    controller.plan_inbox.settings = settings_of(str(surveyor.folder) + "-elsewhere", tree.hosts)
    code, output = carried_out(controller, commit(surveyor, plan, "--apply"))

    assert code not in {0, 1}
    assert "the controller, whose warehouse is" in output
    assert tree.version("orders") == 0


def test_unexpected_error_of_a_plan_is_its_result(
    controller: ResidentController, surveyor: Surveyor, plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk ends neither the controllership nor the plans after it."""

    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("jobs.controller.plan_inbox.apply_plan", full)
        code, output = carried_out(controller, commit(surveyor, plan, "--apply"))
    assert (code, "OSError: No space left on device" in output, "commit it again" in output) == (1, True, True), output

    code, output = carried_out(controller, commit(surveyor, plan, "--apply"))
    assert (code, "committed; 1 applied" in output) == (0, True), output


def test_broker_failure_does_not_wait_for_a_plan(
    tree: KafkaTree, controller: ResidentController, plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan does not overwrite what the controller has written in the meantime."""
    begun, may_go_on = Event(), Event()

    def apply_slowly(*arguments: Any, **others: Any) -> CommitLog:  # noqa: ANN401 - those of `apply_plan`
        begun.set()
        assert may_go_on.wait(60)
        return apply_plan(*arguments, **others)

    monkeypatch.setattr("jobs.controller.plan_inbox.apply_plan", apply_slowly)
    submitted_by_a_commit(tree, controller, plan)
    controller.cycle()
    assert begun.wait(20)

    tree.unregister(2)
    drain_watches(controller)
    controller.cycle()
    states = [tree.state("orders", partition) for partition in ORDERS]
    may_go_on.set()
    assert eventually(lambda: not controller.cycle() and not is_busy(controller))

    assert [(state.leader, state.isr) for state in states] == [(0, [0, 1]), (1, [1, 0]), (1, [1, 0])]
    answer = decode_submitted(tree.client.get(f"/surveyor/plans/{plan}")[0]).answer
    assert answer is not None
    assert (answer.exit_code, answer.result["stale"], tree.state("orders").leader) == (21, 1, 0)
    tree.client.delete(f"/surveyor/plans/{plan}")


def test_superseded_changes_are_sent_as_current_state(
    tree: KafkaTree, controller: ResidentController, surveyor: Surveyor
) -> None:
    drained = election(tree, "orders", 0, 1) | {"stop_replica_to": [0]}
    (written,) = store_plan(surveyor.warehouse, tree, [drained]).changes
    tree.write(state_path("orders", 0), encode_state(State(7, 2, 9, [2])))
    controller.reader.refresh_partitions([("orders", 0)])
    assert eventually(lambda: not controller.broker_requests.channels.busy)
    for broker in (0, 1, 2):
        partitions_drained_from(tree, broker, "leader_and_isr")

    controller.broker_requests.resend_current([written])

    assert eventually(lambda: not controller.broker_requests.channels.busy)
    assert tree.brokers is not None
    (follows,) = tree.brokers[1].of("leader_and_isr")
    (stops,) = tree.brokers[0].of("stop_replica")
    epochs = [follows.request.topic_states[0].partition_states[0], stops.request.topic_states[0].partition_states[0]]
    assert [state.leader_epoch for state in epochs] == [9, 9]


def test_interrupted_plan_gets_a_result(tree: KafkaTree, controller: ResidentController) -> None:
    """It was interrupted by a lost connection, or with the previous controller. The commit must not wait for ever."""
    begun = SubmittedPlan(holder=this_process("commit", "1f"), max_plan_age=60.0, max_changes=5, is_begun=True)
    tree.client.create("/surveyor/plans/1f", encode_submitted(begun), ephemeral=True)

    controller.cycle()

    answer = decode_submitted(tree.client.get("/surveyor/plans/1f")[0]).answer
    assert answer is not None
    assert (answer.exit_code, "commit the plan again" in str(answer.error)) == (1, True)
    tree.client.delete("/surveyor/plans/1f")


def submitted_by_a_commit(tree: KafkaTree, controller: ResidentController, plan: str) -> None:
    """As a commit does it: recorded in the warehouse, then put into ZooKeeper by the same session."""
    assert controller.plan_inbox is not None
    data = encode_submitted(SubmittedPlan(holder=this_process("commit", plan), max_plan_age=1e9, max_changes=5))
    warehouse = controller.plan_inbox.settings.warehouse
    record_submission(warehouse, read_plan(warehouse, plan).plan_id, submission_of(session_of(tree.client), data))
    tree.client.create(f"/surveyor/plans/{plan}", data, ephemeral=True)


FORGED = encode_submitted(
    SubmittedPlan(holder=LeaseHolder("ann", "ops1", 7, "commit", "", ""), max_plan_age=1e9, max_changes=9)
)


@pytest.mark.parametrize("changed", ["another session", "other limits"])
def test_plan_not_submitted_by_a_commit_is_refused(
    tree: KafkaTree, controller: ResidentController, plan: str, changed: str
) -> None:
    """Also one that a commit did submit, put there again by another session or with other limits."""
    submitted_by_a_commit(tree, controller, plan)
    data, _ = tree.client.get(f"/surveyor/plans/{plan}")
    tree.client.delete(f"/surveyor/plans/{plan}")
    log = RecordedLog()
    assert controller.plan_inbox is not None
    controller.plan_inbox.log_line = log
    with connected(tree.endpoint) as another:
        forger, forged = (another, data) if changed == "another session" else (tree.client, FORGED)
        forger.create(f"/surveyor/plans/{plan}", forged, ephemeral=True)
        assert eventually(lambda: not controller.cycle() and not is_busy(controller))
        answer = decode_submitted(tree.client.get(f"/surveyor/plans/{plan}")[0]).answer
        tree.client.delete(f"/surveyor/plans/{plan}")

    assert answer is not None
    assert (answer.exit_code, "without a record in this warehouse" in str(answer.error)) == (23, True)
    assert [tree.version("orders", partition) for partition in ORDERS] == [0, 0, 0]
    assert sum("without a record in this warehouse" in line for line in log) == 1


# znodes in /surveyor/plans that no commit created: name, data, ephemeral
JUNK = {
    "nothing": ("x", b"", True),
    "no JSON": ("5f00000000000000", b"\xff{", True),
    "another object": ("a", b'{"version":1}', True),
    "persistent and well-formed": ("5f00000000000001", FORGED, False),
    "a name with quotes": ("' OR plan_id LIKE '%", b"[]", True),
}


@pytest.mark.parametrize("kind", JUNK)
def test_invalid_submission_is_reported_once(
    tree: KafkaTree, controller: ResidentController, plan: str, kind: str
) -> None:
    """A plan that is submitted afterwards is carried out, and a changed znode is reported again."""
    name, data, ephemeral = JUNK[kind]
    log = RecordedLog()
    assert controller.plan_inbox is not None
    controller.plan_inbox.log_line = log
    path = f"/surveyor/plans/{name}"
    tree.client.create(path, data, ephemeral=ephemeral)
    for _ in range(4):
        controller.cycle()
    reported = [line for line in log if path in line]
    tree.touch(path)
    controller.cycle()
    submitted_by_a_commit(tree, controller, plan)
    assert eventually(lambda: not controller.cycle() and not is_busy(controller))
    remaining = tree.client.get(path)[0]
    tree.client.delete(path)

    assert len(reported) == 1
    assert f"remove it by `delete {path}` in zookeeper-shell; it is left alone" in reported[0]
    assert len([line for line in log if path in line]) == 2
    assert remaining == data
    assert tree.state("orders").leader == 1
    tree.client.delete(f"/surveyor/plans/{plan}")


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize("name", ["balance' OR '1'='1", "no such plan", "plän"])
def test_forged_plan_id_gets_a_result(tree: KafkaTree, controller: ResidentController, name: str) -> None:
    tree.client.create(f"/surveyor/plans/{name}", FORGED, ephemeral=True)
    assert eventually(lambda: not controller.cycle() and not is_busy(controller))
    answer = decode_submitted(tree.client.get(f"/surveyor/plans/{name}")[0]).answer
    tree.client.delete(f"/surveyor/plans/{name}")

    assert answer is not None
    assert "no plan" in str(answer.error)


def test_commit_reports_an_invalid_znode_in_place_of_its_plan(
    tree: KafkaTree, controller: ResidentController, surveyor: Surveyor, plan: str
) -> None:
    tree.write(f"/surveyor/plans/{plan}", FORGED)
    code, output = carried_out(controller, commit(surveyor, plan, "--apply"))
    tree.client.delete(f"/surveyor/plans/{plan}")

    assert (code, f"remove it by `delete /surveyor/plans/{plan}` in zookeeper-shell" in output) == (23, True), output


def test_ended_cycle_advises_no_commit(tree: KafkaTree, controller: ResidentController, surveyor: Surveyor) -> None:
    """The next cycle decides again on what failed, and the plan stays `partial`."""
    surveyor.json("snapshot")
    before = surveyor.json("status")["due"]
    change = msgspec.convert(election(tree, "orders", 0, 1) | {"cluster": "default", "plan_id": ""}, Change)
    controller.log.start()
    controller.log.record(
        controller.writer.cycle_record([change], outcomes=[RowOutcome(change, Outcome.FAILED, "refused")])
    )
    controller.log.close()
    ((cycle, status),) = surveyor.rows("plans", "plan_id", "status")
    committed = surveyor("commit", cycle)
    shown, verified = surveyor("show", "plan", cycle), surveyor("verify", cycle)

    assert status == "partial"
    assert surveyor.json("status")["due"] == before
    assert (committed.code, "records a finished cycle of `surveyor control`" in committed.stderr) == (23, True)
    for ran in (shown, verified):
        assert "see what is due now: surveyor status" in ran.stdout
        assert "surveyor commit" not in ran.stdout
    metrics = surveyor("metrics").stdout
    assert 'surveyor_plans{cluster="default",status="partial"} 0.0' in metrics


@pytest.mark.usefixtures("controller")
def test_resigned_controller_leaves_the_commit_to_retry(tree: KafkaTree, surveyor: Surveyor, plan: str) -> None:
    with commit(surveyor, plan, "--apply") as process:
        assert eventually(lambda: bool(tree.client.get_children("/surveyor/plans")))
        tree.client.delete("/surveyor/control")
        _, stderr = process.communicate(timeout=60)

    assert process.returncode == 1
    assert "`surveyor control` stopped before it started plan" in stderr


def test_reassignment_plan_is_submitted_as_a_request(
    tree: KafkaTree, controller: ResidentController, surveyor: Surveyor
) -> None:
    tree.add_topic("few", {0: [0, 1]}, topic_id=None)
    controller.cycle()
    moves = [reassignment(tree, "few", 0, [0, 2])]
    plan = store_plan(surveyor.warehouse, tree, moves, kind="reassign")

    with commit(surveyor, plan.plan_id, "--apply") as process:
        assert eventually(lambda: controller.cycle() and bool(controller.context.moving))
        state = tree.state("few")
        tree.write(state_path("few", 0), encode_state(State(state.controller_epoch, 0, state.leader_epoch, [0, 1, 2])))
        code, output = carried_out(controller, process)

    assert (code, "requests are written to /admin" in output) == (0, True), output
    assert controller.context.partitions["few", 0].replicas == [0, 2]


def test_cancelled_plan_reverts_moves(tree: KafkaTree, controller: ResidentController, surveyor: Surveyor) -> None:
    """By a request that replaces the plan's own; requests of other clients stay."""
    for topic in ("few", "others"):
        tree.add_topic(topic, {0: [0, 1]}, topic_id=None)
    controller.cycle()
    plan = store_plan(surveyor.warehouse, tree, [reassignment(tree, "few", 0, [0, 2])], kind="reassign")
    orders = [TopicPartition(topic, 0, [0, 2]) for topic in ("few", "others")]
    tree.write(REASSIGN, encode_partitions(orders))
    run_until_quiet(controller)
    assert controller.context.moving == {("few", 0), ("others", 0)}
    outcomes: list[RowOutcome] = []
    assert controller.plan_inbox is not None
    settings = controller.plan_inbox.settings

    def cancel() -> None:
        with ZooKeeperCluster(settings.zookeeper_endpoint) as cluster:
            outcomes.extend(cancel_running(settings, cluster, plan, skip_unsafe=False))

    cancels = Thread(target=cancel)
    cancels.start()
    assert eventually(lambda: not controller.cycle() and not cancels.is_alive())

    assert [(outcome.change.key, outcome.outcome) for outcome in outcomes] == [(("few", 0), Outcome.APPLIED)]
    assignment = tree.assignment("few")
    assert (assignment.partitions, assignment.adding_replicas, assignment.removing_replicas) == ({0: [0, 1]}, {}, {})
    assert partitions_drained_from(tree, 2, "stop_replica") == {0}
    run_until_quiet(controller)
    assert decode_partitions(tree.client.get(REASSIGN)[0]) == orders[1:]
    assert controller.context.moving == {("others", 0)}
