"""Requests to Kafka's controller whose answer was lost: ZooKeeper shows the result, or the outcome is unknown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from kafka.errors import KafkaTimeoutError
from msgspec import structs

from jobs.adapters.brokers.admin_client import error_name
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.lease_znode import LEASE, ZnodeLease
from jobs.core.errors import UnreadableError
from jobs.execution.admin.admin_commit import AdminCommit
from jobs.execution.admin.controller_client import REQUEST_TIMED_OUT
from jobs.execution.admin.wave_progress import recheck_wave
from jobs.preconditions.planned_registrations import NO_REGISTRATIONS
from jobs.repositories.plans.commit_log import CommitLog
from jobs.runtime.pace import DEFAULT
from schemas.current_state import CurrentPartition, CurrentState, CurrentTopic, Decoded, LeaderAndIsr
from schemas.enums import Outcome, PlanStatus
from schemas.rows import Change, Key
from schemas.stored_plan import Plan, RowOutcome
from schemas.znode_codecs import Assignment
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.controllers.kafka_controller import KafkaController, delay_once
from tests.jobs.support.controllers.throttled_tree import answer_as_admin, override
from tests.jobs.support.rows.operation_rows import alteration, deletion, expansion
from tests.jobs.support.rows.plan_rows import creation, election, plan_record, store_plan, topic_creation
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.typed_rows import typed

if TYPE_CHECKING:
    from schemas.rows import Operation

T, U = "t", "u"
DONE, ERROR, RUNNING, INTERRUPTED = 0, 1, 25, 130


class AnsweringController(KafkaController):
    """Carries out a request if it `hears`, then answers `code`; None: the answer is lost."""

    hears = True
    code: int | None = None
    fails: BaseException = KafkaTimeoutError("after 20 s")

    def __init__(self, tree: KafkaTree) -> None:
        super().__init__(tree)
        self.answered: list[str] = []
        """The topic of each request."""
        self.meanwhile: Callable[[], object] = lambda: None
        """Called before a request is answered."""

    def elect_preferred(self, partitions: Sequence[Key]) -> dict[Key, int]:
        elect = super().elect_preferred
        return dict.fromkeys(partitions, self._answer(T, lambda: elect(partitions)))

    def create_topics(self, topics: Mapping[str, Any]) -> dict[str, int]:
        ((topic, (replicas, _)),) = topics.items()
        return {topic: self._answer(topic, lambda: self.tree.add_topic(topic, replicas))}

    def create_partitions(self, topic: str, _total: int, added: list[list[int]]) -> int:
        return self._answer(topic, lambda: self._assign((topic, 1), added[0], [], []))

    def alter_config(self, topic: str, entries: Mapping[str, str | None]) -> int:
        return self._answer(topic, lambda: override(self.tree, "topic", topic, entries))

    def delete_topics(self, topics: Mapping[str, str | None]) -> dict[str, int]:
        (topic,) = topics
        return {topic: self._answer(topic, lambda: self.tree.write(f"/admin/delete_topics/{topic}", b""))}

    def _answer(self, topic: str, carry_out: Callable[[], object]) -> int:
        self.answered.append(topic)
        if self.hears:
            carry_out()
        self.meanwhile()
        if self.code is None:
            raise self.fails
        return self.code


Make = Callable[[Warehouse, KafkaTree], Plan]


class Committed(NamedTuple):
    """How a commit ended."""

    code: int
    outcomes: dict[str, str]
    """By topic."""
    messages: list[str]
    status: PlanStatus
    stderr: str


@dataclass
class AdminMode:
    """A cluster with its controller, and the command line."""

    tree: KafkaTree
    controller: AnsweringController
    surveyor: Surveyor

    def commit(self, make: Make, **pace: Any) -> Committed:  # noqa: ANN401 - fields of a Pace
        plan = make(self.surveyor.warehouse, self.tree)
        where = ("--zookeeper", self.tree.hosts, "--mode", "admin")
        done = self.surveyor.paced(**pace).run("commit", plan.plan_id, *where, "--apply", "--yes")
        rows = [row for row in self.surveyor.commits(plan.plan_id) if row["outcome"] != "pending"]
        outcomes = {row["topic"]: row["outcome"] for row in rows}
        assert len(outcomes) == len(rows), "a change has two outcomes"
        status = PlanStatus(self.surveyor.status(plan.plan_id))
        return Committed(done.exit_code, outcomes, [row["message"] for row in rows], status, done.stderr)

    def alter_elsewhere(self, topic: str = T) -> None:
        """As another client does."""
        override(self.tree, "topic", topic, {"retention.ms": "9"})

    @property
    def requested(self) -> list[str]:
        """The topics of all requests."""
        return self.controller.answered


@pytest.fixture
def admin(tree: KafkaTree, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> AdminMode:
    """Topic T is led by a replica that is not preferred."""
    tree.add_topic(T, {0: [1, 0]})
    controller = AnsweringController(tree)
    controller.set_state((T, 0), leader=0)
    answer_as_admin(controller, monkeypatch)
    return AdminMode(tree, controller, Surveyor(warehouse, replace(controller.pace, read_back=0.0)))


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
    return store_plan(
        warehouse, tree, [], [structs.replace(row, sequence=at) for at, row in enumerate(both)], kind="config"
    )


def deletes(warehouse: Warehouse, tree: KafkaTree) -> Plan:
    return deletion(warehouse, tree, T)


LOST = "no answer came (KafkaTimeoutError: after 20 s)"

# request, code (None: the answer is lost) -> the outcome if the controller has not carried it out
ANSWERS = [
    *((make, None, "unknown") for make in (elects, creates, expands, alters, deletes)),
    *((creates, 36, "failed"), (expands, 37, "failed"), (deletes, 3, "failed"), (deletes, 100, "failed")),
    *((make, REQUEST_TIMED_OUT, "unknown") for make in (creates, expands, deletes)),
    (creates, -1, "failed"),
]


@pytest.mark.parametrize("hears", [True, False])
@pytest.mark.parametrize(("make", "code", "otherwise"), ANSWERS)
def test_what_the_cluster_shows_counts_more_than_the_answer(
    admin: AdminMode, make: Make, code: int | None, otherwise: str, *, hears: bool
) -> None:
    """A broker repeats a request whose controller was replaced; the second answer is that nothing is left to do."""
    admin.controller.code, admin.controller.hears = code, hears

    done = admin.commit(make)

    assert [*done.outcomes.values()] == ["applied" if hears else otherwise], done.stderr
    assert (done.code, done.status) == ((DONE, PlanStatus.COMMITTED) if hears else (ERROR, PlanStatus.PARTIAL))
    assert len(admin.requested) == 1
    if code is None:
        assert done.messages == ["asked and accepted" if hears else LOST]
    elif not hears or code != REQUEST_TIMED_OUT:
        assert error_name(code) in done.messages[0]


REFUSALS = [
    (creates, 29, "CREATE on the topic"),
    (expands, 29, "ALTER on the topic"),
    (deletes, 29, "DELETE on the topic"),
    (elects, 31, "ALTER on the cluster"),
]


@pytest.mark.parametrize(("make", "code", "permission"), REFUSALS)
def test_a_refusal_names_the_permission_that_is_missing(
    admin: AdminMode, make: Make, code: int, permission: str
) -> None:
    admin.controller.code, admin.controller.hears = code, False

    done = admin.commit(make)

    assert (done.code, [*done.outcomes.values()]) == (ERROR, ["failed"]), done.stderr
    assert done.messages[0].endswith(f"({code}): this client needs the permission {permission}")


@pytest.mark.parametrize("code", [None, 36])
def test_unknown_if_zookeeper_does_not_answer_either(
    admin: AdminMode, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    """Neither a lost answer nor a refusal that may be one of a repetition says what happened."""

    def unreadable(*_: object) -> None:
        raise UnreadableError("no ZooKeeper answered")

    monkeypatch.setattr("jobs.execution.admin.controller_client.poll_until", unreadable)
    admin.controller.code = code

    done = admin.commit(creates)

    assert (done.code, done.outcomes) == (ERROR, {"new": "unknown"}), done.stderr
    assert code is not None or done.messages[0].endswith(", and the cluster could not be read: no ZooKeeper answered")


def test_the_lease_is_checked_before_each_request(admin: AdminMode) -> None:
    admin.controller.code, admin.controller.meanwhile = 0, lambda: admin.tree.client.delete(LEASE)

    done = admin.commit(alters_both)

    assert (done.code, admin.requested, done.outcomes) == (RUNNING, [T], {T: "applied", U: "skipped"}), done.stderr


def test_later_requests_are_not_sent(admin: AdminMode) -> None:
    """Each further request would wait as long again."""
    admin.controller.hears = False

    done = admin.commit(alters_both)

    assert (done.code, admin.requested, done.outcomes) == (ERROR, [T], {T: "unknown", U: "skipped"})


def test_interrupted_request_is_not_recorded_as_skipped(admin: AdminMode) -> None:
    """Kafka may have received the request, or may still receive it."""
    admin.controller.fails = KeyboardInterrupt()

    done = admin.commit(creates)

    assert (done.code, done.outcomes) == (INTERRUPTED, {"new": "unknown"}), done.stderr


def test_a_change_that_is_not_due_has_one_outcome(admin: AdminMode, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found to be stale with the changes of a request whose answer is then lost."""
    readings = count(1)

    def altered(*arguments: Any) -> Any:  # noqa: ANN401 - those of the original
        if next(readings) == 3:
            admin.alter_elsewhere(U)
        return recheck_wave(*arguments)

    monkeypatch.setattr("jobs.execution.admin.admin_commit.recheck_wave", altered)

    done = admin.commit(alters_both, check_valid=0.0)

    assert (admin.requested, done.outcomes) == ([T], {T: "applied", U: "stale"}), done.stderr


def test_what_is_requested_late_is_judged_again(admin: AdminMode) -> None:
    """Of a long wave, another client alters the last topic after the first was requested."""
    admin.controller.code, admin.controller.meanwhile = 0, lambda: admin.alter_elsewhere(U)

    done = admin.commit(alters_both, check_valid=0.0, checked_together=1)

    assert (admin.requested, done.outcomes) == ([T], {T: "applied", U: "stale"}), done.stderr


@pytest.mark.parametrize(("reading", "topic", "requested"), [(2, T, [U]), (3, U, [T])])
def test_the_age_of_a_judgement_includes_the_time_to_read(
    admin: AdminMode, monkeypatch: pytest.MonkeyPatch, reading: int, topic: str, requested: list[str]
) -> None:
    """Each reading takes long; in one of them another client alters a topic that has been read already."""
    now, readings = [0.0], count(1)
    admin.controller.code = 0

    def slow(*arguments: Any) -> Any:  # noqa: ANN401 - those of the original
        pending = recheck_wave(*arguments)
        now[0] += DEFAULT.check_valid
        if next(readings) == reading:
            admin.alter_elsewhere(topic)
        return pending

    monkeypatch.setattr("jobs.execution.admin.admin_commit.recheck_wave", slow)

    done = admin.commit(alters_both, clock=SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[0]))

    assert (admin.requested, done.outcomes[topic]) == (requested, "stale"), done.stderr


def test_a_change_is_judged_after_the_plan_status(admin: AdminMode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another client alters the topic while the warehouse takes long to answer."""
    refuse_closed = CommitLog.refuse_closed

    def slow(log: CommitLog) -> None:
        refuse_closed(log)
        if log.intents_written:
            admin.alter_elsewhere()

    monkeypatch.setattr(CommitLog, "refuse_closed", slow)

    done = admin.commit(alters)

    assert (admin.requested, done.outcomes) == ([], {T: "stale"}), done.stderr


@pytest.mark.parametrize("stopped", ["monotonic", "time"])
def test_a_change_is_judged_after_the_lease_check(
    admin: AdminMode, monkeypatch: pytest.MonkeyPatch, stopped: str
) -> None:
    """The process is stopped in the check, or its machine suspended, and another client alters the topic meanwhile."""
    clock = delay_once(monkeypatch, ZnodeLease, "refuse_lost", admin.alter_elsewhere)
    setattr(clock, stopped, lambda: 0.0)

    done = admin.commit(alters, clock=clock)

    assert (admin.requested, done.outcomes) == ([], {T: "stale"}), done.stderr


A, B = [1, 2], [3, 2]
WAVES: Final = [
    typed(wave=wave, replicas_before=before, replicas_after=after)
    for wave, (before, after) in enumerate([(A, B), (B, A), (A, B)])
]


def test_a_request_that_was_interrupted_is_recorded_if_it_runs() -> None:
    assert outcomes_of(decided=[]) == [Outcome.APPLIED, Outcome.SKIPPED, Outcome.SKIPPED]


def test_a_later_wave_to_the_same_replicas_does_not_run() -> None:
    assert outcomes_of(decided=WAVES[:1]) == [Outcome.APPLIED, Outcome.SKIPPED, Outcome.SKIPPED]


def outcomes_of(decided: list[Change]) -> list[Outcome]:
    """Return the outcome of each wave of an interrupted commit, while the partition moves from A to B."""
    assignment = Assignment({0: [*B, 1]}, {0: [3]}, {0: [1]}, None)
    topic = CurrentTopic("topic t", None, Decoded(assignment), is_unversioned=True)
    partition = CurrentPartition(topic, 0, "t-0", None, Decoded(LeaderAndIsr(1, 5, A)))
    current = CurrentState({("t", 0): partition}, {}, frozenset({1, 2, 3}))
    cluster: Any = SimpleNamespace(sync=lambda: None, read_current=lambda _: current)
    none: Any = None
    log = CommitLog(none, Plan(plan_record(), WAVES, [], []), none, intents_written=True)
    log.add_outcomes(RowOutcome(change, Outcome.APPLIED, "accepted") for change in decided)

    AdminCommit(none, cluster, log, none, none, none, none, none, NO_REGISTRATIONS, None).record_unrequested(WAVES)

    return [row.outcome for row in sorted(log.outcomes, key=lambda row: row.change.wave)]
