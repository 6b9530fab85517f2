"""Another controller takes over between the checks of a commit and its own take-over: its rows are judged again.

The other controller takes over right before the commit does, as it may while a user reads the question or while the
commit waits for another Surveyor.
"""

from collections.abc import Callable

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.controllership import take_over
from jobs.execution import commit
from jobs.execution.batch.batch_commit import commit_batch
from jobs.repositories.plans.commit_log import requested_changes
from schemas.enums import PlanStatus
from schemas.stored_plan import Plan
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.plan_rows import store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

T = "t"
BEFORE = 7
DONE, ERROR, STALE = 0, 1, 21
Meanwhile = Callable[..., None]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Call a function right before the commit takes over, once or several times."""

    def happens(event: Callable[[], object], times: int = 1) -> None:
        pending = [event] * times

        def commit_later(*args: object, **options: object) -> None:
            if pending:
                pending.pop()()
            commit_batch(*args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(commit, "commit_batch", commit_later)

    return happens


def epoch(tree: KafkaTree) -> int:
    return int(tree.client.get("/controller_epoch")[0])


def take_over_and_resign(tree: KafkaTree) -> None:
    with connected(tree.endpoint) as client:
        take_over(client, 1000)


def attempts(surveyor: Surveyor, plan: Plan) -> dict[int, set[tuple[str, str]]]:
    outcomes: dict[int, set[tuple[str, str]]] = {}
    for row in surveyor.commits(plan.plan_id):
        outcomes.setdefault(row["attempt"], set()).add((row["outcome"], row["message"]))
    return outcomes


def test_rows_applied_by_the_other_are_not_repeated(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, plan: Plan, meanwhile: Meanwhile
) -> None:
    """Neither is the controllership taken over, nor does the commit report that anything was written."""
    meanwhile(lambda: Surveyor(warehouse).apply(tree.hosts, plan.plan_id))

    done = surveyor.apply(tree.hosts, plan.plan_id)

    assert (done.exit_code, epoch(tree)) == (DONE, BEFORE + 1)
    assert (
        f"another controller took over in the meantime, with epoch {BEFORE + 1}: the pending rows are judged again"
        in done.stderr
    )
    assert "nothing is due" in done.stderr
    assert "written under the fence" not in done.stderr
    assert f"committed; {plan.size} applied (0 of them now)" in done.stdout
    assert attempts(surveyor, plan)[2] == {("applied", "found applied")}
    assert surveyor.status(plan.plan_id) == PlanStatus.COMMITTED
    assert len(requested_changes(warehouse, plan.plan_id)) == plan.size


def test_rows_left_by_the_other_are_written(
    tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, plan: Plan, meanwhile: Meanwhile
) -> None:
    first = store_plan(warehouse, tree, plan.changes[:1], alias="first")
    meanwhile(lambda: Surveyor(warehouse).apply(tree.hosts, first.plan_id))

    done = surveyor.apply(tree.hosts, plan.plan_id)

    assert (done.exit_code, epoch(tree)) == (DONE, BEFORE + 2)
    assert f"written under the fence: {plan.size - 1} state znodes" in done.stderr
    assert f"committed; {plan.size} applied ({plan.size - 1} of them now)" in done.stdout


def test_rows_changed_by_the_other_are_stale(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, meanwhile: Meanwhile
) -> None:
    def changes_all() -> None:
        take_over_and_resign(tree)
        tree.touch(f"/brokers/topics/{T}")

    meanwhile(changes_all)

    done = surveyor.apply(tree.hosts, plan.plan_id)

    assert (done.exit_code, epoch(tree)) == (STALE, BEFORE + 1)
    assert "nothing is due" in done.stderr


def test_repeatedly_overtaken_commit_gives_up(
    tree: KafkaTree, surveyor: Surveyor, plan: Plan, meanwhile: Meanwhile
) -> None:
    meanwhile(lambda: take_over_and_resign(tree), times=5)
    before = tree.dump()

    done = surveyor.apply(tree.hosts, plan.plan_id)

    assert done.exit_code == ERROR
    assert "another controller took over 5 times while the pending rows were judged" in done.stderr
    ours = {path for path, znode in tree.dump().items() if znode != before.get(path)}
    assert ours <= {"/", "/controller", "/controller_epoch"}
    assert surveyor.status(plan.plan_id) == PlanStatus.PLANNED
