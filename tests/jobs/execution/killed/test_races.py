"""Races for the controllership: the loser ends with exit code 20, and has written nothing since.

Both sides meet right before they send a request that only one of them may succeed with, so chance decides each time
which one is first. They write different topics, whose versions no other process changes: only the check of the epoch
stops the loser. More races:

    RACES=300 .venv/bin/pytest -m torture tests/jobs/execution/killed
"""

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from jobs.adapters.embedded.servers import EmbeddedZooKeeper
from schemas.enums import Outcome, PlanStatus
from schemas.znode_codecs import encode_controller
from tests.jobs.execution.killed.commit_audit import CommitAudit
from tests.jobs.execution.killed.crash_process import TAKE_OVER, Meets, meet
from tests.jobs.execution.killed.crash_runner import (
    CrashRunner,
    Planned,
    crash_runner,
    create,
    dumped,
    elect,
    planned,
    with_id,
)
from tests.jobs.support.kafka.fake_brokers import FakeBrokers
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, in_parallel

pytestmark = pytest.mark.torture

RACES: Final = int(os.environ.get("RACES", "2"))
"""Number of races of two commits, and of races against a broker."""

A_MULTI: Final = 0.003
"""Maximum seconds that a multi takes."""

DONE, FENCED = 0, 20


@dataclass(frozen=True)
class Rendezvous:
    """Files with which the two sides of a race wait for each other."""

    folder: Path

    @classmethod
    def of(cls, folder: Path, number: int) -> "Rendezvous":
        made = folder / f"race {number}"
        made.mkdir()
        return cls(made)

    def between(self, own: str, other: str) -> tuple[str, str]:
        return str(self.folder / own), str(self.folder / other)

    def come(self, name: str) -> None:
        (self.folder / name).touch()

    def meet(self, own: str, other: str) -> None:
        meet(self.folder / own, self.folder / other)

    def await_other(self, name: str) -> None:
        meet(self.folder / "waiting", self.folder / name)


Contest = Callable[[Rendezvous], tuple[Meets, Meets]]


def at_the_take_over(at: Rendezvous) -> tuple[Meets, Meets]:
    """Both take over at the same time, then both write at the same time: the first to take over has lost by then."""
    at.come("one writes or ends")
    one = {TAKE_OVER: at.between("one takes over", "two takes over"), "multi 1": at.between("one", "two")}
    return one, {name: (other, own) for name, (own, other) in one.items()}


def at_the_first_write(at: Rendezvous) -> tuple[Meets, Meets]:
    """One's first write meets two's take-over and, unless that fenced it, its second write meets two's first."""
    one = {
        "multi 1": at.between("one writes or ends", "two takes over"),
        "multi 2": at.between("one goes on or ends", "two writes"),
    }
    two = {
        TAKE_OVER: at.between("two takes over", "one writes or ends"),
        "multi 1": at.between("two writes", "one goes on or ends"),
    }
    return one, two


CONTESTS: Final[tuple[Contest, ...]] = (at_the_take_over, at_the_first_write)


def since_the_last_take_over(tree: KafkaTree) -> set[str]:
    """Topics that were written since the last take-over, by ZooKeeper's transaction numbers."""
    dump = tree.dump()
    last = dump["/controller_epoch"][1].mzxid
    late = {path for path, (_, stat) in dump.items() if stat.mzxid > last and path != "/controller"}
    return {path.removeprefix("/brokers/topics/").removeprefix("/config/topics/").partition("/")[0] for path in late}


def not_done(cluster: Planned) -> set[str]:
    """Outcomes of its rows, except what was written by the process that was the controller then."""
    rows = cluster.warehouse.rows("commits", ("plan_id", "=", cluster.plan.plan_id))
    return {row["outcome"] for row in rows if row["topic"] is not None} - {Outcome.PENDING, Outcome.APPLIED}


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CrashRunner, CrashRunner]]:
    with crash_runner(tmp_path_factory.mktemp("one")) as one, crash_runner(tmp_path_factory.mktemp("two")) as two:
        yield one, two


@contextmanager
def two_plans(server: EmbeddedZooKeeper, brokers: FakeBrokers, folder: Path) -> Iterator[list[Planned]]:
    """Two plans of one cluster in one warehouse: leaders of a topic, and a new topic."""
    with planned(server, brokers, folder, elect) as cluster:
        yield [cluster, Planned(cluster.tree, cluster.warehouse, create(cluster.warehouse, cluster.tree))]


def run_both(
    contest: Contest, at: Rendezvous, pair: tuple[CrashRunner, CrashRunner], commits: Sequence[list[str]]
) -> list[int]:
    """Return the exit codes; two begins once one is the controller, if it is to fence one."""
    (one, two), (first, second) = pair, contest(at)

    def run_one() -> int:
        code = one.run(commits[0], meets=first)
        at.come("one writes or ends")
        at.come("one goes on or ends")
        return code

    def run_two() -> int:
        at.await_other("one writes or ends")
        return two.run(commits[1], meets=second)

    return in_parallel(run_one, run_two)


def test_of_two_commits_one_writes(
    pair: tuple[CrashRunner, CrashRunner],
    zookeeper_server: EmbeddedZooKeeper,
    fake_brokers: FakeBrokers,
    tmp_path: Path,
) -> None:
    """Two commits of different plans; a third commit finishes the loser's, and nothing is written twice."""
    one, two = pair
    ids = [with_id(tmp_path, controller_id) for controller_id in (2147483645, 2147483646)]
    with two_plans(zookeeper_server, fake_brokers, tmp_path) as plans:
        assert [one.run(plan.commit()) for plan in plans] == [DONE, DONE], one.output
        whole = dumped(plans[0].tree)

    for number in range(RACES):
        contest, at = CONTESTS[number % 2], Rendezvous.of(tmp_path, number)
        with two_plans(zookeeper_server, fake_brokers, tmp_path) as plans:
            random.shuffle(plans)
            audits = [CommitAudit.begin(plan) for plan in plans]
            codes = run_both(contest, at, pair, [plan.commit(*its) for plan, its in zip(plans, ids, strict=True)])
            report = f"race {number}, {contest.__name__}: {codes}\n{one.output}{two.output}"
            assert sorted(codes) == [DONE, FENCED], report
            winner, loser = (plans[codes.index(code)] for code in (DONE, FENCED))
            (tree, topics) = winner.tree, {change.topic for change in winner.plan.changes}
            observed = since_the_last_take_over(tree), [lie for audit in audits for lie in audit.untrue()]
            assert (*observed, not_done(winner)) == (topics, [], set()), report
            assert not_done(loser) <= {Outcome.FENCED, Outcome.SKIPPED}, report
            third = one.run(loser.commit())
            assert (third, {plan.status for plan in plans}) == (DONE, {PlanStatus.COMMITTED}), one.output
            assert dumped(tree) == whole, report


def become_controller(tree: KafkaTree) -> None:
    """Take over as a broker does: delete /controller, then create it and raise the epoch in one multi."""
    tree.client.delete("/controller")
    epoch, stat = tree.client.get("/controller_epoch")
    multi = tree.client.transaction()
    multi.create("/controller", encode_controller(1, 1_700_000_000_000), ephemeral=True)
    multi.set_data("/controller_epoch", str(int(epoch) + 1).encode(), stat.version)
    assert not [result for result in multi.commit() if isinstance(result, Exception)]


def run_concurrently_with_broker(at: Rendezvous, one: CrashRunner, cluster: Planned, apart: float) -> int:
    """The broker begins as the first multi is sent, and is the controller before the second is sent."""

    def broker() -> None:
        at.meet("broker", "commit writes")
        time.sleep(apart)
        become_controller(cluster.tree)
        at.come("broker is the controller")

    meets = {
        "multi 1": at.between("commit writes", "broker"),
        "multi 2": at.between("commit goes on", "broker is the controller"),
    }
    code, failed = in_parallel(lambda: one.run(cluster.commit(), meets=meets), broker)
    assert failed is None, failed
    return int(code)


def test_a_broker_takes_over(
    pair: tuple[CrashRunner, CrashRunner],
    zookeeper_server: EmbeddedZooKeeper,
    fake_brokers: FakeBrokers,
    tmp_path: Path,
) -> None:
    """The broker takes over just before the commit's first multi, or just after it; the next commit finishes."""
    one, _ = pair
    with planned(zookeeper_server, fake_brokers, tmp_path, create) as cluster:
        assert one.run(cluster.commit()) == DONE, one.output
        whole = dumped(cluster.tree)

    for number in range(RACES):
        at, apart = Rendezvous.of(tmp_path, number), random.uniform(0, A_MULTI)  # noqa: S311 - any will do
        with planned(zookeeper_server, fake_brokers, tmp_path, create) as cluster:
            audit = CommitAudit.begin(cluster)
            code = run_concurrently_with_broker(at, one, cluster, apart)
            report = f"race {number}, {apart:.4f} s: {code}\n{one.output}"
            assert (code, since_the_last_take_over(cluster.tree), audit.faults()) == (FENCED, set(), []), report
            assert not_done(cluster) <= {Outcome.FENCED, Outcome.SKIPPED}, report
            outcome = one.run(cluster.commit()), cluster.status, dumped(cluster.tree)
            assert outcome == (DONE, PlanStatus.COMMITTED, whole), one.output
