"""Faults of a KRaft cluster: SIGKILL, SIGTERM and SIGSTOP of nodes and of the leader of the quorum, links to it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from jobs.adapters.embedded.kraft import EmbeddedKRaftNode
from tests.jobs.torture.faults import AT_ANY_COMMITTERS, Fault, of_link, pids_of, stopped
from tests.jobs.torture.kraft_torture_cluster import NODES, KRaftTortureCluster

_START_SECONDS: Final = 120
_SHUTDOWN_SECONDS: Final = 60


@contextmanager
def _restarted(node: EmbeddedKRaftNode) -> Iterator[None]:
    """The node is down for the block."""
    yield
    node.start()
    node.wait_ready(_START_SECONDS)


def killed_node(cluster: KRaftTortureCluster, target: int) -> AbstractContextManager[None]:
    node = cluster.nodes[NODES[target]]
    node.kill()
    return _restarted(node)


def killed_leader(cluster: KRaftTortureCluster, _: int) -> AbstractContextManager[None]:
    node = cluster.nodes[cluster.quorum_leader()]
    node.kill()
    return _restarted(node)


def shut_down_node(cluster: KRaftTortureCluster, target: int) -> AbstractContextManager[None]:
    """SIGTERM: the broker asks the controller to move its leaders away; SIGKILL if it has not ended by then."""
    node = cluster.nodes[NODES[target]]
    node.stop(_SHUTDOWN_SECONDS)
    return _restarted(node)


AT_NODES: Final[dict[str, Fault[KRaftTortureCluster]]] = {
    "kill node": killed_node,
    "kill quorum leader": killed_leader,
    "shut down node": shut_down_node,
    "stop node": lambda cluster, target: stopped(pids_of(cluster.nodes[NODES[target]])),
    "stop quorum leader": lambda cluster, _: stopped(pids_of(cluster.nodes[cluster.quorum_leader()])),
    **of_link("nodes", "quorum leader", lambda cluster, _: cluster.to_controller[cluster.quorum_leader()]),
}
"""One at a time, so that the quorum and every partition of three replicas keep two."""

AT_KRAFT_COMMITTERS: Final[dict[str, Fault[KRaftTortureCluster]]] = {**AT_ANY_COMMITTERS}

BLUR_THE_LEASE: Final = frozenset({"set clock", "stop committer", "hold committer from broker"})
"""Faults after which a request may arrive once its lease is over: it was on its way, or clocks differ."""
