"""Live rows of brokers that no ZooKeeper is read for."""

from jobs.core.addresses import LOOPBACK
from schemas.rows import Broker
from schemas.znode_codecs import Endpoint


def broker_at(
    port: int, broker_id: int, protocol: str = "PLAINTEXT", *, epoch: int = 1, understood: bool = True
) -> Broker:
    """Return a broker with one endpoint, whose listener has the name of its protocol."""
    endpoints = [Endpoint(protocol, protocol, LOOPBACK, port)]
    return Broker(broker_id=broker_id, broker_epoch=epoch, endpoints=endpoints, understood=understood)


def broker_without_endpoints(broker_id: int, epoch: int = 1) -> Broker:
    """Return a broker that need not be connected to."""
    return Broker(broker_id=broker_id, broker_epoch=epoch, endpoints=[], understood=True)
