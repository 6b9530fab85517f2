"""The connection to ZooKeeper is cut at a given byte of a multi, or of its answer: each row is written once, and
known.

A few bytes in every run; all of them with KILL_POINTS=all.
"""

import os
from collections.abc import Iterator
from itertools import chain, count
from typing import Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.execution.batch.fenced_writer import FencedWriter
from schemas.enums import Outcome
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.jobs.support.zookeeper.zookeeper_proxy import MULTI, Loss, ZooKeeperProxy

ALL: Final = os.environ.get("KILL_POINTS") == "all"


def positions(loss_of: int) -> Iterator[int]:
    """The bytes after which to cut: the frame's length, the xid, the op code, a random one, and the last but one."""
    return iter(range(loss_of) if ALL else (1, 4, 8, 12, loss_of // 2, loss_of - 1))


@pytest.mark.parametrize("deliver", [False, True], ids=["the request", "the answer"])
def test_cut_at_a_byte(
    tree: KafkaTree,
    warehouse: Warehouse,
    proxied: Controllership,
    proxy: ZooKeeperProxy,
    deliver: bool,  # noqa: FBT001 - a parameter of pytest's
) -> None:
    """Half a request has no effect, and half an answer is read back; a cut before the first byte counts the bytes."""
    tree.add_topic("t", {0: [0, 1, 2], 1: [0, 1, 2]})
    leaders = count(1)

    def cut(passed: int) -> int:
        version, leader = tree.versions("t")[0], next(leaders) % 2
        plan = store_plan(warehouse, tree, [election(tree, "t", partition, leader=leader) for partition in (0, 1)])
        loss = proxy.lose(Loss(MULTI, deliver=deliver, passed=passed))

        outcomes = list(chain.from_iterable(FencedWriter(proxied, plan, max_hold=3600).write(plan.changes)))

        assert loss.happened.is_set()
        assert [(outcome.outcome, outcome.message) for outcome in outcomes] == [
            (Outcome.APPLIED, "found applied" if deliver else "written")
        ] * 2, passed
        assert tree.versions("t") == {0: version + 1, 1: version + 1}, passed
        assert {tree.state("t", partition).leader for partition in (0, 1)} == {leader}, passed
        return loss.size

    for passed in positions(cut(0)):
        cut(passed)
