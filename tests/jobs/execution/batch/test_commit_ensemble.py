"""A commit while the ZooKeeper ensemble loses its leader: it continues or stops cleanly, and the next one finishes."""

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import TransactionRequest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.connection import await_result
from schemas.enums import PlanStatus
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.commands.paces import SMALL_BATCHES
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.ensemble import Ensemble
from tests.jobs.support.zookeeper.fenced_writes import Multis, is_fenced
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, new_chroot

T = "t"
PARTITIONS = range(4)
DONE, ERROR = 0, 1


@pytest.fixture
def zookeeper_hosts(ensemble: Ensemble) -> str:
    return new_chroot(ensemble.connect)


def at_multi(multis: Multis, nth: int, then: Callable[[], object]) -> None:
    """Call a function after the nth multi of changes is sent, before its answer is read."""
    sent: list[TransactionRequest] = []

    def commit_and(multi: TransactionRequest) -> Any:  # noqa: ANN401 - kazoo's
        pending = multi.commit_async()
        if is_fenced(multi):
            sent.append(multi)
        if len(sent) == nth:
            then()
        return await_result(pending)

    multis.commit = commit_and


@pytest.mark.parametrize("pace", [SMALL_BATCHES])
def test_the_leader_dies_while_a_multi_is_under_way(
    ensemble: Ensemble, tree: KafkaTree, warehouse: Warehouse, surveyor: Surveyor, multis: Multis
) -> None:
    """The outcome of the multi is unknown: it is read back from the next leader, and no state is written twice."""
    tree.add_topic(T, {partition: [0, 1, 2] for partition in PARTITIONS})
    plan = store_plan(warehouse, tree, [election(tree, T, partition, leader=1) for partition in PARTITIONS]).plan_id
    leader = ensemble.leader()
    at_multi(multis, 3, leader.kill)

    first = surveyor.apply(tree.hosts, plan)
    leader.restart()
    ensemble.leader()
    assert eventually(lambda: tree.client.connected)
    applied = {partition for partition, outcome in surveyor.outcomes(plan).items() if outcome == "applied"}
    written = {partition for partition in PARTITIONS if tree.version(T, partition)}
    again = surveyor.apply(tree.hosts, plan)

    assert first.exit_code in {DONE, ERROR}, first.stderr
    assert applied <= written
    assert (again.exit_code, surveyor.status(plan)) == (DONE, PlanStatus.COMMITTED), again.stderr
    states = [(tree.state(T, partition).leader, tree.version(T, partition)) for partition in PARTITIONS]
    assert states == [(1, 1)] * len(PARTITIONS)
