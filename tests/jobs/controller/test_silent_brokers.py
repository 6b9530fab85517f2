"""Brokers that are registered and do not answer are reported once, and once more when they answer."""

import pytest

from jobs.controller.broker_requests.responses import SilentBrokers
from jobs.controller.controller import ResidentController
from tests.jobs.support.controllers.recorded_log import RecordedLog
from tests.jobs.support.controllers.resident import initialize
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree


@pytest.mark.unit
def test_each_silence_is_reported_once() -> None:
    log = RecordedLog()
    brokers = SilentBrokers(log)

    for ages in (
        {1: 3.0, 2: 0.0},
        {1: 29.9, 2: 0.0},
        {1: 30.4, 2: 0.0},
        {1: 40.0, 2: 31.0},
        {1: 0.0},
        {1: 32.0, 2: 0.0},
    ):
        brokers.report(ages)

    silent = "surveyor: warning: broker {} is registered and has not responded for {} s"
    assert [line.partition(": requests")[0] for line in log] == [
        silent.format(1, 30),
        silent.format(2, 31),
        "  broker 1 responds again",
        silent.format(1, 32),
    ]
    assert len(log.warnings) == 3


def test_a_broker_that_hangs_is_reported(tree: KafkaTree, controller: ResidentController, log: RecordedLog) -> None:
    controller.silent_brokers.seconds = 0.3
    initialize(controller)
    assert tree.brokers is not None
    tree.brokers[1].stop()
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)

    def is_reported() -> bool:
        controller.cycle()
        return any("broker 1 is registered and has not responded" in line for line in log.warnings)

    try:
        assert eventually(is_reported)
        assert len(log.warnings) == 1
    finally:
        tree.brokers[1].go_on()
