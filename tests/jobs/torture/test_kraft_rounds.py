"""Rounds in a KRaft cluster, as those of `test_rounds.py`: a quorum of three whose leader is killed among other faults.

    ROUNDS=40 .venv/bin/pytest -m torture tests/jobs/torture/test_kraft_rounds.py --randomly-seed=SEED

Each round is drawn from the seed and its number; ROUND=N ROUNDS=1 runs only that one. After a violation the
cluster is stopped, its folder is kept, and the next round begins in a new cluster.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pytest

from tests.jobs.torture.kraft_rounds import KRaftRoundPlan, draw, prepare, run_round
from tests.jobs.torture.kraft_torture_cluster import KRaftTortureCluster
from tests.jobs.torture.rounds import ROUNDS_PER_CLUSTER
from tests.jobs.torture.traffic import Traffic

pytestmark = [pytest.mark.torture, pytest.mark.brokers, pytest.mark.usefixtures("spark")]

ROUNDS: Final = int(os.environ["ROUNDS"])
FIRST: Final = int(os.environ.get("ROUND", "0"))
FEWEST_ROLLBACKS: Final = 3
"""Rounds with a rollback of which one must move replicas; in a single one a fault may leave nothing to undo."""


@contextmanager
def cluster() -> Iterator[tuple[KRaftTortureCluster, Traffic]]:
    with KRaftTortureCluster() as made:
        prepare(made)
        with Traffic(made.bootstrap) as traffic:
            yield made, traffic


def test_rounds(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    seed = request.config.getoption("randomly_seed")
    failures: list[tuple[int, KRaftRoundPlan, list[str], str]] = []
    moved_back = to_move_back = 0
    with ExitStack() as stack:
        for number in range(FIRST, FIRST + ROUNDS):
            drawn = draw(seed, number)
            if number in {FIRST, number // ROUNDS_PER_CLUSTER * ROUNDS_PER_CLUSTER} or (
                failures and failures[-1][0] == number - 1
            ):
                stack.close()
                made, traffic = stack.enter_context(cluster())
            result = run_round(made, traffic, drawn)
            moved_back += result.moved_back
            to_move_back += drawn.rolls_back
            with capsys.disabled():
                sys.stderr.write(
                    f"\nseed {seed} round {number} {drawn}\n  {result.summary}\n  {result.wrong or 'all is well'}\n"
                )
            if result.wrong:
                made.keep = True
                failures.append((number, drawn, result.wrong, str(made.folder)))
    assert failures == [], f"seed {seed}"
    assert moved_back or to_move_back < FEWEST_ROLLBACKS, f"seed {seed}: {to_move_back} rounds, and no rollback moved"
