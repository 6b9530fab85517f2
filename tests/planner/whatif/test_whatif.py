"""The impact of losing brokers: worked examples, and every scenario compared with brute force."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from planner.columns.broker_sets import with_drained
from planner.columns.partition_masks import lost_partitions
from planner.whatif.impact import BrokersLost, whatif
from schemas.enums import NO_LEADER, FailureScenario
from schemas.rows import Row
from schemas.tables import BROKER_CONFIGS, BROKERS, DRAINED, PARTITIONS, TOPICS, WHATIF
from tests.planner.frames import (
    CLUSTER,
    RuleInput,
    arrays_of,
    as_rows,
    assert_rows,
    broker_row,
    config_row,
    frame,
    partition_row,
    topic_row,
)
from tests.planner.rule_inputs import BATCHES, all_small_partitions, rule_inputs
from tests.planner.rule_inputs import BROKERS as BROKER_IDS
from tests.planner.whatif import whatif_oracle

Racks = Mapping[int, str | None]
Loss = FailureScenario | BrokersLost

TOGETHER: Final = BrokersLost("brokers 0+1+2", [0, 1, 2])

RACKS: Final[Racks] = {0: "a", 1: "a", 2: "b"}


def _whatif(
    spark: SparkSession, rule_input: RuleInput, lose: Loss, racks: Racks = RACKS, drained: Sequence[int] = ()
) -> DataFrame:
    registered = sorted(rule_input.registered)
    brokers = [broker_row(b, understood=b in rule_input.live, rack=racks.get(b)) for b in registered]
    return whatif(
        frame(spark, rule_input.partitions, PARTITIONS),
        frame(spark, rule_input.topics, TOPICS),
        with_drained(
            frame(spark, brokers, BROKERS),
            frame(spark, [{"broker_id": broker, "mode": "admin"} for broker in drained], DRAINED),
        ),
        frame(spark, rule_input.configs, BROKER_CONFIGS),
        snapshot_id=3,
        lose=lose,
    )


def _rule_input(*partitions: Row, live: Sequence[int] = (0, 1, 2, 3), opaque: Sequence[int] = ()) -> RuleInput:
    numbered = [{**row, "partition": number} for number, row in enumerate(partitions)]
    topics = [topic_row("t"), topic_row("three", config={"min.insync.replicas": "3"}), topic_row("two")]
    topics.append(topic_row("deleted", deletion_requested=True))
    return RuleInput(numbered, topics, frozenset(live), frozenset(opaque), [config_row(0, "min.insync.replicas", "2")])


ALL: Final = partition_row([0, 1, 2], 0, [2, 1, 0])
LAGGING: Final = partition_row([0, 1, 2], 0, [0])
ALONE: Final = partition_row([0], 0, [0])

COUNTS: Final = ("newly_offline", "unclean_only", "no_replica", "newly_under_min_isr", "leaders_moved")

# brokers lost, the partition, and the impact: COUNTS; brokers 0 to 3 are live, 7 is not understood
CASES: Final = [
    ("broker 0", ALL, (0, 0, 0, 0, 1)),
    ("broker 1", ALL, (0, 0, 0, 0, 0)),
    ("broker 3", ALL, (0, 0, 0, 0, 0)),
    ("brokers 0+1", ALL, (0, 0, 0, 1, 1)),
    ("brokers 1+2", ALL, (0, 0, 0, 1, 0)),
    ("brokers 0+3", ALL, (0, 0, 0, 0, 1)),
    ("rack a", ALL, (0, 0, 0, 1, 1)),
    ("rack b", ALL, (0, 0, 0, 0, 0)),
    ("broker 3", partition_row([3, 0, 1], 3, [3, 0]), (0, 0, 0, 1, 1)),
    ("broker 0", LAGGING, (1, 1, 0, 0, 0)),
    ("rack a", LAGGING, (1, 1, 0, 0, 0)),
    ("brokers 0+1", LAGGING, (1, 1, 0, 0, 0)),
    ("broker 1", LAGGING, (0, 0, 0, 0, 0)),
    ("broker 0", ALONE, (1, 0, 1, 0, 0)),
    ("brokers 0+3", ALONE, (1, 0, 1, 0, 0)),
    ("brokers 0+1", partition_row([0, 1, 2], 0, [0, 1]), (1, 1, 0, 1, 0)),
    ("brokers 0+1", partition_row([0, 1], 0, [0, 1]), (1, 0, 1, 1, 0)),
    ("brokers 0+1", partition_row([0, 1], 0, [0]), (1, 0, 1, 0, 0)),
    ("broker 2", {**ALL, "topic": "three"}, (0, 0, 0, 1, 0)),  # the topic's config
    ("broker 0", partition_row([9, 0, 1], 9, [9, 0, 1]), (0, 0, 0, 1, 1)),  # an election is due: 0 leads
    ("broker 1", partition_row([9, 0, 1], 9, [9, 0, 1]), (0, 0, 0, 1, 0)),
    ("broker 0", partition_row([9, 0], NO_LEADER, [9]), (0, 0, 0, 0, 0)),  # offline already
    ("broker 0", partition_row([0, 7], 0, [0, 7]), (1, 0, 0, 1, 0)),  # the remaining broker is not understood
    ("broker 0", partition_row([0, 7], 0, [0]), (1, 0, 1, 0, 0)),
    ("broker 7", partition_row([7, 0], 7, [7, 0]), (0, 0, 0, 1, 1)),  # its loss counts too
    ("broker 1", partition_row([0, 1], None, None), (0, 0, 0, 0, 0)),  # no state, so no leader
    ("broker 0", partition_row([0, 1], 0, [0], understood=False), (0, 0, 0, 0, 0)),
    ("broker 0", {**ALONE, "topic": "deleted"}, (0, 0, 0, 0, 0)),
]


def _kind(scenario: str) -> FailureScenario:
    return {"brokers": FailureScenario.PAIRS, "broker": FailureScenario.BROKERS, "rack": FailureScenario.RACKS}[
        scenario.split(maxsplit=1)[0]
    ]


def _moved(broker_ids: Sequence[int], block: int) -> list[int]:
    return [broker + 10 * block for broker in broker_ids]


def _in_block(row: Row, block: int) -> Row:
    """Move a case's partition to brokers of its own, ten per case."""
    leader = row["leader"] if row["leader"] in {None, NO_LEADER} else row["leader"] + 10 * block
    isr = None if row["isr"] is None else _moved(row["isr"], block)
    return {**row, "replicas": _moved(row["replicas"], block), "leader": leader, "isr": isr}


@pytest.mark.parametrize("lose", FailureScenario)
def test_cases(spark: SparkSession, lose: FailureScenario) -> None:
    cases = [case for case in CASES if _kind(case[0]) is lose]
    blocks = range(len(cases))
    rule_input = _rule_input(
        *(_in_block(partition, block) for block, (_, partition, _) in enumerate(cases)),
        live=[broker for block in blocks for broker in _moved([0, 1, 2, 3], block)],
        opaque=[7 + 10 * block for block in blocks],
    )
    racks = {broker + 10 * block: f"{rack}{block}" for block in blocks for broker, rack in RACKS.items()}
    by_scenario = {
        row["scenario"]: tuple(row[name] for name in COUNTS) for row in as_rows(_whatif(spark, rule_input, lose, racks))
    }
    assert [by_scenario[_scenario(name, block)] for block, (name, _, _) in enumerate(cases)] == [
        case[2] for case in cases
    ]


@pytest.mark.parametrize(
    ("lose", "scenario"), [(FailureScenario.BROKERS, "broker 0"), (FailureScenario.PAIRS, "brokers 0+2")]
)
def test_a_drained_broker_is_the_last_heir(spark: SparkSession, lose: FailureScenario, scenario: str) -> None:
    """Of 0, 1 and 2 broker 1 is drained: 2 leads after the loss of 0, and 1 after the loss of both."""
    outcome = {row["scenario"]: row for row in as_rows(_whatif(spark, _rule_input(ALL), lose, drained=[1]))}[scenario]
    counts = (outcome["leaders_moved"], outcome["most_leaders_on"], outcome["offline"], outcome["unclean_only"])
    assert counts == ((1, 2, 0, 0) if lose is FailureScenario.BROKERS else (1, 1, 0, 0))


def _scenario(name: str, block: int) -> str:
    """Return the name of a case's scenario in its block."""
    scenario, brokers = name.split()
    if scenario == "rack":
        return f"{name}{block}"
    return f"{scenario} {'+'.join(map(str, _moved([int(broker) for broker in brokers.split('+')], block)))}"


NOTHING: Final = {
    "cluster": CLUSTER,
    "snapshot_id": 3,
    "offline": 0,
    "newly_offline": 0,
    "unclean_only": 0,
    "no_replica": 0,
    "under_min_isr": 0,
    "newly_under_min_isr": 0,
    "leaders_moved": 0,
    "max_leaders": 0,
    "not_judged": 0,
}


def test_cluster_without_partitions(spark: SparkSession) -> None:
    last = {**NOTHING, "lose": "brokers=1", "scenario": "broker 4", "lost": [4]}
    assert_rows(_whatif(spark, RuleInput([], live=frozenset({4})), FailureScenario.BROKERS), [last], WHATIF)
    pair = {**NOTHING, "lose": "pairs", "scenario": "brokers 4+5", "lost": [4, 5]}
    assert_rows(_whatif(spark, RuleInput([], live=frozenset({4, 5})), FailureScenario.PAIRS), [pair], WHATIF)
    assert as_rows(_whatif(spark, RuleInput([], live=frozenset({4})), FailureScenario.PAIRS)) == []


def _by_brute_force(rule_input: RuleInput, racks: Racks, lose: Loss) -> dict[str, Row]:
    played = whatif_oracle.scenarios(rule_input, racks, lose)
    return {scenario: whatif_oracle.costs(rule_input, lost) for scenario, lost in played.items()}


def _by_scenario(spark: SparkSession, rule_input: RuleInput, racks: Racks, lose: Loss) -> dict[str, Row]:
    rows = as_rows(_whatif(spark, rule_input, lose, racks))
    same = ("cluster", "snapshot_id", "lose", "scenario")
    by_scenario = {row["scenario"]: {name: row[name] for name in row if name not in same} for row in rows}
    assert len(by_scenario) == len(rows), "a scenario has two rows"
    assert rows == sorted(rows, key=_badness)
    return by_scenario


def _badness(row: Row) -> tuple[int, int, float, list[int]]:
    return -row["offline"], -row["under_min_isr"], -(row["leader_skew"] or 0), row["lost"]


_racks: Final = st.fixed_dictionaries({broker: st.sampled_from(["a", "b", None]) for broker in BROKER_IDS})


@pytest.mark.parametrize("lose", [*FailureScenario, TOGETHER])
@BATCHES
@given(rule_inputs(), _racks)
def test_every_scenario_played(spark: SparkSession, lose: Loss, rule_input: RuleInput, racks: Racks) -> None:
    assert _by_scenario(spark, rule_input, racks, lose) == _by_brute_force(rule_input, racks, lose)


@pytest.mark.parametrize("lose", [*FailureScenario, TOGETHER])
def test_every_small_partition(spark: SparkSession, lose: Loss) -> None:
    rule_input = all_small_partitions()
    assert _by_scenario(spark, rule_input, RACKS, lose) == _by_brute_force(rule_input, RACKS, lose)


def _assert_named(spark: SparkSession, rule_input: RuleInput, lose: Loss, drained: tuple[int, ...] = ()) -> None:
    """Compare the rule on arrays with the one on Spark, scenario by scenario."""
    arrays = arrays_of(rule_input)
    for row in as_rows(_whatif(spark, rule_input, lose, drained=drained)):
        named = lost_partitions(arrays, rule_input.registered, rule_input.live, drained, row["lost"])
        counts = {field.name: int(getattr(named, field.name).sum()) for field in fields(named)}
        assert counts == {name: row[name] for name in counts}, row["scenario"]


@pytest.mark.parametrize("lose", [*FailureScenario, TOGETHER])
@pytest.mark.parametrize("drained", [(), (1, 2)])
def test_partitions_are_named_that_are_counted(spark: SparkSession, lose: Loss, drained: tuple[int, ...]) -> None:
    _assert_named(spark, _rule_input(*(case[1] for case in CASES), opaque=[7]), lose, drained)


@pytest.mark.parametrize("lose", FailureScenario)
@BATCHES
@given(rule_inputs())
def test_partitions_are_named_in_any_cluster(spark: SparkSession, lose: FailureScenario, rule_input: RuleInput) -> None:
    _assert_named(spark, rule_input, lose)


@pytest.mark.parametrize("lose", FailureScenario)
def test_every_small_partition_is_named(spark: SparkSession, lose: FailureScenario) -> None:
    _assert_named(spark, all_small_partitions(), lose)
