"""Throttles are set as Kafka's tool sets them, and removed again no matter what happened in between."""

from typing import Any, NoReturn

import pytest
from kafka.errors import KafkaTimeoutError

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import LeaseLostError, UsageError
from jobs.execution.admin.throttle_configs import UNTHROTTLED, ResourceKind, parse_throttle, throttle_configs
from jobs.execution.admin.throttles import ThrottleError, clear_throttle, set_throttle, throttle_of, throttle_rows
from jobs.repositories.actor import this_actor
from jobs.runtime.settings import Settings
from schemas.rows import Change, ThrottledConfig
from schemas.topic_configs import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from tests.jobs.support.controllers.throttled_tree import (
    RATES,
    ConfigBrokers,
    CrashError,
    Overrides,
    override,
    overrides,
)
from tests.jobs.support.zookeeper.client_cluster import ClientCluster
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.typed_rows import typed

PLAN, OTHER = "p1", "p2"
REQUESTS = 6  # brokers 0, 1, 2, 3 and topics t, u


def move(topic: str, partition: int, before: list[int], after: list[int]) -> Change:
    return typed(topic=topic, partition=partition, adding_before=[], replicas_before=before, replicas_after=after)


FIRST = [move("t", 0, [0, 1], [1, 3]), move("t", 10, [0, 2], [2, 0]), move("u", 2, [1, 2], [1, 2, 0])]
SECOND = [move("u", 0, [1, 2], [2, 3])]


def rates(rate: int, *brokers: int) -> Overrides:
    return {f"brokers/{broker}": dict.fromkeys(RATES, str(rate)) for broker in brokers}


def replicas(leaders: str, followers: str) -> dict[str, str]:
    return {LEADER_REPLICAS: leaders, FOLLOWER_REPLICAS: followers}


@pytest.fixture
def kafka(tree: KafkaTree) -> KafkaTree:
    tree.register(3)
    for topic in ("t", "u"):
        tree.add_topic(topic, {0: [0, 1]})
    return tree


@pytest.fixture
def brokers(kafka: KafkaTree) -> ConfigBrokers:
    return ConfigBrokers(kafka)


def throttle(  # noqa: PLR0913, PLR0917 - as the function has
    brokers: ConfigBrokers, settings: Settings, plan: str, moves: list[Change], rate: int, attempt: int | None = None
) -> None:
    set_throttle(settings.warehouse, ClientCluster(brokers.tree.client), brokers, plan, moves, rate, attempt=attempt)


def clear(brokers: ConfigBrokers, settings: Settings) -> list[ThrottledConfig]:
    return clear_throttle(settings.warehouse, ClientCluster(brokers.tree.client), brokers, PLAN)


def test_rates_and_replicas_as_kafkas_tool_sets_them(
    kafka: KafkaTree, brokers: ConfigBrokers, settings: Settings
) -> None:
    throttle(brokers, settings, PLAN, FIRST, 1000)

    assert overrides(kafka) == {
        **rates(1000, 0, 1, 2, 3),
        "topics/t": replicas("0:0,0:1", "0:3"),
        "topics/u": replicas("2:1,2:2", "2:0"),
    }
    assert [kind for kind, _ in brokers.alterations] == ["broker"] * 4 + ["topic"] * 2
    assert throttle_of(throttle_rows(settings.warehouse, PLAN)) == 1000


def test_kafkas_own_vector() -> None:
    """`ReassignPartitionsUnitTest.testMoveMap`; each partition has replicas that stay and replicas that are added."""
    foo = [([1, 2, 3], [5]), ([4, 5, 6], [7, 8]), ([1, 2], [3, 4]), ([1, 2], [5, 6]), ([1, 2], [1, 2, 3])]
    foo.append(([1, 2], [3, 4, 5, 6]))
    moves = [move("foo", partition, before, after) for partition, (before, after) in enumerate(foo)]

    configs = throttle_configs([*moves, move("bar", 0, [2, 3, 4], [1])], 1000)

    assert [name for kind, name in configs if kind is ResourceKind.BROKER] == [str(broker) for broker in range(1, 9)]
    assert configs[ResourceKind.TOPIC, "bar"] == replicas("0:2,0:3,0:4", "0:1")
    assert configs[ResourceKind.TOPIC, "foo"] == replicas(
        "0:1,0:2,0:3,1:4,1:5,1:6,2:1,2:2,3:1,3:2,4:1,4:2,5:1,5:2",
        "0:5,1:7,1:8,2:3,2:4,3:5,3:6,4:3,5:3,5:4,5:5,5:6",
    )


def test_previous_configs_are_restored(kafka: KafkaTree, brokers: ConfigBrokers, settings: Settings) -> None:
    override(kafka, "broker", "1", {LEADER_RATE: "7", "log.cleaner.threads": "2"})
    override(kafka, "topic", "t", {LEADER_REPLICAS: "*", "retention.ms": "9"})
    before = overrides(kafka)

    throttle(brokers, settings, PLAN, FIRST, 1000)
    throttle(brokers, settings, PLAN, FIRST, 2000)
    raised = overrides(kafka)
    left = clear(brokers, settings)

    assert raised["brokers/1"] == {LEADER_RATE: "2000", FOLLOWER_RATE: "2000", "log.cleaner.threads": "2"}
    assert raised["topics/t"] == {**replicas("0:0,0:1", "0:3"), "retention.ms": "9"}
    assert (overrides(kafka), left, throttle_rows(settings.warehouse)) == (before, [], [])


def test_the_next_wave_throttles_its_own_moves_alone(
    kafka: KafkaTree, brokers: ConfigBrokers, settings: Settings
) -> None:
    override(kafka, "broker", "0", {LEADER_RATE: "7"})
    throttle(brokers, settings, PLAN, FIRST, 1000)

    throttle(brokers, settings, PLAN, SECOND, 1000)
    throttled = overrides(kafka)
    clear(brokers, settings)

    assert throttled == {
        "brokers/0": {LEADER_RATE: "7"},
        **rates(1000, 1, 2, 3),
        "topics/u": replicas("0:1,0:2", "0:3"),
    }
    assert overrides(kafka) == {"brokers/0": {LEADER_RATE: "7"}}


def test_rate_none_removes_it(kafka: KafkaTree, brokers: ConfigBrokers, settings: Settings) -> None:
    throttle(brokers, settings, PLAN, FIRST, 1000)
    throttle(brokers, settings, PLAN, FIRST, UNTHROTTLED)

    assert (overrides(kafka), throttle_rows(settings.warehouse)) == ({}, [])


def test_reordering_alone_is_not_throttled(kafka: KafkaTree, brokers: ConfigBrokers, settings: Settings) -> None:
    throttle(brokers, settings, PLAN, [move("t", 0, [0, 1], [1, 0]), move("t", 1, [0, 1], [1])], 1000)

    assert (overrides(kafka), throttle_rows(settings.warehouse)) == ({}, [])


@pytest.mark.parametrize("requests", range(REQUESTS))
def test_crash_while_it_is_set(kafka: KafkaTree, brokers: ConfigBrokers, settings: Settings, requests: int) -> None:
    override(kafka, "broker", "1", {LEADER_RATE: "7"})
    before = overrides(kafka)
    brokers.crashes = requests
    with pytest.raises(CrashError):
        throttle(brokers, settings, PLAN, FIRST, 1000)

    clear(ConfigBrokers(kafka), settings)

    assert (overrides(kafka), throttle_rows(settings.warehouse)) == (before, [])


@pytest.mark.parametrize("requests", range(REQUESTS))
def test_crash_while_it_is_changed_or_cleared(
    kafka: KafkaTree, brokers: ConfigBrokers, settings: Settings, requests: int
) -> None:
    override(kafka, "broker", "1", {LEADER_RATE: "7"})
    before = overrides(kafka)
    throttle(brokers, settings, PLAN, FIRST, 1000)
    for work in (
        lambda: throttle(brokers, settings, PLAN, FIRST, 2000),
        lambda: clear(brokers, settings),
    ):
        brokers.alterations.clear()
        brokers.crashes = requests
        with pytest.raises(CrashError):
            work()

    clear(ConfigBrokers(kafka), settings)

    assert (overrides(kafka), throttle_rows(settings.warehouse)) == (before, [])


def test_a_broker_that_refuses_keeps_its_row(kafka: KafkaTree, brokers: ConfigBrokers, settings: Settings) -> None:
    throttle(brokers, settings, PLAN, FIRST, 1000)
    brokers.refuses = "1"

    left = clear(brokers, settings)
    after = overrides(kafka)
    brokers.refuses = None
    clear(brokers, settings)

    assert {(row.kind, row.resource) for row in left} == {("broker", "1")}
    assert after == rates(1000, 1)
    assert (overrides(kafka), throttle_rows(settings.warehouse)) == ({}, [])


def test_no_throttle_if_a_broker_refuses_it(kafka: KafkaTree, brokers: ConfigBrokers, settings: Settings) -> None:
    brokers.refuses = "2"
    with pytest.raises(ThrottleError, match="broker 2 refused the throttle: not now"):
        throttle(brokers, settings, PLAN, FIRST, 1000)
    brokers.refuses = None

    clear(brokers, settings)

    assert overrides(kafka) == {}


def test_dead_broker_is_cleared_once_it_is_back(kafka: KafkaTree, brokers: ConfigBrokers, settings: Settings) -> None:
    throttle(brokers, settings, PLAN, FIRST, 1000)
    kafka.unregister(1)
    clear(brokers, settings)
    dead = overrides(kafka)
    kafka.register(1)

    clear(brokers, settings)

    assert dead == rates(1000, 1)
    assert (overrides(kafka), throttle_rows(settings.warehouse)) == ({}, [])


def test_dead_brokers_and_deleted_topics_are_left_out(
    kafka: KafkaTree, brokers: ConfigBrokers, settings: Settings
) -> None:
    kafka.unregister(1)
    throttle(brokers, settings, PLAN, [*FIRST, move("gone", 0, [0], [2])], 1000)
    kafka.client.delete("/brokers/topics/u", recursive=True)
    kafka.client.delete("/config/topics/u")
    clear(brokers, settings)

    assert (overrides(kafka), throttle_rows(settings.warehouse)) == ({}, [])


def test_values_set_by_another_client_stay(
    kafka: KafkaTree, brokers: ConfigBrokers, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    throttle(brokers, settings, PLAN, FIRST, 1000)
    override(kafka, "broker", "2", {FOLLOWER_RATE: "5"})
    clear(brokers, settings)

    assert (overrides(kafka), throttle_rows(settings.warehouse)) == ({"brokers/2": {FOLLOWER_RATE: "5"}}, [])
    assert capsys.readouterr().err.splitlines() == [
        f"surveyor: {FOLLOWER_RATE} of broker 2 was altered by another client: left at 5",
        f"  throttle of plan {PLAN} cleared",
    ]


def test_plans_keep_to_their_own_rows(kafka: KafkaTree, brokers: ConfigBrokers, settings: Settings) -> None:
    throttle(brokers, settings, PLAN, [move("t", 0, [0], [1])], 1000)
    throttle(brokers, settings, OTHER, [move("u", 0, [2], [3])], 2000)

    clear(brokers, settings)

    assert overrides(kafka) == {**rates(2000, 2, 3), "topics/u": replicas("0:2", "0:3")}
    assert {row.plan_id for row in throttle_rows(settings.warehouse)} == {OTHER}


def throttle_commits(warehouse: Warehouse) -> list[tuple[int, str, str, str]]:
    """The rows of `commits` on throttles, in order."""
    rows = sorted(warehouse.rows("commits"), key=lambda row: (row["committed_at"], row["message"]))
    return [(row["attempt"], row["action"], row["outcome"], row["message"]) for row in rows]


def test_set_and_removed_throttles_stay_in_commits(
    kafka: KafkaTree, brokers: ConfigBrokers, settings: Settings
) -> None:
    """No other record is left once a throttle is removed."""
    override(kafka, "broker", "0", {LEADER_RATE: "7"})
    throttle(brokers, settings, PLAN, [move("t", 0, [0], [1])], 1000, attempt=4)
    brokers.refuses = "1"
    clear(brokers, settings)

    both = f"{FOLLOWER_RATE}=1000"
    set_to = [f"broker {broker}: {LEADER_RATE}=1000, {both}" for broker in (0, 1)]
    set_to.append(f"topic t: {LEADER_REPLICAS}=0:0, {FOLLOWER_REPLICAS}=0:1")
    back = [
        f"broker 0: {FOLLOWER_RATE} not set, {LEADER_RATE}=7",
        f"broker 1: {FOLLOWER_RATE} not set, {LEADER_RATE} not set",
        f"topic t: {FOLLOWER_REPLICAS} not set, {LEADER_REPLICAS} not set",
    ]
    ends = [("applied", "accepted"), ("failed", "not now"), ("applied", "accepted")]
    assert throttle_commits(settings.warehouse) == [
        *((4, "throttle", "pending", words) for words in set_to),
        *((4, "throttle", "applied", f"{words}: accepted") for words in set_to),
        *((5, "lift_throttle", "pending", words) for words in back),
        *((5, "lift_throttle", end, f"{words}: {reason}") for words, (end, reason) in zip(back, ends, strict=True)),
    ]
    assert {row["who"] for row in settings.warehouse.rows("commits")} == {this_actor().user}


@pytest.mark.parametrize(
    ("error", "outcomes"),
    [(CrashError(), ["applied", "unknown", "skipped"]), (LeaseLostError("it is"), ["applied", "skipped", "skipped"])],
)
def test_outcome_of_each_is_recorded_after_an_interruption(
    brokers: ConfigBrokers,
    settings: Settings,
    error: Exception,
    outcomes: list[str],
) -> None:
    """The outcome of the last request is unknown, unless it was never sent."""

    def alter_once() -> None:
        if brokers.alterations:
            raise error

    brokers.before_alteration = alter_once
    with pytest.raises(type(error)):
        throttle(brokers, settings, PLAN, [move("t", 0, [0], [1])], 1000)

    assert [outcome for _, _, outcome, _ in throttle_commits(settings.warehouse)[3:]] == outcomes


def test_unanswered_request_may_have_been_applied(brokers: ConfigBrokers, settings: Settings) -> None:
    def silent() -> NoReturn:
        raise KafkaTimeoutError

    brokers.before_alteration = silent
    with pytest.raises(ThrottleError, match="no answer"):
        throttle(brokers, settings, PLAN, [move("t", 0, [0], [1])], 1000)

    assert [outcome for _, _, outcome, _ in throttle_commits(settings.warehouse)[3:]] == [
        "unknown",
        "skipped",
        "skipped",
    ]


def test_nothing_to_clear_sends_no_request(kafka: KafkaTree, settings: Settings) -> None:
    assert clear_throttle(settings.warehouse, ClientCluster(kafka.client), _no_brokers(), PLAN) == []


def _no_brokers() -> Any:  # noqa: ANN401 - not to be touched
    return None


@pytest.mark.parametrize(
    ("text", "rate"),
    [("1", 1), ("50MB/s", 50_000_000), ("50MB", 50_000_000), ("0.5kB/s", 500), ("2GiB", 2**31), ("7B/s", 7)],
)
def test_rates_are_read(text: str, rate: int) -> None:
    assert parse_throttle(text) == rate


@pytest.mark.parametrize("text", ["", "0", "-1", "50 MB", "50mb", "50Mbit", "1e6", "0.1", "50MB/h", "9" * 30, "٣"])
def test_invalid_rate_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no rate: expected"):
        parse_throttle(text)
