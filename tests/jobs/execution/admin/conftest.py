"""A fake of Kafka's controller for commits in admin mode."""

import pytest

from tests.jobs.support.controllers.waiting_controller import MovingController, install
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree


@pytest.fixture
def controller(tree: KafkaTree, monkeypatch: pytest.MonkeyPatch) -> MovingController:
    """It carries out requested reassignments one step at a time in the test's tree."""
    made = MovingController(tree)
    install(made, monkeypatch)
    return made
