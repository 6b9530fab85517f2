"""Brokers that write their registration again, and their settings as the resident controller reads them."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

from jobs.adapters.brokers.control_encoding import ControlBatch
from jobs.controller import preparation
from jobs.controller.auto_rebalance import AutoLeaderRebalance
from jobs.controller.broker_config_poller import BrokerConfigPoller
from jobs.controller.controller import ResidentController
from jobs.controller.preparation import ControlOptions
from jobs.core.errors import FencedError
from jobs.runtime.settings import ClusterConf, Settings
from planner.rules.inputs import ControllerConfig
from schemas.notices import Notice
from schemas.rows import Broker, BrokerConfig
from tests.jobs.support.controllers.recorded_log import RecordedLog
from tests.jobs.support.controllers.resident import initialize, put_isr, run_until_quiet
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.kafka.registrations import broker_without_endpoints
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, registration
from tests.planner.frames import broker_config

IBP, UNCLEAN = "inter.broker.protocol.version", "unclean.leader.election.enable"

Case = tuple[dict[str, str] | None, str | None]
"""The setting that broker 3 returns, and the message about it."""


class Brokers:
    """Settings that brokers return when asked, and which brokers were asked."""

    poller: BrokerConfigPoller

    def __init__(self) -> None:
        self.configs: dict[int, dict[str, str]] = {}
        self.requests: list[int] = []

    def ask(self, brokers: Sequence[Broker]) -> tuple[list[BrokerConfig], dict[int, str]]:
        ids = [row.broker_id for row in brokers]
        self.requests += ids
        rows = [
            broker_config(broker, name, value) for broker in ids for name, value in self.configs.get(broker, {}).items()
        ]
        return rows, {broker: "it did not answer in time" for broker in ids if broker not in self.configs}


@pytest.fixture
def brokers(controller: ResidentController) -> Brokers:
    """Brokers 0 to 2 return their settings; a broker that does not is asked once."""
    fake = Brokers()
    fake.configs = {broker: {IBP: "2.6"} for broker in (0, 1, 2)}
    rows, _ = fake.ask([broker_without_endpoints(broker) for broker in (0, 1, 2)])
    fake.requests.clear()
    controller.engine.broker_configs = rows
    fake.poller = BrokerConfigPoller(fake.ask, rows, controller.log_line, controller.watches.signal, max_tries=1)
    controller.config_poller = fake.poller
    return fake


def run_until_polled(controller: ResidentController) -> None:
    """Run until quiet, once the brokers that were asked have responded."""
    run_until_quiet(controller)
    poller = controller.config_poller
    assert poller is not None
    assert eventually(lambda: poller._thread is None or not poller._thread.is_alive())  # noqa: SLF001
    run_until_quiet(controller)


def resync_fully(controller: ResidentController) -> None:
    controller.resync.begin_at_once()
    controller._run_resync()  # noqa: SLF001 - what `run` does before each cycle
    while controller.resync.is_under_way:
        controller._run_resync()  # noqa: SLF001
    run_until_polled(controller)


@pytest.mark.parametrize(
    "case",
    [
        ({IBP: "3.9-IV0"}, "warning: broker 3 runs with inter.broker.protocol.version 3.9-IV0"),
        ({IBP: "2.7-IV2"}, "warning: broker 3 runs with inter.broker.protocol.version 2.7-IV2"),
        (None, "broker 3 did not return its configs (it did not answer in time)"),
        ({IBP: "2.7-IV1"}, None),
    ],
)
def test_registered_broker_is_asked_and_unsupported_protocol_logged_once(
    tree: KafkaTree,
    controller: ResidentController,
    brokers: Brokers,
    log: list[str],
    case: tuple[dict[str, str] | None, str | None],
) -> None:
    settings, line = case
    initialize(controller)
    assert brokers.requests == []
    if settings is not None:
        brokers.configs[3] = settings
    tree.register(3)
    run_until_polled(controller)
    resync_fully(controller)

    assert brokers.requests[:1] == [3]
    assert sorted(brokers.requests[1:]) == [0, 1, 2, 3]
    messages = [line for line in log if "warning" in line or "did not return" in line]
    assert len(messages) == (0 if line is None else 1)
    assert line is None or messages[0].startswith(f"surveyor: {line}")


def test_starting_broker_is_asked_until_it_responds(
    tree: KafkaTree, controller: ResidentController, brokers: Brokers, log: RecordedLog
) -> None:
    """A broker is registered before it accepts connections; other new brokers have responded by then."""
    brokers.poller.max_tries, brokers.poller.retry_seconds = 5, 0.01
    initialize(controller)
    brokers.configs[4] = {IBP: "2.6"}

    def starts(rows: Sequence[Broker]) -> tuple[list[BrokerConfig], dict[int, str]]:
        if brokers.requests.count(3) == 2:
            brokers.configs[3] = {IBP: "3.9-IV0"}
        return brokers.ask(rows)

    assert controller.config_poller is not None
    controller.config_poller.read_configs = starts
    tree.register(3)
    tree.register(4)
    run_until_polled(controller)

    assert (brokers.requests.count(3), brokers.requests.count(4)) == (3, 1)
    assert [line for line in log if "did not return" in line] == []
    assert sum("warning: broker 3 runs with" in line for line in log.warnings) == 1


def test_broker_that_did_not_respond_is_asked_again_without_a_resync(
    tree: KafkaTree, controller: ResidentController, brokers: Brokers, log: RecordedLog
) -> None:
    brokers.poller.ask_again_seconds = 0.01
    initialize(controller)
    for broker in (3, 4):
        tree.register(broker)
    poller = controller.config_poller
    assert poller is not None
    assert eventually(lambda: controller.cycle() or brokers.requests.count(3) > 1)
    tree.unregister(4)
    brokers.configs[3] = {IBP: "2.6"}
    assert eventually(lambda: controller.cycle() or 3 in {row.broker_id for row in poller.configs})
    run_until_polled(controller)
    asked = len(brokers.requests)
    time.sleep(0.05)
    run_until_polled(controller)

    assert len(brokers.requests) == asked  # the one has answered, the other is gone
    assert sum("broker 3 did not return its configs" in line for line in log) == 1


AUTHORIZER, API, DELETION = "authorizer.class.name", "api.LeaderAndIsr", "delete.topic.enable"
LOGIN, LISTENER = "listener.name.clients.ssl.client.auth", "inter.broker.listener.name"
REPORTED = {AUTHORIZER: "a.B", LOGIN: "required", UNCLEAN: "true", DELETION: "false", LISTENER: "IN", API: "6"}
SILENT = {AUTHORIZER: "", LOGIN: None, UNCLEAN: "false", DELETION: "true", LISTENER: None}
"""Kafka's defaults, where a broker does not describe its settings."""


def outdated_configs(rows: list[BrokerConfig], epoch: int, error: str | None) -> tuple[set[tuple[Any, ...]], bool]:
    """Return the settings of broker 0 after this result, and whether unclean elections are allowed.

    It has reported REPORTED at broker epoch 1.
    """
    known = [broker_config(0, name, value) for name, value in REPORTED.items()]
    poller = BrokerConfigPoller(lambda _: ([], {}), known, lambda *_: None, lambda: None)
    registered = broker_without_endpoints(0, epoch)
    poller.pop_changed({0: broker_without_endpoints(0, 1)})
    poller._results.put(([registered], rows, {} if error is None else {0: error}))  # noqa: SLF001 - as its thread does
    changed = poller.pop_changed({0: registered})
    settings = {(row.name, row.value, bool(row.assumed)) for row in poller.configs}
    assert len(settings) == len(poller.configs)
    assert changed is (None if settings == {(*row, False) for row in REPORTED.items()} else poller.configs)
    return settings, ControllerConfig.of(poller.configs).unclean_election


OUTDATED = {(AUTHORIZER, "a.B", False), (LOGIN, "required", False), (UNCLEAN, "true", True), (DELETION, "false", True)}
OUTDATED |= {(LISTENER, "IN", True)}
"""What it has reported of its security holds; the rest is assumed to be as before."""


def test_settings_no_longer_described_permit_nothing() -> None:
    """As when it is busy after ApiVersions. What it or ZooKeeper says now counts."""
    silent = [broker_config(0, name, value, assumed=True) for name, value in SILENT.items()]
    answered = [*silent, broker_config(0, API, "7")]

    assert outdated_configs(answered, 1, None) == ({*OUTDATED, (API, "7", False)}, False)
    overridden = [row for row in answered if row.name != UNCLEAN] + [broker_config(0, UNCLEAN, "true")]
    assert outdated_configs(overridden, 1, None)[1]


@pytest.mark.parametrize("is_read", [True, False])
def test_former_settings_of_a_silent_restarted_broker_permit_nothing(*, is_read: bool) -> None:
    assumed = [broker_config(0, name, value, assumed=True) for name, value in {**SILENT, API: None}.items()]
    rows = assumed if is_read else []

    assert outdated_configs(rows, 2, "refused") == ({*OUTDATED, (API, "6", True)}, False)
    assert outdated_configs(rows, 1, "refused") == ({(*row, False) for row in REPORTED.items()}, True)


def test_settings_read_before_a_restart_are_read_again(
    tree: KafkaTree, controller: ResidentController, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broker 1 is restarted while the settings are read, and does not respond after the take-over."""
    settings = Settings("default", controller.engine.warehouse.uri, ClusterConf(zookeeper=tree.hosts))
    options = ControlOptions(False, False, False, frozenset())

    def read(*_: object, **__: object) -> tuple[list[BrokerConfig], dict[int, str]]:
        tree.bounce(1)
        return [], {}

    with monkeypatch.context() as preparing:
        preparing.setattr(preparation, "read_broker_configs", read)
        prepared = preparation.prepare(settings, options, tree.client)
    poller = controller.config_poller
    assert poller is not None
    controller.configured_epochs, poller.reported_epochs = prepared.broker_epochs, {**prepared.broker_epochs}
    del brokers.configs[1]

    initialize(controller)
    run_until_polled(controller)

    assert brokers.requests == [1]
    assert {(row.broker_id, row.assumed) for row in poller.configs} == {(0, False), (1, True), (2, False)}


def test_a_broker_that_describes_its_settings_again_is_known() -> None:
    """Also if they are those that were assumed."""
    poller = BrokerConfigPoller(
        lambda _: ([], {}), [broker_config(0, AUTHORIZER, "", assumed=True)], lambda *_: None, lambda: None
    )
    row = broker_without_endpoints(0)
    poller._results.put(([row], [broker_config(0, AUTHORIZER, "")], {}))  # noqa: SLF001 - as its thread does

    assert poller.pop_changed({0: row}) == [broker_config(0, AUTHORIZER, "")]


def test_changed_settings_count_after_the_next_resync(
    tree: KafkaTree, controller: ResidentController, brokers: Brokers
) -> None:
    tree.add_topic("orders", {0: [7, 1]}, topic_id=None)
    tree.add_topic("old", {0: [0, 1]}, topic_id=None)
    put_isr(tree, "orders", [7])
    initialize(controller)
    resync_fully(controller)
    assert tree.state("orders").leader == -1

    for of in brokers.configs.values():
        of |= {UNCLEAN: "true", "delete.topic.enable": "false", "leader.imbalance.per.broker.percentage": "30"}
    resync_fully(controller)
    tree.client.create("/admin/delete_topics/old")
    run_until_quiet(controller)

    assert tree.state("orders").leader == 1
    assert tree.client.exists("/brokers/topics/old")
    assert tree.client.get_children("/admin/delete_topics") == []
    assert controller.auto_rebalance.threshold == 0.3


def test_settings_of_unresponsive_brokers_are_kept(
    tree: KafkaTree, controller: ResidentController, brokers: Brokers
) -> None:
    initialize(controller)
    poller = controller.config_poller
    assert poller is not None
    brokers.configs[0][UNCLEAN] = "true"
    resync_fully(controller)
    del brokers.configs[0]
    resync_fully(controller)
    assert {(row.broker_id, row.name) for row in poller.configs} == {*((b, IBP) for b in (0, 1, 2)), (0, UNCLEAN)}

    tree.unregister(0)
    resync_fully(controller)
    assert {row.broker_id for row in poller.configs} == {1, 2}


@pytest.mark.parametrize(("interval_seconds", "is_kept"), [("60", True), ("30", False)])
def test_changed_settings_do_not_delay_the_next_balance_check(interval_seconds: str, *, is_kept: bool) -> None:
    balance = AutoLeaderRebalance(60.0, 0.1, _next_check=12.0)

    changed = balance.with_configs([broker_config(0, "leader.imbalance.check.interval.seconds", interval_seconds)])

    assert changed.interval_seconds == float(interval_seconds)
    assert (changed._next_check == 12.0) is is_kept  # noqa: SLF001


def test_new_endpoints_of_a_broker_are_used(tree: KafkaTree, controller: ResidentController, log: list[str]) -> None:
    """`updateBrokerInfo`: the same registration with new contents."""
    tree.add_topic("orders", {0: [0, 1, 2]}, topic_id=None)
    initialize(controller)
    assert tree.brokers is not None
    before, new_listener = len(tree.brokers[1].received), tree.brokers[11]
    tree.client.set("/brokers/ids/1", registration(new_listener.port))
    run_until_quiet(controller)
    tree.unregister(0)
    run_until_quiet(controller)

    assert len(tree.brokers[1].received) == before
    assert new_listener.leader_epochs == {("orders", 0): 6}
    alive = {
        live.id_: live.endpoints[0].port for live in tree.brokers[2].of("update_metadata")[-1].request.live_brokers
    }
    assert alive == {1: new_listener.port, 2: tree.brokers[2].port}
    assert "  broker 1 has written its registration again" in log


def test_last_failed_broker_has_no_pending_requests(tree: KafkaTree, controller: ResidentController) -> None:
    """Its requests would be sent for ever, and `--until-quiet` would wait for that."""
    tree.add_topic("orders", {0: [0]}, topic_id=None)
    initialize(controller)
    for broker in range(3):
        tree.unregister(broker)
    run_until_quiet(controller)

    assert (controller.broker_requests.channels.idle, controller.broker_requests.channels.busy) == ([], [])


def test_starting_broker_gets_metadata_during_a_cycle(tree: KafkaTree, controller: ResidentController) -> None:
    """Once for each registration, and before the states of its replicas, which the next cycle sends."""
    tree.add_topic("orders", {0: [0, 1], 1: [1, 3]}, topic_id=None)
    initialize(controller)
    run_until_quiet(controller)
    assert tree.brokers is not None
    tree.register(3)

    for _ in range(3):
        controller.startup.check()

    assert eventually(lambda: not controller.broker_requests.channels.busy)
    (metadata,) = tree.brokers[3].received
    assert (metadata.api, metadata.partitions) == ("update_metadata", {("orders", 0), ("orders", 1)})
    assert {broker.id_ for broker in metadata.request.live_brokers} == {0, 1, 2, 3}
    run_until_quiet(controller)
    assert [request.api for request in tree.brokers[3].received[1:]] == ["update_metadata", "leader_and_isr"]


def test_an_unexpected_error_does_not_end_early_metadata(
    tree: KafkaTree, controller: ResidentController, capsys: pytest.CaptureFixture[str]
) -> None:
    initialize(controller)
    run_until_quiet(controller)
    assert tree.brokers is not None
    errors = [ValueError("bad row"), ValueError("bad row")]

    def batch_once_good(brokers: Sequence[Broker], notices: Sequence[Notice]) -> ControlBatch:
        if errors:
            raise errors.pop()
        return controller.broker_requests.batch_of(brokers, notices)

    controller.startup.reread_seconds, controller.startup.batch_of = 0.01, batch_once_good
    controller.startup.start()
    tree.register(3)

    received = tree.brokers[3].received
    assert eventually(lambda: [request.api for request in received] == ["update_metadata"])
    assert capsys.readouterr().err.count("ValueError: bad row") == 1


def test_bounced_or_failed_broker_gets_no_early_metadata(tree: KafkaTree, controller: ResidentController) -> None:
    """A bounced broker is sent the full state once its failure is written: other brokers lead its partitions then."""
    tree.add_topic("orders", {0: [0, 1]}, topic_id=None)
    initialize(controller)
    run_until_quiet(controller)
    assert tree.brokers is not None
    before = len(tree.brokers[1].received)
    tree.bounce(1)
    tree.register(3, b"{")  # not understood: nothing can be sent to it
    controller.startup.check()
    assert len(tree.brokers[1].received) == before
    tree.register(4)
    tree.brokers[4].stop()
    controller.startup.check()
    tree.unregister(4)
    controller.startup.check()

    assert 4 not in {*controller.broker_requests.channels.idle, *controller.broker_requests.channels.busy}


def test_fenced_controller_sends_no_early_metadata(tree: KafkaTree, controller: ResidentController) -> None:
    """A broker that starts does not know the later controller, and would accept the request."""
    initialize(controller)
    run_until_quiet(controller)
    assert tree.brokers is not None
    tree.touch("/controller_epoch")
    tree.register(3)

    with pytest.raises(FencedError):
        controller.startup.check()

    assert tree.brokers[3].received == []
