"""The live state of a tree as commands see it."""

from jobs.adapters.clusters.zookeeper import ZooKeeperSource
from jobs.adapters.zookeeper.connection import ZooKeeperSession
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.snapshots.cluster_view import ClusterView, view_now


def live_view(endpoint: ZooKeeperEndpoint) -> ClusterView:
    with ZooKeeperSession(endpoint) as session:
        return view_now(ZooKeeperSource(session))
