"""Connections to real brokers that stay open while the credentials expire by which they were made."""

import time
from collections.abc import Callable
from pathlib import Path

from jobs.adapters.brokers.admin_client import bootstrap, connected_admin, read_properties
from jobs.adapters.brokers.channel_manager import ChannelManager
from jobs.adapters.brokers.control_encoding import ControlBatch
from jobs.adapters.brokers.delivery import deliver
from jobs.adapters.brokers.listeners import Listener
from jobs.adapters.brokers.responses import BrokerResponses
from jobs.adapters.zookeeper.cluster_state import read_cluster
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree


def accepted_before_and_after(
    kafka: KafkaTree, config: Path, listener_name: str, expire: Callable[[], None]
) -> list[list[int]]:
    """Return which brokers accept control requests before and after `expire`, over connections made before it.

    The Admin API must answer both times.
    """
    state = read_cluster(kafka.client)
    settings = read_properties(config)
    batch = ControlBatch(state.controller.broker_id, state.epoch, state.brokers, ())
    listener = Listener.of(config, listener_name)
    with (
        ChannelManager("test", listener=listener) as channels,
        connected_admin(bootstrap(state.brokers, settings), settings, state.controller.broker_id) as admin,
    ):
        answers = [deliver(channels, batch, time.monotonic() + 60)]
        assert admin.reassignments() == {}
        expire()
        answers.append(deliver(channels, batch, time.monotonic() + 60))
        assert admin.reassignments() == {}
    return [BrokerResponses.of(answer).accepted for answer in answers]
