"""Brokers that write their registration again, and what they say of their settings while a controller is in office."""

from jobs.cycle.control import Controller
from tests.jobs.support.in_office import settle, take_up
from tests.jobs.support.kafka_tree import KafkaTree, registration


def test_who_moves_to_other_endpoints_is_spoken_to_there(
    tree: KafkaTree, controller: Controller, said: list[str]
) -> None:
    """`updateBrokerInfo`: the same registration, written again."""
    tree.add_topic("orders", {0: [0, 1, 2]}, topic_id=None)
    take_up(controller)
    assert tree.brokers is not None
    before, there = len(tree.brokers[1].told), tree.brokers[11]
    tree.client.set("/brokers/ids/1", registration(there.port))
    settle(controller)
    tree.unregister(0)
    settle(controller)

    assert len(tree.brokers[1].told) == before
    assert there.leader_epochs == {("orders", 0): 6}
    alive = {
        live.id_: live.endpoints[0].port for live in tree.brokers[2].of("update_metadata")[-1].request.live_brokers
    }
    assert alive == {1: there.port, 2: tree.brokers[2].port}
    assert "  broker 1 has written its registration again" in said
