"""A plan's reassignments, wave by wave, on a tree without Kafka: fences, refusals, throttles, crashes and messages."""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from time import time
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.lease_znode import LEASE
from jobs.execution import leftover_throttles
from jobs.execution.admin.admin_commit import AdminCommit
from jobs.execution.admin.throttles import set_throttle, throttle_rows
from jobs.execution.admin.wave_progress import MEASURE_INTERVAL_SECONDS
from jobs.repositories.actor import Actor
from jobs.repositories.plans.commit_log import CommitLog
from jobs.repositories.plans.plans_writer import apply_transition
from schemas.current_state import CurrentState
from schemas.enums import PlanKind, PlanStatus
from schemas.lease_holder import LeaseHolder, encode_holder
from schemas.rows import Change
from schemas.stored_plan import Plan, RowOutcome, Transition
from schemas.topic_configs import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.controllers.kafka_controller import KafkaController, delay_once
from tests.jobs.support.controllers.throttled_tree import CrashError, override, overrides
from tests.jobs.support.rows.move_rows import reassignment
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.client_cluster import ClientCluster
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

T, OTHER = "t", "other"
BEFORE = {0: [0, 1], 1: [1, 2], 2: [2, 0]}
AFTER = {0: [3, 1], 1: [1, 3], 2: [2, 3]}
SETTING, CLEARING = 10, 4  # config requests: brokers and topics, to throttle two waves and to remove that again
READS_OF_A_MOVE = 8
DONE, ERROR, USAGE, REFUSED, RUNNING = 0, 1, 2, 23, 25


@pytest.fixture
def plan(kafka: KafkaTree, warehouse: Warehouse) -> Plan:
    """Partitions 0 and 1 in the first wave, 2 in the second."""
    rows = [reassignment(kafka, T, partition, AFTER[partition], wave=partition // 2) for partition in BEFORE]
    return store_plan(warehouse, kafka, rows, kind=PlanKind.REASSIGN.value)


def run(surveyor: Surveyor, kafka: KafkaTree, plan: Plan, *more: str, apply: bool = True) -> Any:  # noqa: ANN401
    flags = ["--zookeeper", kafka.hosts, "--mode", "admin", *["--apply"][: int(apply)]]
    return surveyor.run("commit", plan.plan_id, *flags, *more)


def last_words(surveyor: Surveyor, plan: Plan) -> dict[int, tuple[str, str]]:
    rows = sorted(surveyor.commits(plan.plan_id), key=lambda row: (row["attempt"], row["committed_at"]))
    return {row["partition"]: (row["outcome"], row["message"]) for row in rows}


@pytest.mark.usefixtures("single_requests")
@pytest.mark.parametrize("meanwhile", ["moved", "cancelled", "lease lost", "no answer"])
def test_each_request_of_a_long_wave_is_judged_again(  # noqa: PLR0913, PLR0917 - fixtures
    kafka: KafkaTree,
    controller: KafkaController,
    surveyor: Surveyor,
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: str,
) -> None:
    """With one partition in a request; between the first and the second, seconds later, something happens.

    The first is read back before that, so it is also if the wave stops.
    """
    read_back: list[tuple[list[Any], int]] = []

    def read_nothing_else(_: object, __: object, rows: Sequence[Change], ___: object) -> list[RowOutcome]:
        read_back.append(([row.key for row in rows], len(controller.waves)))
        return []

    monkeypatch.setattr("jobs.execution.admin.admin_commit.record_concurrent_changes", read_nothing_else)

    def happen() -> None:
        if len(controller.waves) > 1:
            return
        if meanwhile == "moved":
            controller.begin((T, 1), [3, 0])
        elif meanwhile == "cancelled":
            apply_transition(surveyor.warehouse, plan.plan_id, Transition.CANCEL)
        elif meanwhile == "lease lost":
            kafka.client.delete(LEASE)
        else:
            raise KafkaTimeoutError("after 20 s")

    controller.after_request = happen

    one_by_one = surveyor.paced(check_valid=0.0, checked_together=1, read_back=0.0)
    done = run(one_by_one, kafka, plan, "--max-wait", "0s")

    outcomes = {partition: outcome for partition, (outcome, _) in last_words(surveyor, plan).items()}
    assert controller.waves == [[(T, 0)]], done.stderr
    assert read_back[0] == ([(T, 0)], 1)
    assert (outcomes[0], outcomes[1]) == ("applied", "stale" if meanwhile == "moved" else "skipped"), done.stderr


def test_next_wave_waits_until_the_previous_is_in_sync(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    """Also if the replicas are already assigned and one of them has fallen behind."""
    controller.lagging = {(T, 1)}
    waves: list[int] = []
    controller.events = [controller.finish_all, lambda: waves.append(len(controller.waves)), controller.catch_up]

    done = run(surveyor, kafka, plan)

    assert done.exit_code == DONE, done.stderr
    assert controller.waves == [[(T, 0), (T, 1)], [(T, 2)]]
    assert waves == [1]
    assert sorted(controller.reassignments()) == [(T, 2)], "the commit does not wait for the last wave"
    assert surveyor.status(plan.plan_id) == PlanStatus.COMMITTED
    assert "complete: 2 of 2 reassignments of wave 0" in done.stderr


def test_the_wait_shows_how_much_is_copied(
    monkeypatch: pytest.MonkeyPatch, kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    details: list[Callable[[], object]] = []

    def progress(_: str, detail: Callable[[], object]) -> AbstractContextManager[None]:
        details.append(detail)
        return nullcontext()

    monkeypatch.setattr("jobs.execution.admin.wave_progress.progress", progress)
    monkeypatch.setattr("jobs.execution.admin.admin_commit.copied_text", lambda *_: "1 B of 2 B (50 %) copied")
    controller.lagging = {(T, 1)}
    controller.events = [controller.finish_all, controller.catch_up]
    seconds = [0.0]

    def sleep(_: float) -> None:
        seconds[0] += MEASURE_INTERVAL_SECONDS
        controller.step()

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: seconds[0], time=time)

    assert run(surveyor.paced(clock=clock), kafka, plan).exit_code == DONE

    assert str(details[0]()) == "2 of 2 complete; 1 B of 2 B (50 %) copied"


def test_a_target_that_dies_during_the_wait_is_named(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    """Its moves do not continue, and the last line says so."""
    controller.stuck, controller.events = True, [lambda: kafka.unregister(3)]
    done = run(surveyor, kafka, plan, "--wait", "--max-wait", "1s")
    blocked = "2 moves wait for broker 3, which is not live"
    assert done.exit_code == RUNNING
    assert f"surveyor: {blocked}\n" in done.stderr
    assert f"{blocked}; other requested changes continue in the cluster" in done.stderr


def test_moves_that_wait_for_a_dead_broker_are_named_without_a_wait(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, warehouse: Warehouse
) -> None:
    """A replica stays on the broker, so that the moves are accepted; the rollback is complete when it is verified."""
    moves = [reassignment(kafka, OTHER, 0, [2, 1])]
    plan = store_plan(warehouse, kafka, moves, kind=PlanKind.REASSIGN.value)
    kafka.unregister(1)
    controller.set_state((OTHER, 0), isr=[0])

    committed, again = run(surveyor, kafka, plan), run(surveyor, kafka, plan)
    verified = surveyor.run("verify", plan.plan_id, "--zookeeper", kafka.hosts)
    controller.finish_all()
    complete = json.loads(surveyor.run("verify", plan.plan_id, "--zookeeper", kafka.hosts, "--json").stdout)
    controller.set_state((OTHER, 0), isr=[2])
    back = surveyor.run("rollback", plan.plan_id, "--zookeeper", kafka.hosts, "--mode", "admin", "--apply", "--yes")

    ended = [committed, again, verified]
    assert [done.exit_code for done in (*ended, back)] == [DONE] * 4, back.stderr
    text = "\n  1 move waits for broker 1, which is not live\n"
    assert [done.stdout.count(text) for done in ended] == [1] * 3, [done.stdout for done in ended]
    assert f"plan {plan.plan_id} is rolled_back" in back.stdout
    assert (complete["blocked"], complete["is_complete"]) == (None, True)


def test_a_throttle_that_a_broker_does_not_remove_fails_the_commit(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    controller.events = [controller.finish_all, lambda: setattr(controller, "refuses", "3")]
    done = run(surveyor, kafka, plan, "--throttle", "1000")
    left = f"its throttle could not be removed: `surveyor commit {plan.plan_id} --apply` removes it later"
    assert (done.exit_code, surveyor.status(plan.plan_id)) == (ERROR, PlanStatus.COMMITTED)
    assert (left in done.stdout, [*overrides(kafka)]) == (True, ["brokers/3"])


@pytest.mark.parametrize("more", [(), ("--throttle", "1MB/s"), ("--wait", "--max-wait", "1m")])
def test_dry_run_changes_nothing(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan, more: tuple[str, ...]
) -> None:
    before = kafka.dump()

    done = run(surveyor, kafka, plan, *more, apply=False)

    assert done.exit_code == DONE, done.stderr
    assert (kafka.dump(), controller.waves, controller.alterations) == (before, [], [])
    assert (surveyor.commits(plan.plan_id), throttle_rows(surveyor.warehouse)) == ([], [])
    throttled = "would be throttled to 1000000 B/s, wave by wave: brokers 0, 1, 2, 3, and moving replicas of t"
    assert (throttled in done.stdout) == ("--throttle" in more)


Begin = Callable[[KafkaController], object]


def begin_theirs(controller: KafkaController) -> None:
    controller.begin((OTHER, 0), [0, 2])


def order_theirs(controller: KafkaController) -> None:
    data = b'{"version":1,"partitions":[{"topic":"other","partition":0,"replicas":[0,2]}]}'
    controller.tree.write("/admin/reassign_partitions", data)


@pytest.mark.parametrize(("begin", "apply"), [(begin_theirs, True), (order_theirs, True), (order_theirs, False)])
def test_refused_during_foreign_reassignments(  # noqa: PLR0913 - fixtures
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan, begin: Begin, *, apply: bool
) -> None:
    begin(controller)
    before = kafka.dump()

    done = run(surveyor, kafka, plan, apply=apply)

    assert done.exit_code == REFUSED
    assert f"a reassignment that is not part of plan {plan.plan_id} runs: other-0 to [0, 2]. No plan in" in done.stderr
    assert (kafka.dump(), surveyor.commits(plan.plan_id)) == (before, [])
    assert surveyor.status(plan.plan_id) == PlanStatus.PLANNED


def request(controller: KafkaController, topic: str, *replicas: int) -> None:
    order = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": replicas}]}
    controller.tree.write("/admin/reassign_partitions", json.dumps(order).encode())


def far_away(controller: KafkaController) -> None:
    for broker in (6, 7, 8):
        controller.tree.register(broker)
    controller.tree.add_topic("far", {0: [6, 7]})
    controller.begin(("far", 0), [6, 8])


def leaderless(controller: KafkaController) -> None:
    controller.begin((OTHER, 0), [0, 2])
    controller.set_state((OTHER, 0), leader=-1, isr=[9])


WARNED: list[tuple[str, Begin, str]] = [
    (
        "an illegible topic",
        lambda controller: controller.tree.write("/brokers/topics/ghost", b"{"),
        "not understood, and assumed not to move: /brokers/topics/ghost (",
    ),
    (
        "an illegible partition",
        lambda controller: controller.tree.write("/brokers/topics/ghost", b'{"partitions":{"0":[1,1]}}'),
        "not understood, and assumed not to move: /brokers/topics/ghost (partition 0 names a broker twice",
    ),
    (
        "an illegible request",
        lambda controller: controller.tree.write("/admin/reassign_partitions", b"{"),
        "/admin/reassign_partitions (Kafka treats it as empty; `delete /admin/reassign_partitions`",
    ),
    (
        "a request that Kafka's controller ignores",
        lambda controller: controller.tree.write(
            "/admin/reassign_partitions",
            b'{"version":1,"partitions":[{"topic":"other","partition":0,"replicas":[0,2],"log_dirs":["any","any"]}]}',
        ),
        (
            "1 requested reassignment that cannot be carried out: other-0 to [0, 2] (Kafka's controller "
            "ignores the whole request: entry 0 has the field 'log_dirs', which Kafka's controller does not know): "
            "`surveyor cancel --partitions other-0 --zookeeper"
        ),
    ),
    (
        "a topic that is gone",
        lambda controller: request(controller, "ghost", 0, 1),
        (
            "1 requested reassignment that cannot be carried out: ghost-0 to [0, 1] (there is no such "
            "partition): `surveyor cancel --partitions ghost-0 --zookeeper"
        ),
    ),
    (
        "already there",
        lambda controller: request(controller, OTHER, 0, 1),
        "other-0 to [0, 1] (it has these replicas already): `surveyor cancel --partitions other-0 ",
    ),
    (
        "a request for another order",
        lambda controller: request(controller, OTHER, 1, 0),
        "other reassignments run, not in the way of this plan: other-0 to [1, 0]",
    ),
    (
        "a target that is down",
        lambda controller: controller.begin((OTHER, 0), [0, 9]),
        (
            "1 reassignment does not move: other-0 to [0, 9] (not live: 9); start broker 9, or cancel: "
            "`surveyor cancel --partitions other-0 "
        ),
    ),
    (
        "a request for a target that is down",
        lambda controller: request(controller, OTHER, 9, 0),
        "other-0 to [9, 0] (not live: 9); start broker 9, or cancel: `surveyor cancel",
    ),
    (
        "no replica to copy from",
        leaderless,
        "other-0 to [0, 2] (no replica in its ISR [9] is live); start broker 9",
    ),
    (
        "other topics on other brokers",
        far_away,
        "other reassignments run, not in the way of this plan: far-0 to [6, 8]",
    ),
]


@pytest.mark.parametrize(
    ("begin", "words", "apply"),
    [*((*case[1:], False) for case in WARNED), *((*case[1:], True) for case in WARNED[-3:])],
)
def test_other_reassignments_out_of_the_way_are_warned_of(  # noqa: PLR0913, PLR0917 - fixtures
    kafka: KafkaTree,
    controller: KafkaController,
    surveyor: Surveyor,
    plan: Plan,
    begin: Begin,
    words: str,
    *,
    apply: bool,
) -> None:
    begin(controller)
    controller.events = [lambda: controller.finish_all(T)] * 9

    done = run(surveyor, kafka, plan, apply=apply)

    assert done.exit_code == DONE, done.stderr
    assert words in done.stderr.partition("surveyor: warning: ")[2]
    assert controller.waves == ([[(T, 0), (T, 1)], [(T, 2)]] if apply else [])


@pytest.mark.parametrize(("goal", "dead"), [([3, 9], " (not live: 9)"), ([0, 2], "")])
def test_concurrent_copying_is_refused_with_its_dead_brokers(  # noqa: PLR0913, PLR0917 - fixtures
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan, goal: list[int], dead: str
) -> None:
    controller.begin((OTHER, 0), goal)

    done = run(surveyor, kafka, plan)

    assert (done.exit_code, controller.waves) == (REFUSED, [])
    assert f"other-0 to {goal}{dead}. No plan in {surveyor.warehouse.uri} moves other-0" in done.stderr
    assert (
        f"only if its owner agrees, cancel it (`surveyor cancel --partitions other-0 --zookeeper {kafka.hosts}"
        in done.stderr
    )


@pytest.mark.parametrize("is_committing", [True, False])
def test_the_plan_that_moves_other_partitions_is_named_with_its_author(  # noqa: PLR0913 - fixtures
    kafka: KafkaTree,
    controller: KafkaController,
    surveyor: Surveyor,
    plan: Plan,
    warehouse: Warehouse,
    *,
    is_committing: bool,
) -> None:
    """The advice is to wait or to ask, and never to cancel what another user has committed."""
    rows = [reassignment(kafka, OTHER, 0, [0, 2]), reassignment(kafka, T, 0, [0, 1, 5])]
    theirs = store_plan(warehouse, kafka, rows, kind=PlanKind.REASSIGN.value)
    CommitLog.open(warehouse, theirs, Actor("ann@ops1", "balance/run/commit")).append_intents(theirs.changes)
    controller.begin((OTHER, 0), [0, 2])
    if is_committing:
        holder = LeaseHolder("ann", "ops1", 77, "commit", theirs.plan_id, "2026-11-22T06:00:00+00:00")
        kafka.client.create(LEASE, encode_holder(holder), makepath=True)

    done = run(surveyor, kafka, plan, apply=False)

    assert done.exit_code == REFUSED
    begun = r"committed by ann@ops1 \(balance/run/commit\) since 20.{17} UTC, and that command has ended"
    running = f"ann@ops1 .process 77. since 2026-11-22T06:00:00.00:00, for `surveyor commit {theirs.plan_id}`"
    assert re.search(
        f"runs: other-0 to .0, 2.. Plan {theirs.plan_id} moves other-0 .{running if is_committing else begun}; "
        f"0 of 2 partitions complete.. Wait until it is complete .`surveyor verify {theirs.plan_id} --zookeeper .*` "
        "shows that.*, or ask ann@ops1.*; then commit again",
        done.stderr,
    ), done.stderr
    assert "surveyor cancel" not in done.stderr


def test_a_throttle_of_another_tool_is_named_in_dry_run_commit_verify_and_status(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    """Only for listed replicas: t-1 gets a replica that is not listed, on a broker with a rate."""
    override(kafka, "topic", T, {LEADER_REPLICAS: "", FOLLOWER_REPLICAS: "0:3,2:9"})
    override(kafka, "broker", "3", {FOLLOWER_RATE: "10"})
    override(kafka, "broker", "1", {LEADER_RATE: "7"})
    throttle = "a throttle of 10 B/s on broker 3 was set by another tool, and 1 partition is copied under it"
    statuses: list[str] = []
    controller.events = [
        lambda: statuses.append(surveyor.run("status", "--zookeeper", kafka.hosts).stdout),
        lambda: statuses.append(surveyor.run("verify", plan.plan_id, "--zookeeper", kafka.hosts).stderr),
    ]

    dry, own = (run(surveyor, kafka, plan, *more, apply=False) for more in ((), ("--throttle", "1MB/s")))
    done = run(surveyor, kafka, plan)
    lifted = run(surveyor, kafka, plan, "--wait")

    assert f"surveyor: warning: {throttle}: `surveyor sizes` finds out" in dry.stderr
    assert "another tool" not in own.stderr
    assert done.stderr.count(f"surveyor: {throttle}") == 1, done.stderr
    assert [throttle in " ".join(text.split()) for text in statuses] == [True, True], statuses
    assert lifted.exit_code == DONE


def test_cancelled_partitions_of_a_plan_name_the_plan(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, warehouse: Warehouse
) -> None:
    rows = [reassignment(kafka, OTHER, 0, [0, 2])]
    theirs = store_plan(warehouse, kafka, rows, kind=PlanKind.REASSIGN.value)
    CommitLog.open(warehouse, theirs, Actor("ann@ops1")).append_intents(theirs.changes)
    controller.begin((OTHER, 0), [0, 2])

    done = surveyor.run("cancel", "--partitions", "other-0", "--zookeeper", kafka.hosts)

    assert f"plan {theirs.plan_id}, committed by ann@ops1 since 20" in done.stderr
    assert f"only `surveyor cancel {theirs.plan_id} --zookeeper {kafka.hosts}" in done.stderr


def test_the_throttle_of_a_plan_that_moves_is_not_left_behind(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan, warehouse: Warehouse
) -> None:
    """Its replicas are on other brokers, so both may move at once, and only its own throttle is removed."""
    for broker in (6, 7, 8):
        kafka.register(broker)
    kafka.add_topic("far", {0: [6, 7]})
    rows = [reassignment(kafka, "far", 0, [6, 8])]
    theirs = store_plan(warehouse, kafka, rows, kind=PlanKind.REASSIGN.value)
    CommitLog.open(warehouse, theirs, Actor("ann@ops1")).append_intents(theirs.changes)
    set_throttle(warehouse, ClientCluster(kafka.client), controller, theirs.plan_id, theirs.changes, 1000)
    controller.begin(("far", 0), [6, 8])
    theirs_set = overrides(kafka)
    assert theirs_set
    controller.events = [lambda: controller.finish_all(T)] * 9

    done = run(surveyor, kafka, plan, "--wait", "--throttle", "2000")

    assert done.exit_code == DONE, done.stderr
    assert (overrides(kafka), {row.plan_id for row in throttle_rows(warehouse)}) == (theirs_set, {theirs.plan_id})
    assert f"plan {theirs.plan_id}, committed by ann@ops1 since 20" in done.stderr


def test_readable_partitions_of_a_topic_are_judged(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    """Partition 1 is not understood, and 0 copies replicas."""
    data = {"partitions": {"0": [0, 1, 2], "1": [65633, 65633]}, "adding_replicas": {"0": [2]}}
    kafka.write(f"/brokers/topics/{OTHER}", json.dumps(data | {"removing_replicas": {}}).encode())

    done = run(surveyor, kafka, plan, apply=False)

    assert (done.exit_code, controller.waves) == (REFUSED, [])
    assert "runs: other-0 to [0, 1, 2]. No plan in" in done.stderr


def test_stops_between_waves_if_another_client_begins(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    controller.events = [lambda: begin_theirs(controller), lambda: controller.finish_all(T)]

    done = run(surveyor, kafka, plan, "--throttle", "1MB/s")

    assert done.exit_code == REFUSED
    assert "other-0 to [0, 2]" in done.stderr
    assert "wave 1 was not requested" in done.stderr
    assert surveyor.status(plan.plan_id) == PlanStatus.PARTIAL
    outcome, message = last_words(surveyor, plan)[2]
    assert (outcome, "not requested: a reassignment that is not part of plan" in message) == ("skipped", True)
    assert (overrides(kafka), throttle_rows(surveyor.warehouse)) == ({}, [])
    controller.finish((OTHER, 0))
    assert run(surveyor, kafka, plan, "--wait").exit_code == DONE
    assert (controller.replicas(T), controller.waves) == (AFTER, [[(T, 0), (T, 1)], [(T, 2)]])


def test_drain_may_run_during_other_reassignments(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, warehouse: Warehouse
) -> None:
    order = reassignment(kafka, T, 0, [1, 0])
    elected = election(kafka, T, 0, leader=1, wave=1, replicas_before=[1, 0], replicas_after=[1, 0])
    parameters = json.dumps({"brokers": [0], "mode": "admin"})
    plan = store_plan(warehouse, kafka, [order, elected], kind=PlanKind.DRAIN.value, parameters=parameters)
    begin_theirs(controller)
    controller.stuck = True

    assert run(surveyor, kafka, plan).exit_code == DONE
    assert (controller.replicas(T)[0], kafka.state(T, 0).leader) == ([1, 0], 1)


def test_read_again_just_before_each_wave(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    """Another client has reordered partition 2 while the first wave moved."""
    controller.events = [lambda: controller.begin((T, 2), [0, 2])]

    done = run(surveyor, kafka, plan)

    assert done.exit_code == DONE
    assert last_words(surveyor, plan)[2] == ("stale", "its replicas are now [0, 2]")
    assert (controller.replicas(T), surveyor.status(plan.plan_id)) == (AFTER | {2: [0, 2]}, PlanStatus.PARTIAL)


def test_read_again_before_the_first_wave(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client has reordered partition 0 after the checks, and before anything was requested."""
    opened = CommitLog.open

    def reordered(warehouse: Warehouse, plan: Plan, author: Actor | None = None) -> CommitLog:
        controller.begin((T, 0), [1, 0])
        return opened(warehouse, plan, author)

    monkeypatch.setattr(CommitLog, "open", reordered)

    run(surveyor, kafka, plan)

    assert last_words(surveyor, plan)[0] == ("stale", "its replicas are now [1, 0]")
    assert controller.waves == [[(T, 1)], [(T, 2)]]


def test_partition_that_lost_its_leader_is_not_requested(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    """In wave 0 while the throttle is being set; in wave 1 while wave 0 moves."""
    controller.before_alteration = lambda: controller.set_state((T, 1), leader=-1)
    controller.events = [lambda: controller.set_state((T, 2), leader=-1, isr=[2])]

    run(surveyor, kafka, plan, "--throttle", "1MB/s")

    outcomes = last_words(surveyor, plan)
    assert [outcomes[partition][0] for partition in BEFORE] == ["applied", "stale", "stale"]
    assert all("`surveyor status` shows how" in outcomes[partition][1] for partition in (1, 2))
    assert (controller.replicas(T), overrides(kafka)) == (BEFORE | {0: AFTER[0]}, {})


def test_cancelled_by_another_client_during_the_move(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, warehouse: Warehouse
) -> None:
    """Its next wave is not requested; other plans are."""
    rows = [reassignment(kafka, T, partition, AFTER[partition]) for partition in (0, 1)]
    then = [
        reassignment(kafka, T, partition, [3, 2], wave=1, before=AFTER[partition]) | {"removing_after": [1]}
        for partition in (0, 1)
    ]
    plan = store_plan(warehouse, kafka, [*rows, *then], kind=PlanKind.REASSIGN.value)
    controller.events = [lambda: controller.begin((T, 0), None)]

    done = run(surveyor, kafka, plan, "--wait", "--throttle", "5MB")

    assert done.exit_code == ERROR
    rows_said = {
        (row["partition"], row["wave"]): row["outcome"]
        for row in surveyor.commits(plan.plan_id)
        if row["outcome"] != "pending" and row["partition"] is not None
    }
    assert {key for key, outcome in rows_said.items() if outcome == "applied"} == {(1, 0), (1, 1)}
    assert {key for key, outcome in rows_said.items() if outcome in {"failed", "skipped"}} == {(0, 0), (0, 1)}
    assert controller.waves == [[(T, 0), (T, 1)], [(T, 1)]]
    assert (overrides(kafka), throttle_rows(warehouse)) == ({}, [])


def test_no_longer_than_max_wait(kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan) -> None:
    controller.stuck = True
    stopped = run(surveyor, kafka, plan, "--throttle", "1MB/s", "--max-wait", "0s")
    status, throttled = surveyor.status(plan.plan_id), overrides(kafka)
    controller.stuck = False

    again = run(surveyor, kafka, plan)

    assert (stopped.exit_code, status) == (RUNNING, PlanStatus.PARTIAL)
    assert "--max-wait 0 s is over: requested changes continue in the cluster" in stopped.stderr
    assert f"the throttle of plan {plan.plan_id} stays set while 2 partitions are moving" in stopped.stderr
    assert set(throttled) == {"brokers/0", "brokers/1", "brokers/2", "brokers/3", "topics/t"}
    assert again.exit_code == DONE, again.stderr
    assert (controller.replicas(T), controller.waves) == (AFTER, [[(T, 0), (T, 1)], [(T, 2)]])
    assert (overrides(kafka), throttle_rows(surveyor.warehouse)) == ({}, [])


def test_rate_of_the_previous_commit_is_kept(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    controller.stuck = True
    run(surveyor, kafka, plan, "--throttle", "1MB/s", "--max-wait", "0s")
    controller.stuck = False
    during_move: list[dict[str, dict[str, str]]] = []
    controller.events = [controller.finish_all, lambda: during_move.append(overrides(kafka))]

    run(surveyor, kafka, plan)

    assert during_move[0]["brokers/3"]["leader.replication.throttled.rate"] == "1000000"
    assert during_move[0]["topics/t"]["follower.replication.throttled.replicas"] == "2:3"
    assert "brokers/1" not in during_move[0]


@pytest.mark.parametrize("events", range(SETTING + CLEARING))
def test_crash_anywhere(  # noqa: PLR0913, PLR0917 - fixtures
    kafka: KafkaTree,
    controller: KafkaController,
    surveyor: Surveyor,
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
    events: int,
) -> None:
    """Killed after so many config requests: nothing of the commit continues, and the next one does the rest."""
    override(kafka, "broker", "1", {"leader.replication.throttled.rate": "7"})
    before = overrides(kafka)
    with monkeypatch.context() as killed:
        if events < SETTING:
            killed.setattr(AdminCommit, "clear_throttle", lambda _: None)
        killed.setattr(CommitLog, "close", lambda _: None)
        controller.crashes = events
        crashed = run(surveyor, kafka, plan, "--throttle", "1MB/s")
    controller.crashes = None

    done = run(surveyor, kafka, plan)

    assert CrashError.__name__ in crashed.stderr
    assert done.exit_code == DONE, done.stderr
    reassigned = [key for wave in controller.waves for key in wave]
    assert sorted(reassigned) == [(T, 0), (T, 1), (T, 2)]
    run(surveyor, kafka, plan, "--wait")
    assert (controller.replicas(T), overrides(kafka), throttle_rows(surveyor.warehouse)) == (AFTER, before, [])
    assert surveyor.status(plan.plan_id) == PlanStatus.COMMITTED


@pytest.mark.parametrize("reached", range(3))
def test_partition_in_several_waves_continues_where_it_is(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, warehouse: Warehouse, reached: int
) -> None:
    way = [[0, 1], [0, 1, 2], [0, 1, 2, 3], [2, 3]]
    rows = [reassignment(kafka, T, 0, after, wave=wave, before=way[wave]) for wave, after in enumerate(way[1:])]
    plan = store_plan(warehouse, kafka, rows, kind=PlanKind.REASSIGN.value)
    for step in way[1 : reached + 1]:
        controller.begin((T, 0), step)
        controller.finish((T, 0))
    if reached < 2:
        controller.begin((T, 0), way[reached + 1])

    done = run(surveyor, kafka, plan, "--wait")

    assert done.exit_code == DONE, done.stderr + done.stdout
    assert controller.replicas(T)[0] == [2, 3]
    assert len(controller.waves) == (2 - reached if reached < 2 else 1)
    assert surveyor.status(plan.plan_id) == PlanStatus.COMMITTED


def left_behind(kafka: KafkaTree, controller: KafkaController, warehouse: Warehouse, plan: Plan) -> None:
    set_throttle(warehouse, ClientCluster(kafka.client), controller, plan.plan_id, plan.changes, 1000)


def test_leftover_throttle_of_a_committed_plan_is_cleared(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, warehouse: Warehouse, plan: Plan
) -> None:
    run(surveyor, kafka, plan, "--wait")
    left_behind(kafka, controller, warehouse, plan)
    verified = surveyor.run("verify", plan.plan_id, "--zookeeper", kafka.hosts)

    done = run(surveyor, kafka, plan)

    assert f"remove its throttle: surveyor commit {plan.plan_id} --apply" in verified.stdout
    assert (done.exit_code, overrides(kafka), throttle_rows(warehouse)) == (DONE, {}, [])


def test_throttle_of_a_move_begun_before_the_lease_stays(  # noqa: PLR0913, PLR0917 - fixtures
    kafka: KafkaTree,
    controller: KafkaController,
    surveyor: Surveyor,
    warehouse: Warehouse,
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the question is asked, for instance."""
    left_behind(kafka, controller, warehouse, plan)
    before = overrides(kafka)

    delay_once(monkeypatch, leftover_throttles, "lease_for", lambda: controller.begin((T, 0), AFTER[0]))
    done = surveyor.run("cancel", "--throttles", "--zookeeper", kafka.hosts, "--apply")

    assert (done.exit_code, overrides(kafka)) == (REFUSED, before), done.stderr


def test_leftover_throttle_of_a_refused_plan_is_cleared(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, warehouse: Warehouse, plan: Plan
) -> None:
    left_behind(kafka, controller, warehouse, plan)

    done = run(surveyor, kafka, plan, "--max-plan-age", "0s")

    assert (done.exit_code, overrides(kafka), throttle_rows(warehouse)) == (REFUSED, {}, [])


def test_leftover_throttle_is_cleared_by_another_plan(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, warehouse: Warehouse, plan: Plan
) -> None:
    another = store_plan(warehouse, kafka, [reassignment(kafka, OTHER, 0, [0, 3])], kind=PlanKind.REASSIGN.value)
    left_behind(kafka, controller, warehouse, plan)
    dry = run(surveyor, kafka, another, apply=False)

    done = run(surveyor, kafka, another)

    assert f"the throttle of plan {plan.plan_id} is still set" in dry.stdout
    assert f"plan {plan.plan_id} has left its throttle behind" in done.stderr
    assert (done.exit_code, overrides(kafka), throttle_rows(warehouse)) == (DONE, {}, [])


def test_other_plans_warn_of_a_leftover_throttle(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, warehouse: Warehouse, plan: Plan
) -> None:
    another = store_plan(warehouse, kafka, [election(kafka, OTHER, 0, leader=1)])
    left_behind(kafka, controller, warehouse, plan)

    done = run(surveyor, kafka, another)

    assert done.exit_code == DONE
    assert f"the throttle of plan {plan.plan_id} is still set: `surveyor commit" in done.stderr
    assert len(throttle_rows(warehouse)) == 10


def test_show_throttles(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, warehouse: Warehouse, plan: Plan
) -> None:
    left_behind(kafka, controller, warehouse, plan)

    shown = json.loads(surveyor.run("show", "throttles", "--json").stdout)["rows"]

    assert {(row["plan_id"], row["before"]) for row in shown} == {(plan.plan_id, None)}
    assert len(shown) == 10


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (("--throttle", "fast"), USAGE, "'fast' is no rate"),
        (("--max-wait", "soon"), USAGE, "'soon' is no duration"),
        (("--mode", "batch", "--throttle", "1MB"), USAGE, "--mode batch moves none"),
    ],
)
def test_unreadable_configs_are_refused(  # noqa: PLR0913, PLR0917 - fixtures
    kafka: KafkaTree, surveyor: Surveyor, plan: Plan, more: tuple[str, ...], code: int, words: str
) -> None:
    done = run(surveyor, kafka, plan, *more)

    assert done.exit_code == code
    assert words in done.stderr


def in_conf(tmp_path: Path, kafka: KafkaTree, throttle: str) -> list[str]:
    conf = tmp_path / "surveyor.toml"
    conf.write_text(f'[clusters.default]\nzookeeper = "{kafka.hosts}"\nthrottle = "{throttle}"\n', encoding="utf-8")
    return ["--conf", str(conf)]


@pytest.mark.parametrize(
    ("more", "rate"),
    [([], "2000000"), (["--throttle", "1MB/s"], "1000000"), (["--throttle", "none"], None)],
)
def test_throttle_of_the_conf_is_the_default(  # noqa: PLR0913, PLR0917 - fixtures
    kafka: KafkaTree,
    controller: KafkaController,
    surveyor: Surveyor,
    plan: Plan,
    tmp_path: Path,
    more: list[str],
    rate: str | None,
) -> None:
    during_move: list[dict[str, dict[str, str]]] = []
    controller.events = [lambda: during_move.append(overrides(kafka))]

    done = run(surveyor, kafka, plan, *in_conf(tmp_path, kafka, "2MB/s"), *more)

    assert done.exit_code == DONE, done.stderr
    assert during_move[0].get("brokers/3", {}).get("leader.replication.throttled.rate") == rate
    assert (overrides(kafka), throttle_rows(surveyor.warehouse)) == ({}, [])


def test_bytes_and_time_are_shown_in_advance(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan
) -> None:
    del controller
    logs = [{"broker_id": replicas[0], "topic": T, "partition": number} for number, replicas in BEFORE.items()]
    common = {"log_dir": "/", "bytes": 60_000_000, "offset_lag": 0, "is_future": False, "taken_at": datetime.now(UTC)}
    surveyor.warehouse.replace("sizes", [log | common for log in logs])
    full = {"broker_id": 3, "log_dir": "/", "total_bytes": 10**9, "usable_bytes": 100_000_000, "error": None}
    surveyor.warehouse.replace("log_dirs", [full | {"taken_at": datetime.now(UTC)}])

    dry = run(surveyor, kafka, plan, "--throttle", "1MB/s", apply=False)
    shown = surveyor.run("show", "plan", plan.plan_id, "--throttle", "1MB/s")
    programs = json.loads(surveyor.run("show", "plan", plan.plan_id, "--throttle", "1MB/s", "--json").stdout)

    for text in (dry.stdout, shown.stdout):
        assert "copies 3 replicas, 171.7 MiB; at least 3 min at 1000000 B/s a broker" in text
        assert "bytes copied by wave 114.4 MiB in 2 min, 57.2 MiB in 60 s" in text
        assert "1 broker receives more bytes than the disks have left: 3 (171.7 MiB, 95.4 MiB left)" in text
        assert re.search(rf"\napply: surveyor commit {plan.plan_id} --apply .*--throttle 1MB/s", text + " ")
    assert (programs["copies"]["bytes"], programs["copies"]["seconds"]) == (180_000_000, 180.0)


def test_suggested_commands_carry_the_throttle(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as refusing:
        refusing.setattr(controller, "reassign", lambda targets: dict.fromkeys(targets, 39))
        failed = run(surveyor, kafka, plan, "--throttle", "1MB/s")
    done = run(surveyor, kafka, plan, "--wait")
    rolled = surveyor.run("rollback", plan.plan_id, "--zookeeper", kafka.hosts, "--name", "back", "--throttle", "3MB/s")

    assert f"\ncontinue: surveyor commit {plan.plan_id} --apply --throttle 1MB/s --zookeeper" in failed.stdout
    assert (done.exit_code, rolled.exit_code) == (DONE, DONE), done.stderr + rolled.stderr
    assert "\nreview: surveyor show plan back --throttle 3MB/s" in rolled.stdout
    assert "\napply: surveyor commit back --apply --throttle 3MB/s --zookeeper" in rolled.stdout


def test_foreign_leftover_throttle_is_removed(
    kafka: KafkaTree, controller: KafkaController, surveyor: Surveyor
) -> None:
    override(kafka, "broker", "1", {"leader.replication.throttled.rate": "7", "log.retention.hours": "9"})
    override(kafka, "topic", T, {"leader.replication.throttled.replicas": "0:1"})
    controller.begin((OTHER, 0), [0, 2])
    flags = ["cancel", "--throttles", "--zookeeper", kafka.hosts]

    while_it_moves = surveyor.run(*flags, "--apply")
    controller.finish((OTHER, 0))
    before = overrides(kafka)
    status = json.loads(surveyor.run("status", "--zookeeper", kafka.hosts, "--json").stdout)
    dry, dry_left = surveyor.run(*flags), overrides(kafka)
    done = surveyor.run(*flags, "--apply")

    assert (while_it_moves.exit_code, dry.exit_code, done.exit_code) == (REFUSED, DONE, DONE), done.stderr
    assert "1 partition moves, and the throttle may be in use" in while_it_moves.stderr
    assert [step["command"] for step in status["due"] if "throttle" in step["what"]] == [
        f"surveyor cancel --throttles --zookeeper {kafka.hosts} --warehouse {surveyor.warehouse.uri}"
    ]
    assert dry_left == before
    assert overrides(kafka) == {"brokers/1": {"log.retention.hours": "9"}}


@pytest.mark.parametrize("waves", [3, 6])
def test_a_wave_that_has_ended_is_not_read_for_each_later_one(  # noqa: PLR0913, PLR0917 - fixtures
    kafka: KafkaTree,
    controller: KafkaController,
    surveyor: Surveyor,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
    waves: int,
) -> None:
    """However many waves follow: at the start, for its own request, while it moves, for the next wave, at the end."""
    kafka.add_topic("many", {number: [0, 1] for number in range(waves)})
    rows = [reassignment(kafka, "many", number, [3, 1], wave=number) for number in range(waves)]
    plan = store_plan(warehouse, kafka, rows, kind=PlanKind.REASSIGN.value)
    read_current, reads = ZooKeeperCluster.read_current, list[str]()

    def counted(reader: ZooKeeperCluster, changes: Sequence[Change]) -> CurrentState:
        reads.extend(f"{change.topic}-{change.partition}" for change in changes)
        return read_current(reader, changes)

    monkeypatch.setattr(ZooKeeperCluster, "read_current", counted)
    assert run(surveyor, kafka, plan, "--throttle", "1MB/s", "--wait").exit_code == DONE
    assert len(controller.waves) == waves
    assert reads.count("many-0") <= READS_OF_A_MOVE
