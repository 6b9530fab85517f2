"""The life of a cluster of stock brokers, at Kafka's default protocol, whose only controller is `surveyor control`.

A producer with acks=all and a transactional one write from the first act to the last, and a consumer reads. What a
leader wants, AlterPartition, AllocateProducerIds and ControlledShutdown, it asks the controller for.
"""

from pathlib import Path

from jobs.adapters.embedded.cluster import EmbeddedCluster
from tests.jobs.stories.control_acts import (
    a_broker_gets_another_listener,
    a_broker_is_drained_and_comes_back,
    a_disk_is_lost,
    a_state_is_illegible_for_a_while,
    all_kinds_of_changes_are_recorded,
    brokers_fail_and_replicas_move,
    every_broker_knows_the_isrs,
    it_is_killed_and_the_next_one_goes_on,
    it_is_stopped_longer_than_its_session,
    leaders_are_balanced_when_that_is_due,
    records_flow,
)
from tests.jobs.support.kafka.controlled_cluster import ControlledCluster
from tests.jobs.support.kafka.real_cluster import kafka_tree

BALANCED = {
    # the first check is due soon after a take-over, the next after the story
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "3600",
}


def test_the_life_of_a_stock_cluster(tmp_path: Path) -> None:
    with EmbeddedCluster(4, overrides=BALANCED) as cluster, kafka_tree(cluster) as kafka:
        controlled = ControlledCluster(cluster, kafka, tmp_path, listens=True)
        with records_flow(controlled):
            brokers_fail_and_replicas_move(controlled)
            a_state_is_illegible_for_a_while(controlled)
            a_broker_gets_another_listener(controlled, 1)
            a_disk_is_lost(controlled)
            every_broker_knows_the_isrs(controlled)
            a_broker_is_drained_and_comes_back(controlled)
            with it_is_killed_and_the_next_one_goes_on(controlled, 3):
                leaders_are_balanced_when_that_is_due(controlled, 1)
                it_is_stopped_longer_than_its_session(controlled, 2)

    all_kinds_of_changes_are_recorded(controlled)
