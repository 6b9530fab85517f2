"""How far a plan of several waves has come, in our output and in that of kafka-reassign-partitions."""

import json

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from schemas.enums import PlanKind
from schemas.stored_plan import Plan
from schemas.znode_codecs import Assignment, encode_assignment
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.move_rows import reassignment
from tests.jobs.support.rows.plan_rows import store_plan
from tests.jobs.support.zookeeper.kafka_tree import TOPIC_ID, KafkaTree

T = "orders"

# replicas, adding, removing -> complete, in progress, not started, diverged; and the output of Kafka's tool
STANDING: list[tuple[list[int], list[int], list[int], tuple[int, int, int, int], str]] = [
    ([0, 1], [], [], (0, 0, 2, 0), "There is no active reassignment of partition orders-0, but replica set is 0,1"),
    ([2, 1, 0], [2], [0], (0, 1, 1, 0), "Reassignment of partition orders-0 is still in progress."),
    ([2, 1], [], [], (1, 0, 1, 0), "There is no active reassignment of partition orders-0, but replica set is 2,1"),
    ([2, 3, 1], [3], [1], (1, 1, 0, 0), "Reassignment of partition orders-0 is still in progress."),
    ([2, 3], [], [], (2, 0, 0, 0), "Reassignment of partition orders-0 is completed."),
    ([4, 1], [], [], (0, 0, 0, 2), "There is no active reassignment of partition orders-0, but replica set is 4,1"),
]


@pytest.fixture
def plan(tree: KafkaTree, warehouse: Warehouse) -> Plan:
    """A partition whose two replicas are replaced, one in each wave."""
    tree.add_topic(T, {0: [0, 1]})
    ways = [reassignment(tree, T, 0, [2, 1]), reassignment(tree, T, 0, [2, 3], wave=1, before=[2, 1])]
    return store_plan(warehouse, tree, ways, kind=PlanKind.REASSIGN.value)


@pytest.mark.parametrize(("replicas", "adding", "removing", "counts", "kafkas"), STANDING)
def test_each_wave_is_where_its_partition_is(  # noqa: PLR0913, PLR0917 - a table
    tree: KafkaTree,
    surveyor: Surveyor,
    plan: Plan,
    replicas: list[int],
    adding: list[int],
    removing: list[int],
    counts: tuple[int, int, int, int],
    kafkas: str,
) -> None:
    stands = Assignment({0: replicas}, {0: adding}, {0: removing}, TOPIC_ID)
    tree.write(f"/brokers/topics/{T}", encode_assignment(stands))
    command = ("verify", plan.plan_id, "--zookeeper", tree.hosts, "--measure", "0s")

    progress = json.loads(surveyor.run(*command, "--json").stdout)
    stdout = surveyor.run(*command, "--format", "kafka").stdout

    assert tuple(progress[name] for name in ("complete", "in_progress", "not_started", "diverged")) == counts
    assert stdout.startswith(f"Status of partition reassignment:\n{kafkas}")
