"""Rounds in the manner of Jepsen: a cluster with producers and consumers, changes by Surveyor, and random faults.

    ROUNDS=40 .venv/bin/pytest -m torture tests/jobs/torture --randomly-seed=SEED

Each round is drawn from the seed and its number; ROUND=N ROUNDS=1 runs only that one. After a violation the
cluster is stopped, its folder is kept, and the next round begins in a new cluster.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pytest
from kazoo.client import KazooClient

from jobs.adapters.zookeeper.connection import connected
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from tests.jobs.torture.rounds import ROUNDS_PER_CLUSTER, RoundPlan, draw, prepare, run_round
from tests.jobs.torture.torture_cluster import TortureCluster
from tests.jobs.torture.traffic import Traffic

pytestmark = [pytest.mark.torture, pytest.mark.brokers, pytest.mark.usefixtures("spark")]

ROUNDS: Final = int(os.environ["ROUNDS"])
FIRST: Final = int(os.environ.get("ROUND", "0"))


@contextmanager
def cluster(protocol: str) -> Iterator[tuple[TortureCluster, KazooClient, Traffic]]:
    with TortureCluster(protocol=protocol) as made, connected(ZooKeeperEndpoint(made.hosts)) as client:
        prepare(made, client)
        with Traffic(made.bootstrap) as traffic:
            yield made, client, traffic


def test_rounds(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    seed = request.config.getoption("randomly_seed")
    failures: list[tuple[int, RoundPlan, list[str], str]] = []
    with ExitStack() as stack:
        for number in range(FIRST, FIRST + ROUNDS):
            drawn = draw(seed, number)
            if number in {FIRST, number // ROUNDS_PER_CLUSTER * ROUNDS_PER_CLUSTER} or (
                failures and failures[-1][0] == number - 1
            ):
                stack.close()
                made, client, traffic = stack.enter_context(cluster(drawn.protocol))
            wrong, summary = run_round(made, client, traffic, drawn)
            with capsys.disabled():
                sys.stderr.write(f"\nseed {seed} round {number} {drawn}\n  {summary}\n  {wrong or 'all is well'}\n")
            if wrong:
                made.keep = True
                failures.append((number, drawn, wrong, str(made.folder)))
    assert failures == [], f"seed {seed}"
