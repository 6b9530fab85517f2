"""The choice of a sink by what a cluster's settings name."""

from pathlib import Path

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.sinks.interface import Sink
from jobs.adapters.sinks.kraft import KRaftSink
from jobs.adapters.sinks.zookeeper import ZooKeeperSink
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint


def sink_of(address: ZooKeeperEndpoint | str, command_config: Path | None, warehouse: Warehouse) -> Sink:
    """Return the sink at an address: a ZooKeeper endpoint, or HOST:PORT[,...] of brokers of a KRaft cluster."""
    if isinstance(address, ZooKeeperEndpoint):
        return ZooKeeperSink(address)
    return KRaftSink(address, warehouse, command_config)
