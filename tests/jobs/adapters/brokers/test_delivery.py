"""Delivery of control requests to fake brokers that record them: recipients, order, retries, unresponsive brokers."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Thread, Timer
from typing import Any

import pytest
from kafka.net.connection import SaslReauthenticator
from msgspec import structs

from jobs.adapters.brokers import admin_client
from jobs.adapters.brokers import connection as broker_connection
from jobs.adapters.brokers.admin_client import LateRequestError, connected_admin
from jobs.adapters.brokers.channel_manager import ChannelManager
from jobs.adapters.brokers.connection import refuse_unresponsive, unreachable_reasons
from jobs.adapters.brokers.control_encoding import ControlBatch
from jobs.adapters.brokers.delivery import DeliverySeconds, deliver
from jobs.adapters.brokers.responses import BrokerResponse, BrokerResponses
from jobs.adapters.brokers.transport import Transport
from jobs.adapters.delta.warehouse_lease import WarehouseLease
from jobs.core.errors import RefusedError
from jobs.execution.batch.notification import broker_error_lines
from planner.broker_requests import notices_for
from schemas.notices import STOP_REPLICA
from schemas.response_codes import NOT_SENT
from schemas.rows import Broker, Change
from tests.jobs.support.kafka.fake_brokers import FakeBrokers
from tests.jobs.support.kafka.paged_brokers import PagedCluster
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.kafka.registrations import broker_at, broker_without_endpoints
from tests.typed_rows import typed

OURS = 2147483647
LONG = 60.0


QUICK = DeliverySeconds(grace=0.2, refresh=0.1)
"""What takes seconds takes fractions of one; nothing here depends on how long it takes."""
SHORT_SILENCE = replace(QUICK, unresponsive=2.0)
"""Silence is waited out; where all are to answer, as long as ever."""


@pytest.fixture
def idle() -> float:
    """Seconds without a byte after which a broker is probed."""
    return 0.2


@pytest.fixture(autouse=True)
def _probed(monkeypatch: pytest.MonkeyPatch, idle: float) -> None:
    monkeypatch.setattr(broker_connection, "IDLE_BEFORE_PROBE_SECONDS", idle)


def registered(brokers: FakeBrokers, broker_id: int, epoch: int = 1) -> Broker:
    return broker_at(brokers[broker_id].port, broker_id, epoch=epoch)


def state(partition: int, to: Sequence[int], stop: Sequence[int] = (), topic: str = "t") -> Change:
    led = {"leader_after": to[0] if to else 0, "leader_epoch_after": 7, "isr_after": [0], "replicas_after": [0, 1, 2]}
    recipients = {"leader_and_isr_to": [*to], "stop_replica_to": [*stop], "leader_recovery_state_after": 0}
    return typed(topic=topic, partition=partition, state_version=2, **led, **recipients)


def control_batch(live: Sequence[Broker], states: Sequence[Change]) -> ControlBatch:
    return ControlBatch(OURS, 5, live, notices_for(states, {row.broker_id for row in live}))


def send(
    live: Sequence[Broker],
    states: Sequence[Change],
    seconds: float = LONG,
    now: Callable[[], Sequence[Broker]] | None = None,
    waits: DeliverySeconds = QUICK,
) -> BrokerResponses:
    renew = None if now is None else lambda: control_batch(now(), states)
    with ChannelManager(str(OURS)) as channels:
        batch, deadline = control_batch(live, states), time.monotonic() + seconds
        return BrokerResponses.of(deliver(channels, batch, deadline, renew, seconds=waits))


def errors(answers: BrokerResponses, broker_id: int) -> list[int]:
    pairs = zip(answers.responses, answers.errors, strict=True)
    return [error for answer, codes in pairs if answer.broker.broker_id == broker_id for error in codes]


@pytest.mark.parametrize("idle", [30.0])  # on a busy machine it would ask whether they are there
def test_each_broker_gets_its_requests_in_order(fake_brokers: FakeBrokers) -> None:
    live = [registered(fake_brokers, broker) for broker in (0, 1, 2)]

    answers = send(live, [state(0, [0, 1]), state(1, [1], [0])])

    requests = {broker: [(one.api, len(one.partitions)) for one in fake_brokers[broker].received] for broker in (1, 2)}
    assert requests == {
        1: [("update_metadata", 0), ("leader_and_isr", 2), ("update_metadata", 2)],
        2: [("update_metadata", 0), ("update_metadata", 2)],
    }
    assert [one.api for one in fake_brokers[0].received][-1] == "stop_replica"
    assert (answers.accepted, answers.silent, broker_error_lines(answers)) == ([0, 1, 2], [], [])
    assert {fake_brokers[broker].version_requests for broker in (0, 1, 2)} == {1}


def test_broker_may_accept_some_partitions_and_refuse_others(fake_brokers: FakeBrokers) -> None:
    """Nor does it matter what a follower answered, or that Kafka's controller may be allowed what we are not."""
    fake_brokers[1].errors["t", 0] = fake_brokers[0].errors["t", 1] = 56
    fake_brokers[2].refuses = 31
    live = [registered(fake_brokers, broker) for broker in (0, 1, 2)]

    answers = send(live, [state(0, [0, 1]), state(1, [0, 1]), state(2, [2])])

    assert answers.leaderless_partitions == {("t", 1): 56}
    assert (answers.is_partial, answers.accepted) == (True, [])


def test_brokers_that_stop_replicas_come_before_the_leaders(fake_brokers: FakeBrokers) -> None:
    """A leader that receives the smaller ISR first takes a follower that still fetches back into it."""
    order: list[int] = []
    fake_brokers[1].slow["stop_replica"] = 0.3
    fake_brokers[0].on_request = lambda one: order.append(0) if one.api == "leader_and_isr" else None
    fake_brokers[1].on_request = lambda one: order.append(1) if one.api == "stop_replica" else None

    send([registered(fake_brokers, 0), registered(fake_brokers, 1)], [state(0, [0], [1])])

    assert order == [1, 0]


def test_unresponsive_stopping_broker_does_not_delay_leaders(fake_brokers: FakeBrokers) -> None:
    fake_brokers[1].stop()

    answers = send(
        [registered(fake_brokers, 0), registered(fake_brokers, 1)],
        [state(0, [0], [1])],
        waits=replace(SHORT_SILENCE, stop_replica=0.2),
    )

    assert (answers.accepted, answers.silent) == ([0], [1])


def test_broker_that_stops_in_the_middle_is_not_waited_for(fake_brokers: FakeBrokers) -> None:
    """It took the connection and what was sent; it answers neither that nor anything else."""
    fake_brokers[1].on_request = lambda _: fake_brokers[1].stop()
    started = time.monotonic()

    answers = send(
        [registered(fake_brokers, broker) for broker in (0, 1)], [state(0, [0, 1])], seconds=LONG, waits=SHORT_SILENCE
    )

    assert (answers.accepted, answers.silent) == ([0], [1])
    assert time.monotonic() - started < LONG / 2


def test_deregistered_broker_is_dropped(fake_brokers: FakeBrokers) -> None:
    live = [registered(fake_brokers, broker) for broker in (0, 1)]
    fake_brokers[1].close()
    started = time.monotonic()

    answers = send(live, [state(0, [0, 1])], now=lambda: live[:1], waits=replace(QUICK, unresponsive=LONG))

    assert (answers.accepted, errors(answers, 1)) == ([0], [NOT_SENT, NOT_SENT, NOT_SENT])
    assert time.monotonic() - started < LONG / 2


def test_broker_that_registers_again_is_sent_everything_again(fake_brokers: FakeBrokers) -> None:
    """Broker 1 restarts during the delivery: it has lost its state and has a new broker epoch."""
    live = [registered(fake_brokers, broker) for broker in (0, 1)]
    fake_brokers[0].slow["leader_and_isr"] = 1.0
    current = [live[0], registered(fake_brokers, 1, epoch=2)]
    registrations = iter([live, current])

    answers = send(live, [state(0, [0, 1])], now=lambda: next(registrations, current))

    assert [one.request.broker_epoch for one in fake_brokers[1].of("leader_and_isr")] == [1, 2]
    assert {answer.broker.broker_epoch for answer in answers.responses if answer.broker.broker_id == 1} == {2}


def test_broker_that_reports_a_newer_epoch_is_sent_everything_again(fake_brokers: FakeBrokers) -> None:
    live = [registered(fake_brokers, broker) for broker in (0, 1)]
    fake_brokers[1].broker_epoch = 9

    answers = send(live, [state(0, [0, 1])], now=lambda: [live[0], registered(fake_brokers, 1, epoch=9)])

    assert (answers.accepted, set(errors(answers, 1))) == ([0, 1], {0})


@pytest.mark.parametrize("version", [2, 3, 4])
def test_deletions_are_in_a_separate_request(fake_brokers: FakeBrokers, version: int) -> None:
    """Up to version 2 a request says once for all of its partitions whether logs are deleted."""
    fake_brokers[0].versions[5] = version
    live = [registered(fake_brokers, 0)]
    stopped = [one for one in notices_for([state(0, [], [0]), state(1, [], [0])], {0}) if one.api == STOP_REPLICA]
    notices = [stopped[0], structs.replace(stopped[1], delete_partition=True)]

    with ChannelManager(str(OURS)) as channels:
        answers = deliver(channels, ControlBatch(OURS, 5, live, notices), time.monotonic() + LONG, seconds=QUICK)

    requests = [one.request for one in fake_brokers[0].of("stop_replica")]
    flags = [
        [request.delete_partitions]
        if version == 2
        else [state.delete_partition for topic in request.topic_states for state in topic.partition_states]
        for request in requests
    ]
    assert flags == [[True], [False]]
    assert [[one.partition for one in answer.notices] for answer in answers] == [[], [1], [0]]


def test_one_connection_per_broker_for_all_batches_of_a_commit(fake_brokers: FakeBrokers) -> None:
    live = [registered(fake_brokers, broker) for broker in (0, 1)]
    batch = control_batch(live, [state(0, [0, 1])])

    with ChannelManager(str(OURS)) as channels:
        rounds = [deliver(channels, batch, time.monotonic() + LONG, seconds=QUICK) for _ in range(3)]
        connections = [len(fake_brokers[broker].connections) for broker in (0, 1)]

    assert [BrokerResponses.of(answers).accepted for answers in rounds] == [[0, 1]] * 3
    assert ([fake_brokers[broker].version_requests for broker in (0, 1)], connections) == ([1, 1], [1, 1])


def test_lost_connection_is_made_again(fake_brokers: FakeBrokers) -> None:
    """As one that a broker has closed for being idle, or that was cut off in the midst of a request."""
    live = [registered(fake_brokers, 0)]
    with ChannelManager(str(OURS)) as channels:
        deliver(channels, control_batch(live, [state(0, [0])]), time.monotonic() + LONG, seconds=QUICK)
        for connection in fake_brokers[0].connections:
            connection.shutdown(socket.SHUT_RDWR)

        answers = deliver(channels, control_batch(live, [state(1, [0])]), time.monotonic() + LONG, seconds=QUICK)

    assert (BrokerResponses.of(answers).accepted, fake_brokers[0].version_requests) == ([0], 2)


def test_aborted_connection_is_not_reused(fake_brokers: FakeBrokers) -> None:
    """Its answer may come yet, and would be taken for that to the next request."""
    live = [registered(fake_brokers, 0)]
    fake_brokers[0].on_request = lambda _: fake_brokers[0].stop()
    with ChannelManager(str(OURS)) as channels:
        first = deliver(channels, control_batch(live, [state(0, [0])]), time.monotonic() + 0.5, seconds=QUICK)
        fake_brokers[0].on_request = lambda _: None
        fake_brokers[0].go_on()

        second = deliver(channels, control_batch(live, [state(1, [0])]), time.monotonic() + LONG, seconds=QUICK)

    assert [BrokerResponses.of(answers).accepted for answers in (first, second)] == [[], [0]]


def test_connections_are_closed_at_the_end_of_a_commit(fake_brokers: FakeBrokers) -> None:
    send([registered(fake_brokers, 0)], [state(0, [0])])

    assert eventually(lambda: [connection.fileno() for connection in fake_brokers[0].connections] == [-1])


def test_many_silent_brokers_do_not_starve_the_rest(fake_brokers: FakeBrokers) -> None:
    silent, last = range(1, 41), 99
    for broker in silent:
        fake_brokers[broker].stop()
    live = [registered(fake_brokers, broker) for broker in (*silent, last)]
    sending = Thread(target=send, args=(live, [state(0, [*silent, last])], 20.0))

    sending.start()
    was_sent = eventually(lambda: bool(fake_brokers[last].of("leader_and_isr")), seconds=15)
    sending.join()

    assert was_sent


def test_request_that_takes_long_is_sent_once(fake_brokers: FakeBrokers) -> None:
    """A broker that is busy for longer than the time after which one counts as unresponsive still answers probes."""
    fake_brokers[0].slow["leader_and_isr"] = 4.0

    answers = send(
        [registered(fake_brokers, 0)], [state(partition, [0]) for partition in range(50)], waits=SHORT_SILENCE
    )

    assert (answers.accepted, len(fake_brokers[0].of("leader_and_isr"))) == ([0], 1)


def test_lost_request_is_repeated_and_error_11_is_accepted(fake_brokers: FakeBrokers) -> None:
    fake_brokers[0].hangs_up_on = {"leader_and_isr"}

    answers = send([registered(fake_brokers, 0)], [state(0, [0])])

    assert [one.api for one in fake_brokers[0].received].count("leader_and_isr") == 2
    assert (answers.accepted, broker_error_lines(answers), 11 in errors(answers, 0)) == ([0], [], True)


def test_errors_take_one_line_per_kind_and_five_at_most(fake_brokers: FakeBrokers) -> None:
    codes = (56, 3, 103, 41, 74, 19)
    fake_brokers[0].errors = {(f"topic-{code}", partition): code for code in codes for partition in range(100)}
    states = [state(partition, [0], topic=topic) for topic, partition in fake_brokers[0].errors]

    lines = broker_error_lines(send([registered(fake_brokers, 0)], states))

    first = "brokers 0 responded to LeaderAndIsr with UnknownTopicOrPartitionError (3) for 100 partitions"
    assert any(line.startswith(f"{first} (topic-3-0, topic-3-1, topic-3-2, ...)") for line in lines), lines
    assert (len(lines), lines[-1]) == (5, "2 more kinds of error: table `answers`")


def test_nothing_is_sent_after_the_deadline(fake_brokers: FakeBrokers) -> None:
    answers = send([registered(fake_brokers, 0)], [state(0, [0])], seconds=-1)

    assert (fake_brokers[0].received, answers.silent, set(errors(answers, 0))) == ([], [0], {NOT_SENT})


def test_silent_broker_is_refused_before_anything_is_written(fake_brokers: FakeBrokers) -> None:
    live = [registered(fake_brokers, broker) for broker in (0, 1, 2)]
    fake_brokers[1].stop()
    fake_brokers[2].versions[4] = 3

    with pytest.raises(RefusedError) as refused:
        refuse_unresponsive(live, OURS, (), timeout_seconds=1.0)

    message = str(refused.value)
    assert f"broker 1 at 127.0.0.1:{fake_brokers[1].port} (" in message
    assert f"broker 2 at 127.0.0.1:{fake_brokers[2].port} (it supports LeaderAndIsr up to version 3 only)" in message
    assert "--allow-silent 1,2 writes anyway" in message
    refuse_unresponsive(live, OURS, {1, 2})


@pytest.mark.parametrize(("refusals", "unreachable"), [(29, 0), (30, 1)])
def test_broker_that_refuses_connections_is_given_up_after_some(
    fake_brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch, refusals: int, unreachable: int
) -> None:
    """A restarting broker refuses connections for a moment; a stopped broker is not waited for until the timeout."""
    monkeypatch.setattr(broker_connection, "RETRY_BACKOFF_SECONDS", 0.01)
    tries = [ConnectionRefusedError("refused")] * refusals
    connect = Transport.to

    def to(address: tuple[str, int], seconds: float, tls: None) -> Transport:
        if tries:
            raise tries.pop()
        return connect(address, seconds, tls)

    monkeypatch.setattr(Transport, "to", to)
    live = [registered(fake_brokers, 0)]

    assert len(unreachable_reasons(live, str(OURS), timeout_seconds=LONG)) == unreachable
    assert (len(tries), fake_brokers[0].version_requests) == (0, 1 - unreachable)


def test_broker_that_listens_late_is_waited_for(fake_brokers: FakeBrokers) -> None:
    """Brokers register before they answer."""
    fake_brokers[0].stop()
    later = Timer(0.3, fake_brokers[0].go_on)

    later.start()
    refuse_unresponsive([registered(fake_brokers, 0)], OURS, (), timeout_seconds=30.0)
    later.join()

    assert fake_brokers[0].version_requests > 0


def test_stall_of_this_machine_does_not_count(fake_brokers: FakeBrokers) -> None:
    """Patience counts the time in which this process was let to run: here it is stopped for longer than that."""
    fake_brokers[0].stop()

    def stall() -> None:
        script = f"kill -STOP {os.getpid()}; sleep 2.5; kill -CONT {os.getpid()}"
        subprocess.run(["sh", "-c", script], check=True)  # noqa: S607 - the script is ours
        fake_brokers[0].go_on()

    later = Timer(0.2, stall)
    later.start()
    refuse_unresponsive([registered(fake_brokers, 0)], OURS, (), timeout_seconds=2.0)
    later.join()

    assert fake_brokers[0].version_requests > 0


def test_answer_that_cannot_be_read_is_no_success() -> None:
    broken = BrokerResponse(
        broker_without_endpoints(0), 5, "LeaderAndIsr", notices_for([state(0, [0])], {0})[:1], b"\0" * 7, 4
    )

    assert broken.errors() == [NOT_SENT]


CHANGE = "45"
"""AlterPartitionReassignments, as the simulated brokers note it."""

TARGETS: dict[tuple[str, int], list[int] | None] = {("topic-00000", 0): [2, 1]}


@dataclass
class SlowCluster(PagedCluster):
    """New connections wait so long for their first answer."""

    delay: float = 0.0

    def _versions(self, version: int, body: bytes) -> Any:  # noqa: ANN401 - kafka-python is untyped
        time.sleep(self.delay)
        return super()._versions(version, body)

    def changes(self) -> int:
        return [name for _, name in self.asked].count(CHANGE)


@pytest.fixture
def cluster() -> SlowCluster:
    made = SlowCluster(topics=1, partitions=1)
    made.start()
    return made


def test_a_change_that_waited_for_its_connection_is_not_sent(cluster: SlowCluster) -> None:
    with connected_admin(cluster.bootstrap.split(","), {}) as connected:
        connected.client.send_seconds = 0.2
        cluster.delay = 0.5
        with pytest.raises(LateRequestError, match="so nothing was requested"):
            connected.reassign(TARGETS)
        time.sleep(2 * cluster.delay)
        assert cluster.changes() == 0
        assert connected.reassign(TARGETS) == {("topic-00000", 0): 0}
        assert cluster.changes() == 1


def test_what_changes_nothing_may_wait(cluster: SlowCluster) -> None:
    with connected_admin(cluster.bootstrap.split(","), {}) as connected:
        connected.client.send_seconds = 0.2
        cluster.delay = 0.5
        assert connected.reassignments() == {}


def test_a_change_waits_for_no_new_login_of_its_connection(
    cluster: SlowCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kafka-python keeps requests while a connection authenticates again, which a slow broker prolongs."""
    logs_in_until = 0.0
    monkeypatch.setattr(
        SaslReauthenticator, "is_reauthenticating", property(lambda _: time.monotonic() < logs_in_until)
    )
    with connected_admin(cluster.bootstrap.split(","), {}) as connected:
        connected.client.send_seconds = 0.2
        assert connected.reassignments() == {}
        logs_in_until = time.monotonic() + 0.5
        with pytest.raises(LateRequestError):
            connected.reassign(TARGETS)
        assert cluster.changes() == 0
        assert connected.reassign(TARGETS) == {("topic-00000", 0): 0}


def test_a_change_of_a_suspended_machine_is_not_sent(cluster: SlowCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The monotonic clock may stand still meanwhile."""
    with connected_admin(cluster.bootstrap.split(","), {}) as connected:
        wall, began = time.time, time.time()
        monkeypatch.setattr(time, "time", lambda: wall() + (60 if wall() > began + 0.2 else 0))
        cluster.delay = 0.4
        with pytest.raises(LateRequestError):
            connected.reassign(TARGETS)
    assert cluster.changes() == 0


def test_the_lease_lasts_until_a_change_is_sent() -> None:
    assert WarehouseLease.margin_seconds >= admin_client.SEND_SECONDS
