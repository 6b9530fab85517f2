"""Queues to brokers: in order, put together while a broker is busy, sent until answered, dropped with a broker."""

import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from jobs.adapters.brokers.channel_manager import ChannelManager, merged
from jobs.adapters.brokers.connection import RETRY_BACKOFF_SECONDS, BrokerConnection
from jobs.adapters.brokers.control_encoding import ControlBatch
from jobs.adapters.brokers.responses import BrokerResponse
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice
from schemas.response_codes import NOT_SENT
from tests.jobs.support.kafka.fake_brokers import FakeBrokers
from tests.jobs.support.kafka.real_cluster import eventually

EPOCH = 3


def notice(api: str = LEADER_AND_ISR, partition: int = 0, brokers: tuple[int, ...] = (1,), **values: Any) -> Notice:  # noqa: ANN401
    given: dict[str, Any] = {
        "topic": "t",
        "topic_id": None,
        "delete_partition": False,
        "leader": 1,
        "leader_epoch": 1,
        "isr": [1],
        "replicas": [1, 2],
        "adding_replicas": [],
        "removing_replicas": [],
        "is_new": False,
        "leader_recovery_state": 0,
        "state_version": 1,
    }
    return Notice(api=api, partition=partition, brokers=brokers, **given | values)


@pytest.fixture
def brokers() -> Iterator[FakeBrokers]:
    with FakeBrokers() as some:
        yield some


@pytest.fixture
def heard() -> SimpleQueue[BrokerResponse]:
    return SimpleQueue()


@pytest.fixture
def queues(heard: SimpleQueue[BrokerResponse]) -> Iterator[ChannelManager]:
    some = ChannelManager("9", heard.put)
    yield some
    some.stop()


def announced(
    brokers: FakeBrokers, notices: list[Notice], ids: tuple[int, ...] = (1, 2), epoch: int = 7
) -> ControlBatch:
    rows = [
        {
            "broker_id": broker,
            "broker_epoch": epoch,
            "rack": None,
            "endpoints": [
                {
                    "listener": "PLAINTEXT",
                    "security_protocol": "PLAINTEXT",
                    "host": "127.0.0.1",
                    "port": brokers[broker].port,
                }
            ],
        }
        for broker in ids
    ]
    return ControlBatch(9, EPOCH, rows, notices)


def apis(brokers: FakeBrokers, broker: int) -> list[str]:
    return [told.api for told in brokers[broker].told]


def test_requests_are_in_order_and_live_brokers_sent_on_change(brokers: FakeBrokers, queues: ChannelManager) -> None:
    state, metadata = notice(), notice(UPDATE_METADATA, brokers=(1, 2))

    queues.send(announced(brokers, [metadata, state]), live_brokers_to=[1])

    assert eventually(lambda: queues.busy == [])
    assert apis(brokers, 1) == ["update_metadata", "leader_and_isr", "update_metadata"]
    assert apis(brokers, 2) == ["update_metadata"]
    assert [len(told.partitions) for told in brokers[1].told] == [0, 1, 1]


def test_a_broker_that_starts_gets_all_metadata_before_anything_else(
    brokers: FakeBrokers, queues: ChannelManager
) -> None:
    """Also where a change was queued with it; else it answers clients without topics until it has opened its logs."""
    brokers[1].stop()
    queues.send(announced(brokers, [notice()]))
    assert eventually(lambda: brokers[1].connections != [])  # what is queued later is one batch
    queues.send(announced(brokers, [notice(UPDATE_METADATA), notice()]), live_brokers_to=[1, 2], starting=[1])
    queues.send(announced(brokers, [notice(leader_epoch=2), notice(STOP_REPLICA, partition=1)]))
    brokers[1].go_on()

    assert eventually(lambda: queues.busy == [])
    told = apis(brokers, 1)
    assert told[told.index("update_metadata") :] == ["update_metadata", "leader_and_isr", "stop_replica"]
    assert apis(brokers, 2) == ["update_metadata"]


def test_a_request_that_cannot_be_encoded_is_named_and_the_next_is_sent(
    brokers: FakeBrokers,
    queues: ChannelManager,
    heard: SimpleQueue[BrokerResponse],
    caplog: pytest.LogCaptureFixture,
) -> None:
    queues.send(announced(brokers, [notice(partition=5, leader_epoch=2**40)]))
    assert eventually(lambda: queues.busy == [])
    queues.send(announced(brokers, [notice()]))
    assert eventually(lambda: queues.busy == [])

    bad, good = heard.get_nowait(), heard.get_nowait()
    assert (bad.data, bad.errors(), good.errors()) == (None, [NOT_SENT], [0])
    assert apis(brokers, 1) == ["leader_and_isr"]
    assert "cannot send LeaderAndIsr (t-5) to broker 1" in caplog.text


def test_a_response_that_cannot_be_decoded_counts_as_unanswered(brokers: FakeBrokers) -> None:
    batch = announced(brokers, [])
    for data in (b"", b"\0", b"\xff" * 40):
        response = BrokerResponse(batch.brokers[0], EPOCH, LEADER_AND_ISR, [notice()], data, version=5)
        assert response.errors() == [NOT_SENT]


def test_a_queue_ahead_of_the_cycle_is_kept(brokers: FakeBrokers, queues: ChannelManager) -> None:
    """It is dropped where the broker goes, and where its registration is an older one."""
    starting = announced(brokers, [notice(UPDATE_METADATA)])
    row = dict(starting.brokers[0], broker_epoch=9)

    queues.send_to_starting(row, starting)
    queues.send(announced(brokers, [notice(UPDATE_METADATA, brokers=(2,))], ids=(2,)))
    assert eventually(lambda: queues.idle == [1, 2])
    queues.send(announced(brokers, [notice()], ids=(1, 2), epoch=9))
    queues.send_to_starting(dict(row, broker_epoch=8), starting)
    queues.drop_provisional(1)  # a cycle knows it by now
    assert eventually(lambda: queues.idle == [1, 2])
    queues.retain([])
    queues.send_to_starting(row, starting)
    queues.drop_provisional(1)

    assert queues.idle == []
    assert apis(brokers, 1)[:2] == ["update_metadata", "leader_and_isr"]


def test_a_starting_broker_is_retried_quickly(
    brokers: FakeBrokers, queues: ChannelManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some fifty times a second at first; one that answered once is tried again as Kafka's controller does."""
    tries: list[float] = []
    connect = BrokerConnection.to

    def refused(*arguments: Any) -> BrokerConnection:  # noqa: ANN401 - those of `BrokerConnection.to`
        tries.append(time.monotonic())
        if len(tries) <= 5:
            raise ConnectionRefusedError
        return connect(*arguments)

    monkeypatch.setattr(BrokerConnection, "to", refused)
    queues.send(announced(brokers, [notice(UPDATE_METADATA)], ids=(1,)))

    assert eventually(lambda: queues.busy == [])
    assert len(tries) == 6
    assert tries[-1] - tries[0] < 5 * RETRY_BACKOFF_SECONDS


def test_an_unresponsive_broker_delays_no_other_broker(brokers: FakeBrokers, queues: ChannelManager) -> None:
    brokers[1].stop()
    for epoch in range(1, 6):
        queues.send(announced(brokers, [notice(brokers=(1, 2), leader_epoch=epoch)]))
        time.sleep(0.05)

    assert eventually(lambda: len(brokers[2].told) == 5)
    assert (queues.idle, queues.busy) == ([2], [1])
    brokers[1].go_on()
    assert eventually(lambda: queues.busy == [])

    epochs = [state.leader_epoch for told in brokers[1].of("leader_and_isr") for state in _states(told)]
    assert epochs[-1] == 5
    assert len(epochs) < 5
    assert epochs == sorted(epochs)


def _states(told: Any) -> list[Any]:  # noqa: ANN401 - kio's
    return [state for topic in told.request.topic_states for state in topic.partition_states]


def test_what_was_lost_is_sent_until_it_is_answered(
    brokers: FakeBrokers, queues: ChannelManager, heard: SimpleQueue[BrokerResponse]
) -> None:
    brokers[1].hangs_up_on.add("leader_and_isr")

    queues.send(announced(brokers, [notice()]))

    assert eventually(lambda: queues.busy == [])
    assert apis(brokers, 1) == ["leader_and_isr"] * 2
    answer = heard.get_nowait()
    assert (answer.errors(), answer.controller_epoch) == ([11], EPOCH)  # it has it from the first time
    assert heard.empty()


@pytest.mark.parametrize("mistaken", [lambda answer: answer[:6], lambda answer: b"\0\0\1\0" + answer[4:]])
def test_a_response_to_another_request_counts_as_lost(
    brokers: FakeBrokers, queues: ChannelManager, heard: SimpleQueue[BrokerResponse], mistaken: Callable[[bytes], bytes]
) -> None:
    """Cut off, or to an earlier one: it must not count as a word about this one."""
    brokers[1].mistaken.append(mistaken)

    queues.send(announced(brokers, [notice(UPDATE_METADATA)]), live_brokers_to=[1])

    assert eventually(lambda: queues.busy == [])
    assert apis(brokers, 1) == ["update_metadata"] * 3
    assert [heard.get_nowait().error for _ in range(2)] == [0, 0]
    assert heard.empty()


def test_a_new_registration_gets_a_new_queue(brokers: FakeBrokers, queues: ChannelManager) -> None:
    brokers[1].stop()
    queues.send(announced(brokers, [notice(leader_epoch=1)]))
    queues.send(announced(brokers, [notice(leader_epoch=2)]))

    queues.send(announced(brokers, [notice(leader_epoch=3)], epoch=8))
    brokers[1].go_on()

    assert eventually(lambda: queues.busy == [])
    registrations = [told.request.broker_epoch for told in brokers[1].told]
    assert registrations[-1] == 8
    assert [state.leader_epoch for told in brokers[1].told for state in _states(told)][-1] == 3
    assert 2 not in [state.leader_epoch for told in brokers[1].told for state in _states(told)]


def test_deregistered_broker_gets_nothing(brokers: FakeBrokers, queues: ChannelManager) -> None:
    queues.send(announced(brokers, [notice(brokers=(1, 2))]))
    assert eventually(lambda: queues.busy == [])

    queues.send(announced(brokers, [notice(brokers=(1, 2), leader_epoch=2)], ids=(2,)))

    assert eventually(lambda: queues.idle == [2])
    assert (len(brokers[1].told), len(brokers[2].told)) == (1, 2)


def test_later_notices_replace_earlier_ones_and_keep_flags() -> None:
    notices = [
        notice(is_new=True, leader_epoch=1),
        notice(leader_epoch=2),
        notice(STOP_REPLICA, partition=1, delete_partition=True),
        notice(STOP_REPLICA, partition=1, leader_epoch=2),
        notice(UPDATE_METADATA, leader_epoch=1, brokers=(1, 2)),
        notice(UPDATE_METADATA, leader_epoch=2, brokers=(1, 2)),
    ]

    rows = [(row.api, row.partition, row.leader_epoch, row.is_new, row.delete_partition) for row in merged(notices, 1)]

    assert rows == [
        (LEADER_AND_ISR, 0, 2, True, False),
        (STOP_REPLICA, 1, 2, False, True),
        (UPDATE_METADATA, 0, 2, False, False),
    ]
    assert {row.brokers for row in merged(notices, 1)} == {(1,)}


@pytest.mark.parametrize("apis", [(LEADER_AND_ISR, STOP_REPLICA), (STOP_REPLICA, LEADER_AND_ISR)])
def test_opposite_notices_replace_each_other(apis: tuple[str, str]) -> None:
    assert [row.api for row in merged([notice(api) for api in apis], 1)] == [apis[1]]
