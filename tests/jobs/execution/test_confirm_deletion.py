"""A commit that deletes topics: what is shown of them, and what must be typed."""

import dataclasses
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import ExitCode
from jobs.repositories.deletion_impact import DeletionImpact, deletion_impact_of
from schemas.stored_plan import Plan
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.operation_rows import deletion
from tests.jobs.support.rows.plan_rows import plan_record
from tests.jobs.support.rows.warehouse_rows import Cluster, broker, partition, topic
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.fixture
def topics(tree: KafkaTree) -> None:
    tree.add_topic("payments", {0: [0, 1], 1: [1, 2]})
    tree.add_topic("orders", {0: [0]})


def commit_on_terminal(surveyor: Surveyor, tree: KafkaTree, plan: Plan, answer: str) -> tuple[int, str]:
    """Commit on a simulated terminal; return the exit code and stderr, which has the question."""
    done = dataclasses.replace(surveyor, answer=f"{answer}\n").commit(tree.hosts, plan.plan_id, "--apply")
    assert "warning: a deletion cannot be undone" in done.stderr
    return done.exit_code, done.stderr


@pytest.mark.parametrize(("answer", "code"), [("payments", 0), ("payment", 1)])
@pytest.mark.usefixtures("topics", "on_terminal")
def test_one_topic_is_typed_by_name(surveyor: Surveyor, tree: KafkaTree, answer: str, code: int) -> None:
    plan = deletion(surveyor.warehouse, tree, "payments")

    ended, question = commit_on_terminal(surveyor, tree, plan, answer)

    assert (ended, "type the topic's name" in question) == (code, True)
    assert (tree.client.exists("/admin/delete_topics/payments") is not None) == (code == 0)


@pytest.mark.usefixtures("topics", "on_terminal")
def test_closing_the_terminal_is_no_agreement(surveyor: Surveyor, tree: KafkaTree) -> None:
    plan = deletion(surveyor.warehouse, tree, "payments")

    done = surveyor.commit(tree.hosts, plan.plan_id, "--apply")

    question, error = done.stderr.splitlines()[-2:]
    assert (done.exit_code, question) == (1, "this cannot be undone; type the topic's name to delete:")
    assert error.startswith("surveyor: not applied: the question was not answered as it asks")


@pytest.mark.parametrize(("answer", "code"), [("2", 0), ("payments", 1)])
@pytest.mark.usefixtures("topics", "on_terminal")
def test_several_topics_are_confirmed_by_number(surveyor: Surveyor, tree: KafkaTree, answer: str, code: int) -> None:
    plan = deletion(surveyor.warehouse, tree, "payments", "orders")

    ended, question = commit_on_terminal(surveyor, tree, plan, answer)

    assert (ended, "type the number of topics" in question) == (code, True)


@pytest.mark.usefixtures("topics")
def test_without_a_terminal_nothing_is_deleted(surveyor: Surveyor, tree: KafkaTree) -> None:
    plan = deletion(surveyor.warehouse, tree, "payments")
    before = tree.dump()

    done = surveyor.commit(tree.hosts, plan.plan_id, "--apply")

    assert (done.exit_code, tree.dump()) == (ExitCode.REFUSED, before)
    (error,) = done.stderr.splitlines()
    assert error.startswith(f"surveyor: plan {plan.plan_id} deletes topics, and confirmation requires a terminal")
    assert (
        "give --yes to delete them: topic payments would be deleted; how many partitions, records and bytes is unknown"
        in error
    )


@pytest.mark.usefixtures("topics", "on_terminal")
def test_yes_asks_no_question(surveyor: Surveyor, tree: KafkaTree) -> None:
    plan = deletion(surveyor.warehouse, tree, "payments")
    dry = surveyor.commit(tree.hosts, plan.plan_id)
    done = surveyor.apply(tree.hosts, plan.plan_id)

    assert "  topic payments would be deleted; how many partitions, records and bytes is unknown\n" in dry.stdout
    assert done.exit_code == 0


def test_figures_from_the_tables(warehouse: Warehouse) -> None:
    cluster = Cluster(warehouse)
    cluster.brokers, cluster.topics = [broker(0, 10)], [topic("payments"), topic("orders")]
    cluster.partitions = {
        ("payments", 0): partition([0]),
        ("payments", 1): partition([0]),
        ("orders", 0): partition([0]),
    }
    log = {"broker_id": 0, "topic": "payments", "log_dir": "/a", "offset_lag": 0, "is_future": False, "taken_at": NOW}
    warehouse.replace("sizes", [{**log, "partition": number, "bytes": 500} for number in (0, 1)])
    plan = plan_record(kind="delete", snapshot_id=cluster.snapshot())
    rows = [(0, "payments"), (1, "orders")]
    common = {"plan_id": "5f", "kind": "delete_topic", "data": "{}"}
    warehouse.replace("operations", [{**common, "sequence": sequence, "topic": name} for sequence, name in rows])

    assert deletion_impact_of(warehouse, plan, {"orders": 3}) == [
        DeletionImpact(topic="payments", partitions=2, replicas=2, bytes=1000, sizes_at=NOW),
        DeletionImpact(topic="orders", partitions=1, replicas=None, bytes=None, sizes_at=None, records=3),
    ]
    assert deletion_impact_of(warehouse, replace(plan, kind="expand")) == []
