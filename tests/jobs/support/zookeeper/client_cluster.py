"""A cluster that is read by a client which a test has."""

from collections.abc import Iterator
from contextlib import contextmanager

from kazoo.client import KazooClient

from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint


class ClientCluster(ZooKeeperCluster):
    def __init__(self, client: KazooClient) -> None:
        super().__init__(ZooKeeperEndpoint(""))
        self.client = client

    @contextmanager
    def connected(self) -> Iterator[KazooClient]:
        yield self.client
