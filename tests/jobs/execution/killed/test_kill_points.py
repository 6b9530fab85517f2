"""Commits killed at any point: the next one finishes the work, as if nothing had happened, and nothing is done
twice.

Every point of every kind of change, about a thousand commits:

    KILL_POINTS=all .venv/bin/pytest -m torture tests/jobs/execution/killed

Without it a few random points of each kind.
"""

from pathlib import Path
from typing import Any, Final

import pytest

from jobs.adapters.embedded.servers import EmbeddedZooKeeper
from schemas.enums import PlanStatus
from tests.jobs.execution.killed.commit_audit import CommitAudit
from tests.jobs.execution.killed.crash_runner import (
    KILLED,
    KINDS,
    CrashRunner,
    dumped,
    planned,
    sampled_points,
    with_id,
)
from tests.jobs.support.kafka.fake_brokers import FakeBrokers

pytestmark = pytest.mark.torture

SAMPLED_POINTS: Final = 1
"""Points of each kind in every test run, chosen at random."""


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_any_point_the_next_commit_finishes(
    kind: str, runner: CrashRunner, zookeeper_server: EmbeddedZooKeeper, fake_brokers: FakeBrokers, tmp_path: Path
) -> None:
    with planned(zookeeper_server, fake_brokers, tmp_path, KINDS[kind]) as cluster:
        audit = CommitAudit.begin(cluster)
        done = runner.run(cluster.commit()), [*audit.faults(), *audit.unfinished_rows()], cluster.status
        assert done == (0, [], PlanStatus.COMMITTED), runner.output
        whole, every = dumped(cluster.tree), range(1, len(runner.points) + 1)

    wrong: dict[str, Any] = {}
    for die_at in sampled_points(every, SAMPLED_POINTS):
        with planned(zookeeper_server, fake_brokers, tmp_path, KINDS[kind]) as cluster:
            audit = CommitAudit.begin(cluster)
            died = runner.run(cluster.commit(), die_at)
            at, lies = f"killed at point {die_at} of {len(every)}: {runner.points[-1]}", audit.faults()
            again = runner.run(cluster.commit(*with_id(tmp_path, 2147483646)))
            lies += [*audit.faults(), *audit.unfinished_rows()]
            outcome = (died, lies, again, cluster.status, dumped(cluster.tree))
        if outcome != (KILLED, [], 0, PlanStatus.COMMITTED, whole):
            wrong[at] = outcome, runner.output
    assert wrong == {}
