"""A small round on the existing cluster of a test module, cheap enough for every test run.

It has one ZooKeeper server instead of three, and only the link from the committer to ZooKeeper. Everything else, with
all checks, is as in the rounds.
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
"""Leaders move by two commits at the same time; both are killed, and so is a broker."""


class SmallTortureCluster(TortureCluster):
    """Runs inside its `with` block on a cluster of the caller; transactions before it are ignored."""

    listener = "PLAINTEXT"

    def __init__(self, cluster: EmbeddedCluster, warehouse: Warehouse, folder: Path) -> None:
        super().__init__(folder, keep=True)
        self.cluster = cluster
        self.brokers = cluster.brokers
        self.warehouse_folder = Path(warehouse.uri)
        self._before = max((transaction.zxid for transaction in self._written()), default=0)

    @property
    def hosts(self) -> str:
        return self.cluster.zookeeper_server.connect

    def history(self) -> list[Transaction]:
        return [transaction for transaction in self._written() if transaction.zxid > self._before]

    def _written(self) -> list[Transaction]:
        return transactions([self.cluster.zookeeper_server.folder / "data"])

    def _mount(self, _: ExitStack) -> None:
        """The warehouse is the caller's."""

    def _start_servers(self, stack: ExitStack) -> None:
        self.own_link = stack.enter_context(Link("committer to ZooKeeper", self.cluster.zookeeper_server.port))
