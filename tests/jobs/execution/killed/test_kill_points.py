"""Commits that die at any point: the next one finishes the work, as if nothing had happened, and nothing is done twice.

Every point of every kind of change, some thousand commits:

    KILL_POINTS=all .venv/bin/pytest -m torture tests/jobs/execution/killed

Without it a few points of each kind, others in each run.
"""

from pathlib import Path
from typing import Any, Final

import pytest

from jobs.adapters.embedded.servers import EmbeddedZooKeeper
from schemas.enums import PlanStatus
from tests.jobs.execution.killed.lives import KILLED, KINDS, Dying, dumped, planned, tried, with_id
from tests.jobs.execution.killed.truth import Watch
from tests.jobs.support.kafka.fake_brokers import FakeBrokers

pytestmark = pytest.mark.torture

FEW: Final = 1
"""Points of each kind that are part of every test run, others each time."""


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_any_point_the_next_commit_finishes(
    kind: str, mortal: Dying, zookeeper_server: EmbeddedZooKeeper, fake_brokers: FakeBrokers, tmp_path: Path
) -> None:
    with planned(zookeeper_server, fake_brokers, tmp_path, KINDS[kind]) as here:
        watch = Watch.begin(here)
        done = mortal.run(here.commit()), [*watch.lies(), *watch.open_ends()], here.status
        assert done == (0, [], PlanStatus.COMMITTED), mortal.output
        whole, every = dumped(here.tree), range(1, len(mortal.points) + 1)

    wrong: dict[str, Any] = {}
    for die_at in tried(every, FEW):
        with planned(zookeeper_server, fake_brokers, tmp_path, KINDS[kind]) as here:
            watch = Watch.begin(here)
            died = mortal.run(here.commit(), die_at)
            at, lies = f"killed at point {die_at} of {len(every)}: {mortal.points[-1]}", watch.lies()
            again = mortal.run(here.commit(*with_id(tmp_path, 2147483646)))
            lies += [*watch.lies(), *watch.open_ends()]
            outcome = (died, lies, again, here.status, dumped(here.tree))
        if outcome != (KILLED, [], 0, PlanStatus.COMMITTED, whole):
            wrong[at] = outcome, mortal.output
    assert wrong == {}
