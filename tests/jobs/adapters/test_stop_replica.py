"""StopReplica in each version we speak: which partitions, at which leader epoch, and that nothing is deleted."""

import importlib
import io
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from jobs.adapters.control_messages import Announcement, Row, stop_replica

BROKER = {"broker_id": 1, "broker_epoch": 33, "endpoints": []}
STATES: list[Row] = [
    {"topic": topic, "topic_id": None, "partition": partition, "leader_epoch": 6}
    for topic, partition in (("b", 0), ("a", 1), ("a", 0))
]


def sent(version: int) -> Any:  # noqa: ANN401 - kio's classes differ by version
    """The request as a broker reads it."""
    module = importlib.import_module(f"kio.schema.stop_replica.v{version}.request")
    request = stop_replica(module, Announcement(7, 8, [BROKER], STATES), BROKER, STATES)
    frame = io.BytesIO()
    entity_writer(type(request))(frame, request)
    read, _ = entity_reader(type(request))(frame.getvalue(), 0)
    assert (read.controller_id, read.controller_epoch, read.broker_epoch) == (7, 8, 33)
    return read


@pytest.mark.parametrize("version", [3, 4])
def test_partitions_with_their_epochs(version: int) -> None:
    found = [
        (topic.topic_name, state.partition_index, state.leader_epoch, state.delete_partition)
        for topic in sent(version).topic_states
        for state in topic.partition_states
    ]
    assert found == [("a", 0, 6, False), ("a", 1, 6, False), ("b", 0, 6, False)]


def test_partitions_by_name_before_that() -> None:
    request = sent(2)
    found = [(topic.name, list(topic.partition_indexes)) for topic in request.topics]
    assert (found, request.delete_partitions) == ([("a", [0, 1]), ("b", [0])], False)
