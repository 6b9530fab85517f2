"""Restarts in plain Python: what is called safe survives the restart by other rules; waves hurt no more than steps."""

from collections import Counter
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planner.rules.effective_min_isr import known_min_isr
from planner.rules.inputs import BrokerSets
from planner.rules.leadership import offline_election
from planner.rules.restart_effect import RestartedPartition, restart_effect
from planner.rules.restart_order import InSyncNeed, restart_order
from schemas.enums import RestartEffect
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.rows import BrokerConfig
from tests.planner.frames import broker_config, partition_info
from tests.planner.rules.clusters import RandomCluster
from tests.planner.rules.test_equality import RandomClusters

OFFLINE, UNDER, BELOW, UNKNOWN = RestartEffect
TOPIC = TopicInfo(topic="t", topic_version=0, config={"min.insync.replicas": "2"})
DEFAULTS = dict.fromkeys(range(6), 1)

Broken = st.sets(st.integers(0, 6), min_size=1, max_size=3)


CASES = {
    "all in sync": (partition_info([1, 2, 3], 1, [1, 2, 3]), {1}, 0, None),
    "not its replica": (partition_info([1, 2, 3], 1, [1]), {4}, 0, None),
    "two at once": (partition_info([1, 2, 3], 1, [1, 2, 3]), {1, 2}, 0, (UNDER, "TOO_FEW_REPLICAS")),
    "margin": (partition_info([1, 2, 3], 1, [1, 2, 3]), {1}, 1, (BELOW, "TOO_FEW_REPLICAS")),
    "margin, of four": (partition_info([1, 2, 3, 4], 1, [1, 2, 3]), {1}, 1, (BELOW, "TOO_FEW_IN_SYNC")),
    "a dead member of the ISR": (partition_info([1, 2, 9], 1, [1, 2, 9]), {1}, 0, (UNDER, "TOO_FEW_IN_SYNC")),
    "a follower alone lags": (partition_info([1, 2, 3], 1, [1, 2]), {3}, 0, None),
    "the other one lags": (partition_info([1, 2, 3], 1, [1, 2]), {2}, 0, (UNDER, "TOO_FEW_IN_SYNC")),
    "last in sync": (partition_info([1, 2, 3], 1, [1]), {1}, 0, (OFFLINE, "NO_OTHER_IN_SYNC")),
    "only replica": (partition_info([1], 1, [1]), {1}, 0, (OFFLINE, "ONLY_REPLICA")),
    "dead leader": (partition_info([1, 2, 9], 9, [9]), {1}, 0, (OFFLINE, "NO_LIVE_LEADER")),
    "in sync, not assigned": (partition_info([1], 1, [1, 2]), {1}, 0, (OFFLINE, "ONLY_REPLICA")),
    "to the restarted one": (
        partition_info([4, 1, 2, 3], 1, [1, 2, 3], adding_replicas=[4], removing_replicas=[1, 2, 3]),
        {4},
        0,
        (OFFLINE, "ONLY_TARGET"),
    ),
    "to too few": (
        partition_info([4, 3, 1, 2], 1, [1, 2, 3], adding_replicas=[4], removing_replicas=[1, 2]),
        {4},
        0,
        (UNDER, "TOO_FEW_REPLICAS"),
    ),
    "the source": (
        partition_info([4, 5, 1], 1, [1], adding_replicas=[4, 5], removing_replicas=[1]),
        {1},
        0,
        (OFFLINE, "NO_OTHER_IN_SYNC"),
    ),
    "no state": (partition_info([1, 2, 3], None, None), {1}, 0, (UNKNOWN, "NO_STATE")),
    "depends on an opaque one": (partition_info([1, 2, 5], 1, [1, 2, 5]), {1}, 0, (UNKNOWN, "BROKER_UNCERTAIN")),
    "led by an opaque one": (partition_info([1, 5], 1, [1, 5]), {1}, 0, (UNKNOWN, "BROKER_UNCERTAIN")),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_examples(case: tuple[PartitionInfo, set[int], int, tuple[RestartEffect, str] | None]) -> None:
    row, restarting, margin, expected = case
    brokers = BrokerSets.of({1: True, 2: True, 3: True, 4: True, 5: False}, {})
    effect = restart_effect(row, TOPIC, brokers, DEFAULTS, restarting=frozenset(restarting), margin=margin)
    assert (None if effect is None else (effect.effect, effect.code)) == expected


FULL_CASES = {
    "a dead member of the ISR": (partition_info([1, 2, 9], 1, [1, 2, 9]), {1}, 0, (UNDER, None)),
    "the other one is down": (partition_info([1, 9], 1, [1]), {1}, 0, (OFFLINE, UNDER)),
    "the others are down": (partition_info([1, 8, 9], 1, [1]), {1}, 1, (OFFLINE, BELOW)),
    "last in sync": (partition_info([1, 2, 3], 1, [1]), {1}, 0, (OFFLINE, None)),
    "only replica": (partition_info([1], 1, [1]), {1}, 0, (OFFLINE, OFFLINE)),
    "offline now": (partition_info([1, 2, 9], 9, [9]), {1}, 0, (OFFLINE, None)),
    "two at once": (partition_info([1, 2, 3], 1, [1, 2, 3]), {1, 2}, 0, (UNDER, UNDER)),
    "an opaque one is down": (partition_info([1, 2, 5], 1, [1, 2]), {2}, 0, (UNDER, UNKNOWN)),
    "no state": (partition_info([1, 2, 3], None, None), {1}, 0, (UNKNOWN, UNKNOWN)),
}
"""The effect with the present ISR, and with a full one."""


@pytest.mark.parametrize("case", FULL_CASES.values(), ids=FULL_CASES)
def test_the_effect_with_a_full_isr(
    case: tuple[PartitionInfo, set[int], int, tuple[RestartEffect, RestartEffect | None]],
) -> None:
    row, restarting, margin, expected = case
    brokers = BrokerSets.of({1: True, 2: True, 3: True, 4: True, 5: False}, {})
    effect = restart_effect(row, TOPIC, brokers, DEFAULTS, restarting=frozenset(restarting), margin=margin)
    assert effect is not None
    assert (effect.effect, effect.effect_with_full_isr) == expected


def by_defaults(**values: str) -> RestartedPartition | None:
    """The effect of a restart of broker 1, which leads, where brokers have these min.insync.replicas."""
    row, topic = partition_info([1, 2, 3], 1, [1, 2, 3]), TopicInfo(topic="t", topic_version=0, config={})
    brokers = BrokerSets.of(dict.fromkeys((1, 2, 3), True), {})
    configs = [broker_config(int(name[1]), "min.insync.replicas", value) for name, value in values.items()]
    return restart_effect(row, topic, brokers, known_min_isr(configs), restarting=frozenset({1}))


@pytest.mark.parametrize("values", [{"b2": "1", "b3": "2"}, {"b1": "3", "b2": "1", "b3": "1"}])
def test_the_defaults_of_brokers_that_may_lead_count(values: dict[str, str]) -> None:
    """Broker 1 leads again only once it is back and in sync."""
    assert by_defaults(**values) is None


def test_a_default_that_cannot_be_read_leaves_the_effect_unknown() -> None:
    lacking = by_defaults(b1="1", b3="1")
    assert lacking is not None
    assert (lacking.effect, lacking.reason) == (
        UNKNOWN,
        "its topic does not set min.insync.replicas, and the default of broker 2 cannot be read",
    )


def test_the_highest_default_of_those_that_may_lead_counts() -> None:
    higher = by_defaults(b2="1", b3="3")
    assert higher is not None
    assert (higher.effect, higher.min_isr, higher.in_sync_after) == (UNDER, 3, 2)


def test_an_assumed_default_is_not_known() -> None:
    assert known_min_isr([broker_config(1, "min.insync.replicas", "2", assumed=True)]) == {}


def effects(
    cluster: RandomCluster, restarting: set[int], margin: int
) -> dict[tuple[str, int], RestartedPartition | None]:
    state, known = cluster.state(), known_min_isr(BrokerConfig(**row) for row in cluster.configs)
    found = {}
    for key, row in state.partitions.items():
        brokers = state.brokers.with_failed(state.failed.get(key, ()))
        topic = state.topics.get(row.topic)
        found[key] = restart_effect(row, topic, brokers, known, restarting=frozenset(restarting), margin=margin)
    return found


@given(RandomClusters, Broken, st.integers(0, 2))
def test_what_is_safe_keeps_a_leader_and_enough_in_sync(
    cluster: RandomCluster, restarting: set[int], margin: int
) -> None:
    """Judged by the election after failures, on the cluster without the restarted brokers."""
    state = cluster.state()
    left = BrokerSets.of({b: known for b, known in cluster.brokers.items() if b not in restarting}, cluster.drained)
    for key, effect in effects(cluster, restarting, margin).items():
        row, topic = state.partitions[key], state.topics.get(key[0])
        is_deleted = topic is not None and topic.deletion_requested
        if effect is not None or is_deleted or restarting.isdisjoint(row.brokers):
            continue
        brokers = left.with_failed(state.failed.get(key, ()))
        assert row.leader in brokers.live or offline_election(row, brokers, unclean_allowed=False) is not None
        assert topic is not None
        assert topic.config is not None
        least = int(topic.config.get("min.insync.replicas") or 1)
        assert len(brokers.live.intersection(row.isr or [])) >= least + margin


@example(RandomCluster(Random(41)), {0}, {4}, 0)  # noqa: S311 - broker 4 has a higher default
@given(RandomClusters, Broken, Broken, st.integers(0, 1))
def test_more_brokers_or_more_margin_are_never_safer(
    cluster: RandomCluster, some: set[int], others: set[int], margin: int
) -> None:
    state, few = cluster.state(), effects(cluster, some, margin)
    more, stricter = effects(cluster, some | others, margin), effects(cluster, some, margin + 1)
    for key, effect in few.items():
        if effect is not None and not some.isdisjoint(state.partitions[key].brokers):
            assert more[key] is not None
            assert stricter[key] is not None


NEEDS = st.dictionaries(
    st.builds(InSyncNeed, st.frozensets(st.integers(0, 8), max_size=4), st.none() | st.integers(1, 3)),
    st.integers(1, 9),
)
RACKS = st.dictionaries(st.integers(0, 8), st.sampled_from(["a", "b", None]), min_size=1)


@given(NEEDS, RACKS, st.integers(0, 8), st.integers(0, 1))
def test_order(needs: dict[InSyncNeed, int], racks: dict[int, str | None], controller: int, margin: int) -> None:
    """Each broker has one step, the controller the last; a wave is of one rack, and hurts no more than its steps."""
    needs = {InSyncNeed(need.replicas.intersection(racks), need.min_isr): count for need, count in needs.items()}
    steps = restart_order(needs, racks, [], controller, margin=margin)
    assert sorted(step.broker_id for step in steps) == sorted(racks)
    assert [step.wave for step in steps] == sorted(step.wave for step in steps)
    waves: dict[int, set[int]] = {}
    for step in steps:
        waves.setdefault(step.wave, set()).add(step.broker_id)
    assert controller not in racks or waves[steps[-1].wave] == {controller}
    for wave in waves.values():
        assert len(wave) == 1 or len({racks[broker] for broker in wave} - {None}) == 1
        for need in needs:
            down = need.replicas & wave
            remaining = len(need.replicas) - len(down)
            is_enough = need.min_isr is not None and remaining >= max(1, need.min_isr + margin)
            assert len(down) <= 1 or is_enough


def test_what_steps_hurt() -> None:
    needs = Counter(
        {
            InSyncNeed(frozenset({1, 2}), 2): 3,
            InSyncNeed(frozenset({1}), 1): 1,
            InSyncNeed(frozenset({1, 2, 3}), None): 2,
        }
    )
    steps = restart_order(needs, {1: "a", 2: "b", 3: None}, [], None, margin=0)
    assert [(step.broker_id, step.harmed) for step in steps] == [
        (1, {OFFLINE: 1, UNDER: 3, UNKNOWN: 2}),
        (2, {UNDER: 3, UNKNOWN: 2}),
        (3, {UNKNOWN: 2}),
    ]
    assert all(step.harmed_now == step.harmed for step in steps)
    assert steps == restart_order(needs, {3: None, 2: "b", 1: "a"}, [], None)


def test_steps_with_the_present_isrs_and_with_full_ones() -> None:
    """Broker 3 is down, and 2 lags in some partitions."""
    replicas = frozenset({1, 2, 3})
    needs = {
        InSyncNeed(replicas, 2, frozenset({1, 2})): 18,
        InSyncNeed(replicas, 2, frozenset({1})): 5,
        InSyncNeed(frozenset({1, 3}), 1, frozenset({1})): 4,
        InSyncNeed(frozenset({1}), 1): 2,
    }
    steps = restart_order(needs, {1: "a", 2: "b", 3: "c"}, [3], None)
    assert [(step.broker_id, step.harmed, step.harmed_now) for step in steps] == [
        (3, {}, {}),
        (1, {OFFLINE: 2}, {OFFLINE: 11, UNDER: 18}),
        (2, {}, {UNDER: 23}),
    ]
