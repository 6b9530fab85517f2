"""Channels to brokers: in order, merged while a broker is busy, sent until answered, dropped with a broker."""

import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest
from msgspec.structs import replace

from jobs.adapters.brokers.channel_manager import ChannelManager, merged
from jobs.adapters.brokers.connection import RETRY_BACKOFF_SECONDS, BrokerConnection
from jobs.adapters.brokers.control_encoding import ControlBatch
from jobs.adapters.brokers.responses import BrokerResponse
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Notice
from schemas.response_codes import NOT_SENT
from tests.jobs.support.kafka.fake_brokers import FakeBrokers
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.kafka.registrations import broker_at

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
def responses() -> SimpleQueue[BrokerResponse]:
    return SimpleQueue()


@pytest.fixture
def channels(responses: SimpleQueue[BrokerResponse]) -> Iterator[ChannelManager]:
    some = ChannelManager("9", responses.put)
    yield some
    some.stop()


def control_batch(
    brokers: FakeBrokers, notices: list[Notice], ids: tuple[int, ...] = (1, 2), epoch: int = 7
) -> ControlBatch:
    rows = [broker_at(brokers[broker].port, broker, epoch=epoch) for broker in ids]
    return ControlBatch(9, EPOCH, rows, notices)


def apis(brokers: FakeBrokers, broker: int) -> list[str]:
    return [request.api for request in brokers[broker].received]


def test_requests_are_in_order_and_live_brokers_sent_on_change(
    fake_brokers: FakeBrokers, channels: ChannelManager
) -> None:
    state, metadata = notice(), notice(UPDATE_METADATA, brokers=(1, 2))

    channels.send(control_batch(fake_brokers, [metadata, state]), live_brokers_to=[1])

    assert eventually(lambda: channels.busy == [])
    assert apis(fake_brokers, 1) == ["update_metadata", "leader_and_isr", "update_metadata"]
    assert apis(fake_brokers, 2) == ["update_metadata"]
    assert [len(request.partitions) for request in fake_brokers[1].received] == [0, 1, 1]


def test_a_broker_that_starts_gets_all_metadata_before_anything_else(
    fake_brokers: FakeBrokers, channels: ChannelManager
) -> None:
    """Also where a change was queued with it; else it answers clients without topics until it has opened its logs."""
    fake_brokers[1].stop()
    channels.send(control_batch(fake_brokers, [notice()]))
    assert eventually(lambda: fake_brokers[1].connections != [])  # what is queued later is one batch
    channels.send(
        control_batch(fake_brokers, [notice(UPDATE_METADATA), notice()]), live_brokers_to=[1, 2], starting=[1]
    )
    channels.send(control_batch(fake_brokers, [notice(leader_epoch=2), notice(STOP_REPLICA, partition=1)]))
    fake_brokers[1].go_on()

    assert eventually(lambda: channels.busy == [])
    sent = apis(fake_brokers, 1)
    assert sent[sent.index("update_metadata") :] == ["update_metadata", "leader_and_isr", "stop_replica"]
    assert apis(fake_brokers, 2) == ["update_metadata"]


def test_unencodable_request_is_named_and_the_next_is_sent(
    fake_brokers: FakeBrokers,
    channels: ChannelManager,
    responses: SimpleQueue[BrokerResponse],
    capsys: pytest.CaptureFixture[str],
) -> None:
    channels.send(control_batch(fake_brokers, [notice(partition=5, leader_epoch=2**40)]))
    assert eventually(lambda: channels.busy == [])
    channels.send(control_batch(fake_brokers, [notice()]))
    assert eventually(lambda: channels.busy == [])

    bad, good = responses.get_nowait(), responses.get_nowait()
    assert (bad.data, bad.errors(), good.errors()) == (None, [NOT_SENT], [0])
    assert apis(fake_brokers, 1) == ["leader_and_isr"]
    assert "cannot send LeaderAndIsr (t-5) to broker 1" in capsys.readouterr().err


def test_a_response_that_cannot_be_decoded_counts_as_unanswered(fake_brokers: FakeBrokers) -> None:
    batch = control_batch(fake_brokers, [])
    for data in (b"", b"\0", b"\xff" * 40):
        response = BrokerResponse(batch.brokers[0], EPOCH, LEADER_AND_ISR, [notice()], data, version=5)
        assert response.errors() == [NOT_SENT]


def test_a_provisional_queue_is_kept(fake_brokers: FakeBrokers, channels: ChannelManager) -> None:
    """It is dropped where the broker goes, and where its registration is an older one."""
    starting = control_batch(fake_brokers, [notice(UPDATE_METADATA)])
    row = replace(starting.brokers[0], broker_epoch=9)

    channels.send_to_starting(row, starting)
    channels.send(control_batch(fake_brokers, [notice(UPDATE_METADATA, brokers=(2,))], ids=(2,)))
    assert eventually(lambda: channels.idle == [1, 2])
    channels.send(control_batch(fake_brokers, [notice()], ids=(1, 2), epoch=9))
    channels.send_to_starting(replace(row, broker_epoch=8), starting)
    channels.drop_provisional(1)  # a cycle knows it by now
    assert eventually(lambda: channels.idle == [1, 2])
    channels.retain([])
    channels.send_to_starting(row, starting)
    channels.drop_provisional(1)

    assert channels.idle == []
    assert apis(fake_brokers, 1)[:2] == ["update_metadata", "leader_and_isr"]


def test_a_starting_broker_is_retried_quickly(
    fake_brokers: FakeBrokers, channels: ChannelManager, monkeypatch: pytest.MonkeyPatch
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
    channels.send(control_batch(fake_brokers, [notice(UPDATE_METADATA)], ids=(1,)))

    assert eventually(lambda: channels.busy == [])
    assert len(tries) == 6
    assert tries[-1] - tries[0] < 5 * RETRY_BACKOFF_SECONDS


def test_an_unresponsive_broker_delays_no_other_broker(fake_brokers: FakeBrokers, channels: ChannelManager) -> None:
    fake_brokers[1].stop()
    for epoch in range(1, 6):
        channels.send(control_batch(fake_brokers, [notice(brokers=(1, 2), leader_epoch=epoch)]))
        time.sleep(0.05)

    assert eventually(lambda: len(fake_brokers[2].received) == 5)
    assert (channels.idle, channels.busy) == ([2], [1])
    fake_brokers[1].go_on()
    assert eventually(lambda: channels.busy == [])

    epochs = [state.leader_epoch for request in fake_brokers[1].of("leader_and_isr") for state in _states(request)]
    assert epochs[-1] == 5
    assert len(epochs) < 5
    assert epochs == sorted(epochs)


def _states(request: Any) -> list[Any]:  # noqa: ANN401 - kio's
    return [state for topic in request.request.topic_states for state in topic.partition_states]


def test_lost_request_is_sent_until_it_is_answered(
    fake_brokers: FakeBrokers, channels: ChannelManager, responses: SimpleQueue[BrokerResponse]
) -> None:
    fake_brokers[1].hangs_up_on.add("leader_and_isr")

    channels.send(control_batch(fake_brokers, [notice()]))

    assert eventually(lambda: channels.busy == [])
    assert apis(fake_brokers, 1) == ["leader_and_isr"] * 2
    answer = responses.get_nowait()
    assert (answer.errors(), answer.controller_epoch) == ([11], EPOCH)  # it has it from the first time
    assert responses.empty()


@pytest.mark.parametrize("mistaken", [lambda answer: answer[:6], lambda answer: b"\0\0\1\0" + answer[4:]])
def test_a_response_to_another_request_counts_as_lost(
    fake_brokers: FakeBrokers,
    channels: ChannelManager,
    responses: SimpleQueue[BrokerResponse],
    mistaken: Callable[[bytes], bytes],
) -> None:
    """Cut off, or to an earlier one: it must not count as a word about this one."""
    fake_brokers[1].mistaken.append(mistaken)

    channels.send(control_batch(fake_brokers, [notice(UPDATE_METADATA)]), live_brokers_to=[1])

    assert eventually(lambda: channels.busy == [])
    assert apis(fake_brokers, 1) == ["update_metadata"] * 3
    assert [responses.get_nowait().error for _ in range(2)] == [0, 0]
    assert responses.empty()


def test_a_new_registration_gets_a_new_queue(fake_brokers: FakeBrokers, channels: ChannelManager) -> None:
    fake_brokers[1].stop()
    channels.send(control_batch(fake_brokers, [notice(leader_epoch=1)]))
    channels.send(control_batch(fake_brokers, [notice(leader_epoch=2)]))

    channels.send(control_batch(fake_brokers, [notice(leader_epoch=3)], epoch=8))
    fake_brokers[1].go_on()

    assert eventually(lambda: channels.busy == [])
    registrations = [request.request.broker_epoch for request in fake_brokers[1].received]
    assert registrations[-1] == 8
    assert [state.leader_epoch for request in fake_brokers[1].received for state in _states(request)][-1] == 3
    assert 2 not in [state.leader_epoch for request in fake_brokers[1].received for state in _states(request)]


def test_deregistered_broker_gets_nothing(fake_brokers: FakeBrokers, channels: ChannelManager) -> None:
    channels.send(control_batch(fake_brokers, [notice(brokers=(1, 2))]))
    assert eventually(lambda: channels.busy == [])

    channels.send(control_batch(fake_brokers, [notice(brokers=(1, 2), leader_epoch=2)], ids=(2,)))

    assert eventually(lambda: channels.idle == [2])
    assert (len(fake_brokers[1].received), len(fake_brokers[2].received)) == (1, 2)


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
