"""The choice of a metadata source by what a cluster's settings name."""

from pathlib import Path

from jobs.adapters.sources.interface import ClusterSource
from jobs.adapters.sources.kraft import KRaftSource
from jobs.adapters.sources.zookeeper import ZooKeeperSource
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint


def source_of(address: ZooKeeperEndpoint | str, command_config: Path | None) -> ClusterSource:
    """Return the source at an address: a ZooKeeper endpoint, or HOST:PORT[,...] of brokers of a KRaft cluster."""
    if isinstance(address, ZooKeeperEndpoint):
        return ZooKeeperSource(address)
    return KRaftSource(address, command_config)
