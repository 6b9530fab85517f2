"""A resident controller that answers brokers' requests, without a server: requests are handed over as entities."""

from collections.abc import Iterator

import pytest

from jobs.controller.controller import ResidentController
from jobs.controller.request_handler import RequestHandler
from schemas.znode_codecs import Endpoint
from tests.jobs.controller.broker_apis.asking import AskingBrokers
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.planner.frames import broker_config


@pytest.fixture
def request_handler(controller: ResidentController) -> Iterator[RequestHandler]:
    """The handler of a server; the controller is announced at port 9999."""
    handler = RequestHandler()
    controller.request_handler = handler
    controller.endpoints.served = [Endpoint(None, "PLAINTEXT", "127.0.0.1", 9999)]
    controller.engine.set_broker_configs([broker_config(0, "inter.broker.listener.name", None)])
    yield handler
    handler.stop()


@pytest.fixture
def asking(tree: KafkaTree, request_handler: RequestHandler) -> AskingBrokers:
    return AskingBrokers(tree, request_handler)
