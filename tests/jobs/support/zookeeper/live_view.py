"""The live state of a tree as commands see it."""

from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.snapshots.cluster_view import ClusterView, view_now


def live_view(endpoint: ZooKeeperEndpoint) -> ClusterView:
    with ZooKeeperCluster(endpoint) as cluster:
        return view_now(cluster)
