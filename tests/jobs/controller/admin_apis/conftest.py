"""A resident controller that answers people's tools, without a server: requests are handed over as entities."""

from collections.abc import Iterator

import pytest

from jobs.controller.controller import ResidentController
from jobs.controller.request_handler import RequestHandler
from schemas.znode_codecs import Endpoint
from tests.jobs.controller.admin_apis.clients import AdminClient
from tests.jobs.support.controllers.resident import initialize
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.planner.frames import broker_config

SETTINGS = {
    "authorizer.class.name": "",
    "inter.broker.protocol.version": "3.9-IV0",
    "num.partitions": "3",
    "default.replication.factor": "2",
}


@pytest.fixture
def admin(tree: KafkaTree, controller: ResidentController) -> Iterator[AdminClient]:
    """A client of a controller that knows `orders`, with partitions on brokers 0, 1 and 2."""
    handler = RequestHandler()
    controller.request_handler = handler
    controller.endpoints.served = [Endpoint(None, "PLAINTEXT", "127.0.0.1", 9999)]
    rows = [broker_config(broker, name, value) for broker in range(3) for name, value in SETTINGS.items()]
    controller.engine.set_broker_configs(rows)
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2]})
    initialize(controller)
    yield AdminClient(controller, handler)
    handler.stop()
