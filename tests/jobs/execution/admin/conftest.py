"""Kafka's controller, as a commit in admin mode finds it."""

import pytest

from tests.jobs.support.controllers.waiting_controller import MovingController, install
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree


@pytest.fixture
def controller(tree: KafkaTree, monkeypatch: pytest.MonkeyPatch) -> MovingController:
    """It moves what it is asked to, a step at a time, in the test's tree."""
    made = MovingController(tree)
    install(made, monkeypatch)
    return made
