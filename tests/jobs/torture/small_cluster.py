"""A round in small, on a cluster that a module's tests have already: in every test run, at the price of a test.

One ZooKeeper server instead of three, and of the links the one from the committer to ZooKeeper alone; the rest is as in
the rounds, and checked as there.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.cluster import EmbeddedCluster
from tests.jobs.torture.links import Link
from tests.jobs.torture.rounds import Injection, RoundPlan
from tests.jobs.torture.steps import BATCH, Step
from tests.jobs.torture.torture_cluster import NEWEST, TortureCluster
from tests.jobs.torture.zookeeper_log import Transaction, transactions

SCRIPT: Final = RoundPlan(
    NEWEST,
    BATCH,
    (
        (
            Step("lead", choice=1, twice=True),
            (Injection("kill committer", 0, after=1.2, lasts=0.1), Injection("kill broker", 2, after=1.0, lasts=0.1)),
        ),
    ),
)
"""Leaders move by two commits at once; both are killed, and so is a broker."""


class SmallTortureCluster(TortureCluster):
    """Up inside its `with` block; the cluster is somebody else's, and what was written before is no concern of it."""

    listener = "PLAINTEXT"

    def __init__(self, cluster: EmbeddedCluster, lake: Warehouse, folder: Path) -> None:
        super().__init__(folder, keep=True)
        self.cluster = cluster
        self.brokers = cluster.brokers
        self.warehouse = Path(lake.warehouse)
        self._before = max((each.zxid for each in self._written()), default=0)

    @property
    def hosts(self) -> str:
        return self.cluster.zookeeper.connect

    def history(self) -> list[Transaction]:
        return [each for each in self._written() if each.zxid > self._before]

    def _written(self) -> list[Transaction]:
        return transactions([self.cluster.zookeeper.folder / "data"])

    def _start(self, stack: ExitStack) -> None:
        stack.callback(self._end_runs)
        self.own_link = stack.enter_context(Link("committer to ZooKeeper", self.cluster.zookeeper.port))
