"""ZooKeeper denies access or is lost in the middle of a commit: the error is reported with its exit code and
recorded.
"""

from collections.abc import Callable

import pytest
from kazoo.client import TransactionRequest
from kazoo.exceptions import ConnectionLoss
from kazoo.security import make_acl

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.connection import commit
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.adapters.zookeeper.plan_submission import announce_resident
from jobs.execution.batch.standalone_operations import write_tasks
from jobs.repositories.actor import this_process
from schemas.enums import Outcome, PlanStatus, Step
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.commands.paces import SMALL_BATCHES
from tests.jobs.support.rows.operation_rows import deletion
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.fenced_writes import Multis, is_fenced
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.jobs.support.zookeeper.zookeeper_proxy import ZooKeeperProxy

T = "t"
ERROR, UNREADABLE = 1, 22
TAKE_OVER = Step.TAKE_OVER
READ_ONLY = [make_acl("world", "anyone", read=True)]


@pytest.fixture
def topic(tree: KafkaTree) -> KafkaTree:
    tree.add_topic(T, {partition: [0, 1, 2] for partition in range(4)})
    return tree


def move_all(tree: KafkaTree, warehouse: Warehouse) -> str:
    return store_plan(warehouse, tree, [election(tree, T, partition, leader=1) for partition in range(4)]).plan_id


def after_multi(multis: Multis, nth: int, then: Callable[[], object]) -> None:
    """Call a function once the nth multi of changes is answered."""
    answered: list[object] = []

    def commit_then(multi: TransactionRequest) -> object:
        results = commit(multi)
        if is_fenced(multi):
            answered.append(results)
        if len(answered) == nth:
            then()
        return results

    multis.commit = commit_then


@pytest.mark.parametrize("pace", [SMALL_BATCHES])
@pytest.mark.parametrize("nth", [2, 4])
def test_zookeeper_lost_after_rows_were_written_is_an_error(  # noqa: PLR0913, PLR0917 - fixtures
    topic: KafkaTree,
    warehouse: Warehouse,
    surveyor: Surveyor,
    proxy: ZooKeeperProxy,
    monkeypatch: pytest.MonkeyPatch,
    multis: Multis,
    nth: int,
) -> None:
    """During the writing or after its end, the exit code is not that of a cluster that could not be read."""
    monkeypatch.setattr("jobs.adapters.zookeeper.connection.CONNECT_TIMEOUT_SECONDS", 3.0)
    plan = move_all(topic, warehouse)

    def lose_for_good() -> None:
        proxy.cut()
        proxy.expire_session()

    after_multi(multis, nth, lose_for_good)

    done = surveyor.apply(proxy.hosts, plan)

    assert done.exit_code == ERROR
    assert f"rows of the plan so far: {nth} applied" in done.stderr
    assert surveyor.status(plan) == (PlanStatus.PARTIAL if nth < 4 else PlanStatus.COMMITTED)
    assert list(surveyor.outcomes(plan).values()).count("applied") == nth
    assert sum(topic.versions(T).values()) == nth


def test_unreadable_zookeeper_keeps_its_exit_code(warehouse: Warehouse, surveyor: Surveyor, topic: KafkaTree) -> None:
    plan = move_all(topic, warehouse)
    topic.client.set_acls("/brokers/ids", [make_acl("world", "anyone", write=True)])

    done = surveyor.apply(topic.hosts, plan)

    assert done.exit_code == UNREADABLE
    assert "an ACL denies Surveyor permission to read /brokers/ids (NoAuth)" in done.stderr


def test_forbidden_take_over_is_an_error(warehouse: Warehouse, surveyor: Surveyor, topic: KafkaTree) -> None:
    plan = move_all(topic, warehouse)
    topic.client.set_acls("/controller_epoch", READ_ONLY)

    done = surveyor.apply(topic.hosts, plan)

    assert done.exit_code == ERROR
    assert "an ACL denies Surveyor permission to set /controller_epoch (NoAuth)" in done.stderr
    assert set(topic.versions(T).values()) == {0}


def test_forbidden_operation_is_named(warehouse: Warehouse, topic: KafkaTree, control: Controllership) -> None:
    plan = deletion(warehouse, topic, T)
    topic.client.set_acls("/admin/delete_topics", READ_ONLY)

    ((outcome,),) = write_tasks(control, plan.tasks, max_hold=30)

    assert outcome.outcome is Outcome.FAILED
    assert f"an ACL denies Surveyor permission to create /admin/delete_topics/{T} (NoAuth)" in outcome.message


def test_operations_end_with_max_hold(warehouse: Warehouse, topic: KafkaTree, control: Controllership) -> None:
    plan = deletion(warehouse, topic, T)

    ((outcome,),) = write_tasks(control, plan.tasks, max_hold=0)

    assert (outcome.outcome, outcome.message) == (Outcome.SKIPPED, "--max-hold 0s is over")
    assert topic.client.get_children("/admin/delete_topics") == []


@pytest.mark.parametrize("is_done", [True, False])
def test_operation_lost_in_each_attempt_is_read_back(
    warehouse: Warehouse, topic: KafkaTree, control: Controllership, multis: Multis, *, is_done: bool
) -> None:
    """The last multi may have been applied: only a read can say whether the operation has failed."""
    plan = deletion(warehouse, topic, T)
    attempts: list[TransactionRequest] = []

    def lose(multi: TransactionRequest) -> object:
        attempts.append(multi)
        if is_done and len(attempts) == 3:
            commit(multi)
        raise ConnectionLoss

    multis.commit = lose

    ((outcome,),) = write_tasks(control, plan.tasks, max_hold=30)

    assert len(attempts) == 3
    assert outcome.outcome is (Outcome.APPLIED if is_done else Outcome.FAILED)
    assert topic.client.get_children("/admin/delete_topics") == [T] * is_done


def test_lost_after_the_plan_was_submitted_is_an_error(
    topic: KafkaTree, control: Controllership, warehouse: Warehouse, surveyor: Surveyor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller may still carry it out, so the exit code is not that of a cluster that could not be read."""
    plan = move_all(topic, warehouse)
    assert announce_resident(control.client, this_process("control"))

    def lose(*_: object) -> None:
        raise ConnectionLoss

    monkeypatch.setattr("jobs.execution.commit._await_result", lose)

    done = surveyor.apply(topic.hosts, plan)

    assert done.exit_code == ERROR
    assert "may have been submitted, and the controller may have begun with it" in done.stderr
    assert f"surveyor show commits {plan}" in done.stderr


def test_take_over_is_recorded_before_it_is_done(
    topic: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, multis: Multis
) -> None:
    """A commit killed right after the take-over has recorded the epoch; a forbidden take-over has failed."""
    plan = move_all(topic, warehouse)
    meant: list[list[tuple[str, str]]] = []

    def commit_noting(multi: TransactionRequest) -> object:
        meant.append([(row["outcome"], row["message"]) for row in surveyor.commits(plan) if row["action"] == TAKE_OVER])
        return commit(multi)

    multis.commit = commit_noting
    topic.client.set_acls("/controller_epoch", READ_ONLY)
    assert surveyor.apply(topic.hosts, plan).exit_code == ERROR

    outcomes = [row["outcome"] for row in surveyor.commits(plan)]
    assert (meant, sorted(outcomes)) == ([[("pending", "controller epoch 8")]], ["failed", "pending"])
