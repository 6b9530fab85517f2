"""AllocateProducerIds: each block is given once, also when brokers or controllers ask side by side."""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest
from kazoo.client import KazooClient

from jobs.adapters.zookeeper.cluster_state import PRODUCER_IDS
from jobs.adapters.zookeeper.connection import commit
from jobs.adapters.zookeeper.controllership import Controllership, take_over
from jobs.adapters.zookeeper.multi_operations import Create, add
from jobs.controller.broker_apis.producer_ids import ProducerIdBlock, allocate_block, next_block
from jobs.controller.controller import ResidentController
from jobs.controller.request_handler import RequestHandler
from jobs.core.errors import FencedError, RefusedError
from tests.jobs.controller.broker_apis.asking import AskingBrokers
from tests.jobs.support.controllers.resident import initialize
from tests.jobs.support.zookeeper.fenced_writes import OURS
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

STORED: Final = b'{"version":1,"broker":2,"block_start":"4000","block_end":"4999"}'
"""As Kafka 3.9.2 writes it."""


def test_the_first_block(tree: KafkaTree, control: Controllership) -> None:
    assert allocate_block(control, 1) == ProducerIdBlock(0, 1000)
    assert tree.client.get(PRODUCER_IDS)[0] == b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'


def test_a_znode_without_data_is_none(tree: KafkaTree, control: Controllership) -> None:
    """Brokers create it so."""
    multi = tree.client.transaction()
    add(multi, [Create(PRODUCER_IDS)])
    commit(multi)

    assert allocate_block(control, 1).start == 0


def test_the_block_after_the_stored_one(tree: KafkaTree, control: Controllership) -> None:
    tree.write(PRODUCER_IDS, STORED)

    assert [allocate_block(control, 1).start, allocate_block(control, 0).start] == [5000, 6000]


def test_blocks_are_given_once(tree: KafkaTree, control: Controllership) -> None:
    tree.write(PRODUCER_IDS, STORED)
    with ThreadPoolExecutor(4) as pool:
        blocks = [*pool.map(lambda broker: allocate_block(control, broker % 3).start, range(20))]

    assert sorted(blocks) == [5000 + 1000 * number for number in range(20)]


def test_a_controller_that_was_overtaken_gives_none(
    tree: KafkaTree, control: Controllership, client: KazooClient
) -> None:
    tree.write(PRODUCER_IDS, STORED)
    take_over(client, OURS, release_timeout=None)

    with pytest.raises(FencedError):
        allocate_block(control, 1)
    assert tree.client.get(PRODUCER_IDS)[0] == STORED


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"5", b'{"version":1,"broker":1,"block_start":"0","block_end":"x"}']
)
def test_what_cannot_be_decoded_is_no_start(data: bytes) -> None:
    with pytest.raises(RefusedError, match="could not be decoded"):
        next_block(data)


def test_ids_end() -> None:
    last = 2**63 - 1
    data = f'{{"version":1,"broker":1,"block_start":"0","block_end":"{last - 500}"}}'.encode()

    with pytest.raises(RefusedError, match="no producer ids are left"):
        next_block(data)


def test_brokers_are_answered(controller: ResidentController, asking: AskingBrokers) -> None:
    initialize(controller)

    answers = [asking.producer_ids(1), asking.producer_ids(2), asking.producer_ids(2, epoch=5)]
    assert [*answers, asking.producer_ids(7, epoch=5)] == [(0, 0, 1000), (0, 1000, 1000), (77, -1, 0), (102, -1, 0)]


def test_an_unreadable_block_is_an_error(
    tree: KafkaTree, controller: ResidentController, asking: AskingBrokers
) -> None:
    initialize(controller)
    tree.write(PRODUCER_IDS, b"?")

    assert asking.producer_ids(1) == (-1, -1, 0)


def test_only_the_controller_gives_blocks(
    controller: ResidentController, request_handler: RequestHandler, asking: AskingBrokers
) -> None:
    before = asking.producer_ids(1)
    initialize(controller)
    request_handler.close()

    assert [before, asking.producer_ids(1)] == [(41, -1, 0), (41, -1, 0)]


def test_a_broker_that_gets_none_is_logged_where_everything_is(
    controller: ResidentController, asking: AskingBrokers, client: KazooClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """At level info, which records of other loggers never reach."""
    initialize(controller)
    client.set("/controller_epoch", b"99")

    assert asking.producer_ids(1) == (41, -1, 0)
    assert "surveyor: broker 1 gets no producer ids now: another controller took over" in capsys.readouterr().err
