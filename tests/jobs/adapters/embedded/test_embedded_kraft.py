"""Real KRaft nodes: one alone, a quorum of three that survives its leader, and a folder that is formatted once."""

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka.protocol.admin import DescribeQuorumRequest

from jobs.adapters.brokers.fanout import ask_brokers
from jobs.adapters.embedded.kraft import CLUSTER_ID, EmbeddedKRaftCluster, EmbeddedKRaftNode
from schemas.rows import Broker
from schemas.znode_codecs import Endpoint
from tests.jobs.support.kafka.real_cluster import create_topics, eventually

HEAP = "320m"


def _quorum_leader(node: EmbeddedKRaftNode) -> int:
    host, _, port = node.address.partition(":")
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", host, int(port))
    broker = Broker(broker_id=node.node_id, broker_epoch=0, endpoints=[endpoint], understood=True)
    request = DescribeQuorumRequest(topics=[("__cluster_metadata", [(0,)])])
    answers, _ = ask_brokers([broker], {}, 20.0, lambda ask, _: ask(request))
    leaders = [answer.topics[0].partitions[0].leader_id for answer in answers.values()]
    return next(iter(leaders), -1)


def test_a_node_alone_keeps_its_topics_over_a_restart() -> None:
    with EmbeddedKRaftCluster(1, heap=HEAP) as cluster:
        node = cluster.nodes[1]
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        create_topics(admin, NewTopic("orders", 2, 1))
        pid = node.pid
        node.restart()
        assert node.pid != pid
        metadata = admin.list_topics(timeout=90)
        assert metadata.cluster_id == CLUSTER_ID
        assert len(metadata.topics["orders"].partitions) == 2
    assert not node.is_running()
    assert not cluster.folder.exists()


def test_a_quorum_elects_another_leader() -> None:
    with EmbeddedKRaftCluster(3, heap=HEAP) as cluster:
        leader = _quorum_leader(cluster.nodes[1])
        cluster.nodes[leader].kill()
        other = next(node for node in cluster.nodes.values() if node.node_id != leader)
        assert eventually(lambda: _quorum_leader(other) not in {leader, -1})
