"""Change rows: what is, what should be, and the premise that must still hold; rejection rows: why there is no change.

Every rule says by `changed` what it changes, and the rest is as it was, so that a change always says everything. One
change a partition and cycle. In: partitions with topic and live brokers. Out: CHANGES or REJECTIONS, without a plan id.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import EMPTY, with_live_brokers, with_topic
from planner.columns.shape import shaped
from schemas.enums import NO_VERSION, Action
from schemas.tables import CHANGES, REJECTIONS

_BEFORE_AND_AFTER: Final = ("replicas", "leader", "isr", "leader_epoch", "leader_recovery_state")


def leader_and_isr_recipients(isr: str, replicas: str = "replicas") -> str:
    """In SQL, the replicas that LeaderAndIsr goes to: one that a drain has stopped only where it is in this ISR.

    There it either leads or was never stopped, and the leader epoch of the change is later than the one it stopped at.
    """
    return f"array_intersect({replicas}, array_union(informed, array_intersect(eligible, coalesce({isr}, {EMPTY}))))"


_UNCHANGED: Final = {
    **{f"{name}_{when}": name for name in _BEFORE_AND_AFTER for when in ("before", "after")},
    "wave": "0",
    "adding_before": "adding_replicas",
    "adding_after": "adding_replicas",
    "removing_before": "removing_replicas",
    "removing_after": "removing_replicas",
    "controller_epoch_before": "controller_epoch",
    "state_version": f"coalesce(state_version, {NO_VERSION})",
    "is_new": "leader IS NULL",
    "leader_and_isr_to": leader_and_isr_recipients("isr"),
    "stop_replica_to": EMPTY,
    "requires_live": EMPTY,
    "requires_dead": EMPTY,
}
"""A change in which nothing changes; told are all live replicas of the assignment.

LeaderAndIsr goes to the live replicas whatever the election: `Election.scala` names the assignment or its online part
as recipients, and `ControllerBrokerRequestBatch` sends to live brokers only.
"""

_NEW: Final = "new_"
"""Prefix of what a rule says by a Column, until it stands in the change."""


def with_topic_and_brokers(partitions: DataFrame, topics: DataFrame, brokers: DataFrame) -> DataFrame:
    """Join to the partitions all that a rule of leadership may ask for: their topics and the live brokers."""
    return partitions.transform(with_topic, topics).transform(with_live_brokers, brokers)


def changed(partitions: DataFrame, values: Mapping[str, str | Column]) -> DataFrame:
    """One CHANGES row each, without a plan id: as it was but for `what`, by column, in SQL or as a Column."""
    columns = {f"{_NEW}{name}": column for name, column in values.items() if not isinstance(column, str)}
    in_sql = {name: text if isinstance(text, str) else f"{_NEW}{name}" for name, text in values.items()}
    ready = partitions.withColumns(columns) if columns else partitions
    return ready.selectExpr(*changes_in_sql(in_sql))


def changes_in_sql(values: Mapping[str, str]) -> list[str]:
    """Return the columns of CHANGES in SQL: as they were but for `what`."""
    texts = {"plan_id": "NULL", **_UNCHANGED, **values}
    columns = ((field.name, field.dataType.simpleString()) for field in CHANGES)
    return [f"CAST({texts.get(name, name)} AS {kind}) AS {name}" for name, kind in columns]


def as_rejections(partitions: DataFrame, action: Action | Column) -> DataFrame:
    """Keep the rows that have a `code` as rejections of `action`."""
    name = F.lit(action.value) if isinstance(action, Action) else action
    return partitions.where(F.col("code").isNotNull()).withColumns({"action": name}).transform(shaped, REJECTIONS)
