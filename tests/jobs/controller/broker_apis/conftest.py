"""A resident controller that answers brokers' requests, without a server: requests are handed over as entities."""

from collections.abc import Iterator

import pytest

from jobs.controller.broker_apis.controller_apis import ControllerApis
from jobs.controller.controller import ResidentController
from schemas.znode_codecs import Endpoint
from tests.jobs.controller.broker_apis.asking import AskingBrokers
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.planner.frames import broker_config


@pytest.fixture
def apis(controller: ResidentController) -> Iterator[ControllerApis]:
    """The handler of a server; the controller is announced at port 9999."""
    handler = ControllerApis()
    controller.apis = handler
    controller.endpoints.served = [Endpoint(None, "PLAINTEXT", "127.0.0.1", 9999)]
    controller.engine.set_broker_configs([broker_config(0, "inter.broker.listener.name", None)])
    yield handler
    handler.stop()


@pytest.fixture
def asking(tree: KafkaTree, apis: ControllerApis) -> AskingBrokers:
    return AskingBrokers(tree, apis)
