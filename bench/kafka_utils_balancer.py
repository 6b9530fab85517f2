"""Balances a cluster with kafka-utils (Yelp), in an environment that has it: JSON on stdin, JSON on stdout.

In: `balancer` (genetic or count), `racks` of brokers 0, 1, …, and `partitions` as [topic, partition, replicas, weight,
size]. Out: `replicas` in the order of `partitions`, and `seconds`. The number of moves is not limited. The genetic
balancer weighs bytes by `BYTES_WEIGHT`: with its default, 0.01, it copied half as many again, and with 2 it left loads
outside ±9 %.
"""

import json
import sys
import time
from argparse import Namespace
from types import SimpleNamespace

from kafka_utils.kafka_cluster_manager.cluster_info.cluster_topology import ClusterTopology
from kafka_utils.kafka_cluster_manager.cluster_info.genetic_balancer import GeneticBalancer
from kafka_utils.kafka_cluster_manager.cluster_info.partition_count_balancer import PartitionCountBalancer

BYTES_WEIGHT = 0.5


def main() -> None:
    task = json.load(sys.stdin)
    rows = {(str(topic), partition): row for topic, partition, *row in task["partitions"]}
    options = Namespace(brokers=True, leaders=True, max_partition_movements=len(rows), max_leader_changes=len(rows))
    balancer = PartitionCountBalancer
    if task["balancer"] == "genetic":
        balancer = GeneticBalancer
        options.max_movement_size = sum(len(replicas) * size for replicas, _, size in rows.values())
        options.balancer_args = [f"--movement-size-score-weight {BYTES_WEIGHT}"]
    started = time.perf_counter()
    topology = ClusterTopology(
        {name: replicas for name, (replicas, _, _) in rows.items()},
        {broker: {"rack": rack} for broker, rack in enumerate(task["racks"])},
        SimpleNamespace(get_weight=lambda name: rows[name][1], get_size=lambda name: rows[name][2]),
        lambda broker: broker.metadata["rack"],
    )
    balancer(topology, options).rebalance()
    seconds, assignment = time.perf_counter() - started, topology.assignment
    json.dump({"replicas": [assignment[name] for name in rows], "seconds": seconds}, sys.stdout)


if __name__ == "__main__":
    main()
