"""Random clusters, and all small ones: partitions of every kind, brokers that are live, not understood or dead."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import permutations, product
from typing import Final

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from schemas.enums import NO_LEADER
from schemas.rows import Row
from tests.planner.frames import RuleInput, config_row, partition_row, topic_row

BROKERS: Final = range(6)
DELETED: Final = "deleted"
"""A topic that is queued for deletion."""

TOPICS: Final = [
    topic_row("plain"),
    topic_row("unclean", config={"unclean.leader.election.enable": "true"}),
    topic_row("shouting", config={"unclean.leader.election.enable": " TRUE\t", "min.insync.replicas": " 2"}),
    topic_row("clean", config={"unclean.leader.election.enable": "false"}),
    topic_row(DELETED, deletion_requested=True),
    topic_row("unread", understood=False, config={"unclean.leader.election.enable": None, "min.insync.replicas": None}),
    topic_row("illegible", understood=False, config=None),
]
NAMES: Final = [topic["topic"] for topic in TOPICS] + ["unlisted"]
"""Topics of partitions; the last has no row in topics."""

UNCLEAN_BROKERS: Final = [config_row(broker, "unclean.leader.election.enable", "true") for broker in (0, 1)]

BATCHES: Final = settings(
    max_examples=4,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking takes minutes; the diff names the partition
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
"""An example is a whole cluster, which Spark plans in half a second. So examples are few and large; the first is small.
"""

_ids = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True)


@st.composite
def _partitions(draw: st.DrawFn) -> Row:
    """Draw any partition: the ISR mostly among the replicas, the leader mostly in the ISR, some without a state."""
    replicas = draw(_ids)
    some = st.permutations(replicas).map(lambda ids: ids[: 1 + ids[0] % len(ids)])
    isr = draw(st.one_of(some, some, some, _ids, _ids, _ids, st.just(list[int]())))
    leaders = [None, NO_LEADER, *isr, *isr]
    leader = draw(st.one_of(st.sampled_from(leaders), st.sampled_from([NO_LEADER, *BROKERS])))
    columns: Row = {"topic": draw(st.sampled_from(NAMES)), "understood": draw(st.integers(0, 9)) > 0}
    if leader is None:
        return partition_row(replicas, None, None, **columns)
    numbers = ("leader_epoch", "controller_epoch", "state_version")
    columns |= {name: draw(st.integers(0, 50)) for name in numbers}
    columns["leader_recovery_state"] = draw(st.integers(0, 1))
    return partition_row(replicas, leader, isr, **columns)


@st.composite
def _configs(draw: st.DrawFn) -> list[Row]:
    """Draw the configs of up to two brokers: most allow unclean elections, some do not, some did not answer."""
    values = [*[("true", False)] * 4, (" TRUE ", False), ("false", False), ("true", True), (None, False)]
    drawn = draw(st.lists(st.sampled_from(values), max_size=2))
    rows = [
        config_row(broker, "unclean.leader.election.enable", value, assumed=assumed)
        for broker, (value, assumed) in enumerate(drawn)
    ]
    return [*rows, config_row(0, "min.insync.replicas", "2")]


@st.composite
def rule_inputs(draw: st.DrawFn) -> RuleInput:
    """Draw 30 to 60 partitions on shared brokers; of a list that may be short, Hypothesis draws six on average."""
    rows = draw(st.lists(_partitions(), min_size=30, max_size=60))
    partitions = [row | {"partition": number} for number, row in enumerate(rows)]
    fates = draw(st.lists(st.sampled_from(["live", "live", "dead", "opaque"]), min_size=6, max_size=6))
    live = frozenset(broker for broker in BROKERS if fates[broker] == "live")
    opaque = frozenset(broker for broker in BROKERS if fates[broker] == "opaque")
    return RuleInput(partitions, TOPICS, live, opaque, draw(_configs()))


@cache
def all_small_partitions() -> RuleInput:
    """Return all partitions of up to two replicas and two in sync, on two live, two dead, one not understood broker."""
    brokers: Final = range(5)
    ids = [list(some) for size in (1, 2) for some in permutations(brokers, size)]
    states = [*product([NO_LEADER, *brokers], [[], *ids]), (None, None)]
    rows = [
        partition_row(replicas, leader, isr, topic=topic)
        for topic, replicas, (leader, isr) in product(("plain", "unclean"), ids, states)
    ]
    numbered = [row | {"partition": number} for number, row in enumerate(rows)]
    return RuleInput(numbered, TOPICS, frozenset({0, 1}), frozenset({2}))


def is_sane(row: Row) -> bool:
    """Return whether a partition is as Kafka leaves it: the ISR among the replicas, the leader in the ISR or none."""
    if row["leader"] is None:
        return True
    return set(row["isr"]) <= set(row["replicas"]) and row["leader"] in {NO_LEADER, *row["isr"]}


def applied(rule_input: RuleInput, changes: Mapping[tuple[str, int], Row]) -> RuleInput:
    """Return the input after all changes are written."""
    partitions = []
    for row in rule_input.partitions:
        change = changes.get((row["topic"], row["partition"]))
        names = ("leader", "isr", "leader_epoch", "leader_recovery_state")
        after = {} if change is None else {name: change[f"{name}_after"] for name in names}
        version = {} if change is None else {"state_version": change["state_version"] + 1, "controller_epoch": 8}
        partitions.append(row | after | version)
    return replace(rule_input, partitions=partitions)
