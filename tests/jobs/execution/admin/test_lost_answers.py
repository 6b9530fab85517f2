"""Requests to Kafka's controller whose answer was lost: ZooKeeper shows the result, or the outcome is unknown."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kafka.errors import KafkaTimeoutError
from msgspec.structs import replace

from jobs.adapters.brokers.admin_client import error_name
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.lease_znode import LEASE, ZnodeLease
from jobs.core.errors import UnreadableError
from jobs.execution.admin.controller_client import JUDGED_SECONDS, REQUEST_TIMED_OUT
from jobs.execution.admin.running_waves import recheck_wave
from jobs.repositories.plans.commit_log import CommitLog
from schemas.enums import PlanStatus
from schemas.plan import Plan
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.controllers.moving_controller import MovingController, install
from tests.jobs.support.controllers.throttled_tree import override
from tests.jobs.support.rows.operation_rows import alteration, deletion, expansion
from tests.jobs.support.rows.plan_rows import creation, election, store_plan, topic_creation
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

if TYPE_CHECKING:
    from schemas.rows import Operation

T, U = "t", "u"
DONE, ERROR, RUNNING, INTERRUPTED = 0, 1, 25, 130


class AnswerlessController(MovingController):
    """Does what it is asked if it `hears`, and never answers."""

    hears = True
    fails: BaseException = KafkaTimeoutError("after 20 s")

    def elect_preferred(self, partitions: Sequence[tuple[str, int]]) -> Any:  # noqa: ANN401 - it never returns
        if self.hears:
            super().elect_preferred(partitions)
        raise self._lost("elect")

    def create_topics(self, topics: Mapping[str, Any]) -> Any:  # noqa: ANN401
        for topic, (replicas, _) in topics.items():
            if self.hears:
                self.tree.add_topic(topic, replicas)
        raise self._lost("create")

    def create_partitions(self, topic: str, _total: int, added: list[list[int]]) -> Any:  # noqa: ANN401
        if self.hears:
            self._assign((topic, 1), added[0], [], [])
        raise self._lost("expand")

    def alter_config(self, topic: str, entries: Mapping[str, str | None]) -> Any:  # noqa: ANN401
        if self.hears:
            override(self.tree, "topic", topic, entries)
        raise self._lost("alter")

    def delete_topics(self, topics: Mapping[str, str | None]) -> Any:  # noqa: ANN401
        for topic in topics:
            if self.hears:
                self.tree.write(f"/admin/delete_topics/{topic}", b"")
        raise self._lost("delete")

    def _lost(self, request: str) -> BaseException:
        self.requests.append((request, ""))
        return self.fails


@pytest.fixture
def controller(tree: KafkaTree, monkeypatch: pytest.MonkeyPatch) -> AnswerlessController:
    tree.add_topic(T, {0: [1, 0]})
    made = AnswerlessController(tree)
    install(made, monkeypatch)
    monkeypatch.setattr("jobs.execution.admin.controller_client.READ_BACK_SECONDS", 0.0)
    return made


class CodeController(AnswerlessController):
    """Answers `code`, whether it `hears` or not."""

    code = 0

    def create_topics(self, topics: Mapping[str, Any]) -> dict[str, int]:
        return dict.fromkeys(topics, self._answer(lambda: super(CodeController, self).create_topics(topics)))

    def create_partitions(self, topic: str, total: int, added: list[list[int]]) -> int:
        return self._answer(lambda: super(CodeController, self).create_partitions(topic, total, added))

    def delete_topics(self, topics: Mapping[str, str | None]) -> dict[str, int]:
        return dict.fromkeys(topics, self._answer(lambda: super(CodeController, self).delete_topics(topics)))

    def elect_preferred(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(partitions, self._answer(lambda: super(CodeController, self).elect_preferred(partitions)))

    def _answer(self, carry_out: Callable[[], object]) -> int:
        with suppress(KafkaTimeoutError):
            carry_out()
        return self.code


@pytest.fixture
def answering(tree: KafkaTree, monkeypatch: pytest.MonkeyPatch) -> CodeController:
    made = CodeController(tree)
    install(made, monkeypatch)
    return made


def elects(warehouse: Warehouse, tree: KafkaTree) -> Plan:
    return store_plan(warehouse, tree, [election(tree, T, 0, leader=1, leader_before=0)])


def creates(warehouse: Warehouse, tree: KafkaTree) -> Plan:
    return store_plan(warehouse, tree, [creation("new", 0, [0, 1])], [topic_creation("new")])


def expands(warehouse: Warehouse, tree: KafkaTree) -> Plan:
    return expansion(warehouse, tree, T, [[0, 2]])


def alters(warehouse: Warehouse, tree: KafkaTree) -> Plan:
    return alteration(warehouse, tree, T, {"retention.ms": None}, {"retention.ms": "7"})


def alters_both(warehouse: Warehouse, tree: KafkaTree) -> Plan:
    tree.add_topic(U, {0: [0, 1]})
    both: list[Operation] = []
    for topic in (T, U):
        both += alteration(warehouse, tree, topic, {"retention.ms": None}, {"retention.ms": "7"}).operations
    return store_plan(warehouse, tree, [], [replace(row, sequence=at) for at, row in enumerate(both)], kind="config")


def deletes(warehouse: Warehouse, tree: KafkaTree) -> Plan:
    return deletion(warehouse, tree, T)


def outcomes_of(surveyor: Surveyor, plan: Plan) -> list[dict[str, Any]]:
    """Return the plan's rows of `commits` without the intents."""
    return [row for row in surveyor.commits(plan.plan_id) if row["outcome"] != "pending"]


@pytest.mark.parametrize("hears", [True, False])
@pytest.mark.parametrize("make", [elects, creates, expands, alters, deletes])
def test_outcome_is_what_the_cluster_shows(  # noqa: PLR0913 - a table
    tree: KafkaTree,
    controller: AnswerlessController,
    surveyor: Surveyor,
    warehouse: Warehouse,
    make: Callable[[Warehouse, KafkaTree], Plan],
    *,
    hears: bool,
) -> None:
    controller.set_state((T, 0), leader=0)
    plan = make(warehouse, tree)
    controller.hears = hears

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", "admin", "--apply", "--yes")

    outcomes = [(row["outcome"], row["message"]) for row in outcomes_of(surveyor, plan)]
    lost = ("unknown", "no answer came (KafkaTimeoutError: after 20 s)")
    assert outcomes == [("applied", "asked and accepted") if hears else lost]
    assert (done.exit_code, len(controller.requests)) == (DONE if hears else ERROR, 1), done.stderr
    assert surveyor.status(plan.plan_id) == (PlanStatus.COMMITTED if hears else PlanStatus.PARTIAL)


CODES = [
    *((creates, 36), (expands, 37), (deletes, 3), (deletes, 100), (creates, -1)),
    *((creates, 7), (expands, 7), (deletes, 7)),
]


@pytest.mark.usefixtures("controller")
@pytest.mark.parametrize("hears", [True, False])
@pytest.mark.parametrize(("make", "code"), CODES)
def test_what_the_cluster_shows_counts_more_than_a_refusal(  # noqa: PLR0913, PLR0917 - a table
    tree: KafkaTree,
    surveyor: Surveyor,
    warehouse: Warehouse,
    answering: CodeController,
    make: Callable[[Warehouse, KafkaTree], Plan],
    code: int,
    *,
    hears: bool,
) -> None:
    """A broker repeats a request whose controller was replaced; the second answer is that nothing is left to do."""
    answering.code, answering.hears = code, hears
    plan = make(warehouse, tree)

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", "admin", "--apply", "--yes")

    ((outcome, message),) = ((row["outcome"], row["message"]) for row in outcomes_of(surveyor, plan))
    assert done.exit_code == (DONE if hears else ERROR), done.stderr
    assert outcome == ("applied" if hears else "unknown" if code == REQUEST_TIMED_OUT else "failed")
    assert error_name(code) in message or (hears and code == REQUEST_TIMED_OUT)
    assert len(answering.requests) == 1


def test_the_lease_is_checked_before_each_request(
    tree: KafkaTree,
    controller: AnswerlessController,
    surveyor: Surveyor,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = alters_both(warehouse, tree)
    altered: list[str] = []

    def alter(topic: str, entries: Mapping[str, str | None]) -> int:
        altered.append(topic)
        override(tree, "topic", topic, entries)
        tree.client.delete(LEASE)
        return 0

    monkeypatch.setattr(controller, "alter_config", alter)

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", "admin", "--apply", "--yes")

    outcomes = {row["topic"]: row["outcome"] for row in outcomes_of(surveyor, plan)}
    assert (done.exit_code, altered, outcomes) == (RUNNING, [T], {T: "applied", U: "skipped"}), done.stderr


def test_later_requests_are_not_sent(
    tree: KafkaTree, controller: AnswerlessController, surveyor: Surveyor, warehouse: Warehouse
) -> None:
    """Each further request would wait as long again."""
    plan = alters_both(warehouse, tree)
    controller.hears = False

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", "admin", "--apply", "--yes")

    outcomes = {row["topic"]: row["outcome"] for row in outcomes_of(surveyor, plan)}
    assert (done.exit_code, controller.requests, outcomes) == (ERROR, [("alter", "")], {T: "unknown", U: "skipped"})


def test_a_change_that_is_not_due_has_one_outcome(
    tree: KafkaTree,
    controller: AnswerlessController,
    surveyor: Surveyor,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is found to be stale with the changes of a request whose answer is then lost."""
    monkeypatch.setattr("jobs.execution.admin.controller_client.JUDGED_SECONDS", 0.0)
    plan = alters_both(warehouse, tree)
    readings = count(1)

    def altered(*arguments: Any) -> Any:  # noqa: ANN401 - those of the original
        if next(readings) == 3:
            override(tree, "topic", U, {"retention.ms": "9"})
        return recheck_wave(*arguments)

    monkeypatch.setattr("jobs.execution.admin.admin_commit.recheck_wave", altered)

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", "admin", "--apply", "--yes")

    outcomes = sorted((row["topic"], row["outcome"]) for row in outcomes_of(surveyor, plan))
    assert (controller.requests, outcomes) == ([("alter", "")], [(T, "applied"), (U, "stale")]), done.stderr


def test_interrupted_request_is_not_recorded_as_skipped(
    tree: KafkaTree, controller: AnswerlessController, surveyor: Surveyor, warehouse: Warehouse
) -> None:
    """Kafka may have received the request, or may still receive it."""
    plan = creates(warehouse, tree)
    controller.fails = KeyboardInterrupt()

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", "admin", "--apply", "--yes")

    outcomes = [row["outcome"] for row in outcomes_of(surveyor, plan)]
    assert (done.exit_code, outcomes) == (INTERRUPTED, ["unknown"]), done.stderr


def test_what_is_requested_late_is_judged_again(
    tree: KafkaTree,
    controller: AnswerlessController,
    surveyor: Surveyor,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a long wave, another client alters the last topic after the first was requested."""
    monkeypatch.setattr("jobs.execution.admin.controller_client.JUDGED_SECONDS", 0.0)
    monkeypatch.setattr("jobs.execution.admin.controller_client.JUDGED_TOGETHER", 1)
    plan = alters_both(warehouse, tree)
    altered: list[str] = []

    def alter(topic: str, entries: Mapping[str, str | None]) -> int:
        altered.append(topic)
        override(tree, "topic", topic, entries)
        override(tree, "topic", U, {"retention.ms": "9"})
        return 0

    monkeypatch.setattr(controller, "alter_config", alter)

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", "admin", "--apply", "--yes")

    outcomes = {row["topic"]: row["outcome"] for row in outcomes_of(surveyor, plan)}
    assert (altered, outcomes) == ([T], {T: "applied", U: "stale"}), done.stderr


def test_a_change_is_judged_after_the_plan_status(
    tree: KafkaTree,
    controller: AnswerlessController,
    surveyor: Surveyor,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another client alters the topic while the warehouse takes long to answer."""
    plan = alters(warehouse, tree)
    refuse_closed = CommitLog.refuse_closed

    def slow(log: CommitLog) -> None:
        refuse_closed(log)
        if log.intents_written:
            override(tree, "topic", T, {"retention.ms": "9"})

    monkeypatch.setattr(CommitLog, "refuse_closed", slow)

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", "admin", "--apply", "--yes")

    outcomes = [row["outcome"] for row in outcomes_of(surveyor, plan)]
    assert (controller.requests, outcomes) == ([], ["stale"]), done.stderr


@pytest.mark.parametrize(("reading", "topic", "requested"), [(2, T, [U]), (3, U, [T])])
def test_the_age_of_a_judgement_includes_the_time_to_read(  # noqa: PLR0913, PLR0917 - fixtures
    tree: KafkaTree,
    controller: AnswerlessController,
    surveyor: Surveyor,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
    reading: int,
    topic: str,
    requested: list[str],
) -> None:
    """Each reading takes long; in one of them another client alters a topic that has been read already."""
    plan = alters_both(warehouse, tree)
    now, readings, altered = [0.0], count(1), list[str]()

    def slow(*arguments: Any) -> Any:  # noqa: ANN401 - those of the original
        pending = recheck_wave(*arguments)
        now[0] += JUDGED_SECONDS
        if next(readings) == reading:
            override(tree, "topic", topic, {"retention.ms": "9"})
        return pending

    def alter(name: str, entries: Mapping[str, str | None]) -> int:
        altered.append(name)
        override(tree, "topic", name, entries)
        return 0

    monkeypatch.setattr("jobs.execution.admin.admin_commit.recheck_wave", slow)
    monkeypatch.setattr(controller, "alter_config", alter)
    for module in ("admin_commit", "controller_client"):
        clock = SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[0])
        monkeypatch.setattr(f"jobs.execution.admin.{module}.time", clock)

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", "admin", "--apply", "--yes")

    outcomes = {row["topic"]: row["outcome"] for row in outcomes_of(surveyor, plan)}
    assert (altered, outcomes[topic]) == (requested, "stale"), done.stderr


@pytest.mark.parametrize("clock", ["monotonic", "time"])
def test_a_change_is_judged_after_the_lease_check(  # noqa: PLR0913, PLR0917 - fixtures
    tree: KafkaTree,
    controller: AnswerlessController,
    surveyor: Surveyor,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
    clock: str,
) -> None:
    """The process is stopped in the check, or its machine suspended, and another client alters the topic meanwhile."""
    plan = alters(warehouse, tree)
    clocks = {"monotonic": 0.0, "time": 0.0}
    check = ZnodeLease.refuse_lost

    def slow(lease: ZnodeLease) -> None:
        check(lease)
        if clocks[clock] == 0.0:
            override(tree, "topic", T, {"retention.ms": "9"})
            clocks[clock] = 600.0

    monkeypatch.setattr(ZnodeLease, "refuse_lost", slow)
    shown = SimpleNamespace(monotonic=lambda: clocks["monotonic"], time=lambda: clocks["time"])
    monkeypatch.setattr("jobs.execution.admin.controller_client.time", shown)

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", "admin", "--apply", "--yes")

    outcomes = [row["outcome"] for row in outcomes_of(surveyor, plan)]
    assert (controller.requests, outcomes) == ([], ["stale"]), done.stderr


@pytest.mark.usefixtures("controller")
def test_unknown_if_zookeeper_does_not_answer_either(
    tree: KafkaTree, surveyor: Surveyor, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = creates(warehouse, tree)

    def unreadable(*_: object) -> None:
        raise UnreadableError("no ZooKeeper answered")

    monkeypatch.setattr("jobs.execution.admin.controller_client.poll_until", unreadable)

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", "admin", "--apply", "--yes")

    ((outcome, message),) = ((row["outcome"], row["message"]) for row in outcomes_of(surveyor, plan))
    assert (done.exit_code, outcome) == (ERROR, "unknown"), done.stderr
    assert message.endswith(", and the cluster could not be read: no ZooKeeper answered")


def test_an_unread_refusal_of_a_repetition_is_unknown(
    tree: KafkaTree,
    surveyor: Surveyor,
    warehouse: Warehouse,
    answering: CodeController,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answering.code = 36
    plan = creates(warehouse, tree)

    def unreadable(*_: object) -> None:
        raise UnreadableError("no ZooKeeper answered")

    monkeypatch.setattr("jobs.execution.admin.controller_client.poll_until", unreadable)

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", "admin", "--apply", "--yes")

    outcomes = [row["outcome"] for row in outcomes_of(surveyor, plan)]
    assert (done.exit_code, outcomes) == (ERROR, ["unknown"]), done.stderr


REFUSALS = [
    (creates, 29, "CREATE on the topic"),
    (expands, 29, "ALTER on the topic"),
    (deletes, 29, "DELETE on the topic"),
    (elects, 31, "ALTER on the cluster"),
]


@pytest.mark.parametrize(("make", "code", "permission"), REFUSALS)
def test_a_refusal_names_the_permission_that_is_missing(  # noqa: PLR0913, PLR0917 - a table
    tree: KafkaTree,
    surveyor: Surveyor,
    warehouse: Warehouse,
    answering: CodeController,
    make: Callable[[Warehouse, KafkaTree], Plan],
    code: int,
    permission: str,
) -> None:
    answering.code, answering.hears = code, False
    tree.add_topic(T, {0: [1, 0]})
    answering.set_state((T, 0), leader=0)
    plan = make(warehouse, tree)

    done = surveyor.run("commit", plan.plan_id, "--zookeeper", tree.hosts, "--mode", "admin", "--apply", "--yes")

    ((outcome, message),) = ((row["outcome"], row["message"]) for row in outcomes_of(surveyor, plan))
    assert (done.exit_code, outcome) == (ERROR, "failed"), done.stderr
    assert message.endswith(f"({code}): this client needs the permission {permission}")
