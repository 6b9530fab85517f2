"""Invariants of a reconcile plan for any cluster."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from schemas.enums import NO_LEADER
from schemas.rows import Row
from tests.plan_digest import plan_id
from tests.planner.frames import RuleInput, as_rows, by_partition, plan_tables
from tests.planner.rule_inputs import BATCHES, all_small_partitions, applied, is_sane, rule_inputs
from tests.planner.verdicts import reconcile_changes, reconcile_rejections

Changes = dict[tuple[str, int], Row]


def _broken(row: Row, change: Row, rule_input: RuleInput) -> list[str]:
    """Return the rules that a change breaks.

    A live ISR member that is not assigned can never lead; as in Kafka, an unclean election ignores it.
    """
    leader, isr, before = change["leader_after"], change["isr_after"], row["isr"] or []
    was_alive = row["leader"] in rule_input.registered
    clean = set(before) & set(row["replicas"]) & rule_input.live
    holders = set(before) & rule_input.registered
    assigned = holders & set(row["replicas"])
    strays = set() if assigned or leader in before else holders - assigned
    rules = {
        "an ISR is never empty": bool(isr),
        "an ISR has no broker twice": len(set(isr)) == len(isr),
        "a leader is live, or there is none": leader == NO_LEADER or leader in rule_input.registered,
        "a leader is in the ISR, or there is none": leader == NO_LEADER or leader in isr or not is_sane(row),
        "a new leader is one we understand": leader in {row["leader"], NO_LEADER, *rule_input.live},
        "no leader is replaced while it is live": leader == row["leader"] or not was_alive,
        "a clean candidate is not passed over": leader in clean or was_alive or not clean,
        "a live member stays in the ISR": holders - strays <= set(isr) or row["leader"] is None,
        "no broker enters the ISR while an assigned member is live": set(isr) <= set(before) or not assigned,
        "an ISR keeps its order": [broker for broker in before if broker in isr] == [b for b in isr if b in before],
        "a leader epoch grows": change["leader_epoch_after"] > (-1 if row["leader"] is None else row["leader_epoch"]),
        "the precondition is the version that was read": change["state_version"] == row.get("state_version", -1),
        "the assignment stays": change["replicas_after"] == row["replicas"],
        "recipients are the live replicas": set(change["leader_and_isr_to"]) == set(row["replicas"]) & rule_input.live,
        "requires_dead has no live broker": set(change["requires_dead"]).isdisjoint(rule_input.registered),
        "requires_live has no dead broker": set(change["requires_live"]) <= rule_input.registered,
        "a new leader has to be live": leader in {NO_LEADER, *change["requires_live"]},
        "a removed member has to be dead": set(before) - set(isr) - strays <= set(change["requires_dead"]),
        "the old leader has to be dead": row["leader"] in {None, NO_LEADER, leader, *change["requires_dead"]},
    }
    return [rule for rule, holds in rules.items() if not holds]


def _breaches(rule_input: RuleInput, changes: Changes) -> list[tuple[Row, Row, list[str]]]:
    rows = {(row["topic"], row["partition"]): row for row in rule_input.partitions}
    judged = ((rows[key], change, _broken(rows[key], change, rule_input)) for key, change in changes.items())
    return [breach for breach in judged if breach[2]]


@BATCHES
@given(rule_inputs(), st.booleans())
def test_nothing_is_lost_and_one_cycle_is_enough(
    spark: SparkSession,
    rule_input: RuleInput,
    allow_unclean: bool,  # noqa: FBT001 - from Hypothesis
) -> None:
    changes = by_partition(reconcile_changes(*rule_input.frames_and_configs(spark), allow_unclean=allow_unclean))
    after = reconcile_changes(*applied(rule_input, changes).frames_and_configs(spark), allow_unclean=allow_unclean)
    assert (_breaches(rule_input, changes), as_rows(after)) == ([], [])


def test_nor_with_any_small_partition(spark: SparkSession) -> None:
    rule_input = all_small_partitions()
    changes = by_partition(reconcile_changes(*rule_input.frames_and_configs(spark), allow_unclean=True))
    after = reconcile_changes(*applied(rule_input, changes).frames_and_configs(spark), allow_unclean=True)
    assert (_breaches(rule_input, changes), as_rows(after)) == ([], [])


@settings(BATCHES, max_examples=2)
@given(rule_inputs())
def test_the_same_cluster_gives_the_same_plan(spark: SparkSession, rule_input: RuleInput) -> None:
    """For any order and partitioning of its rows."""
    partitions, topics, brokers, configs = rule_input.frames_and_configs(spark)
    shuffled = replace(rule_input, partitions=rule_input.partitions[::-1], topics=rule_input.topics[::-1])
    again, _, _ = shuffled.frames(spark)
    plans = [
        plan_tables(
            spark,
            reconcile_changes(some, topics, brokers, configs).localCheckpoint(),
            reconcile_rejections(some, topics, brokers, configs).localCheckpoint(),
        )
        for some in (partitions, again.repartition(3))
    ]
    assert len({plan_id("header", {name: as_rows(rows) for name, rows in tables.items()}) for tables in plans}) == 1
