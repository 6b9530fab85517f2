"""Builders of CHANGES rows (state before, state after, and preconditions of the commit) and of REJECTIONS rows.

A rule passes only the columns it changes; `change_columns` fills in the others unchanged, so every row is complete.
There is one change per partition and cycle. In: partitions with topic and live brokers. Out: CHANGES or REJECTIONS,
without a plan id.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.broker_sets import NO_BROKERS_SQL, with_live_brokers, with_topic
from planner.columns.shape import true, with_schema
from schemas.enums import NO_VERSION, Action
from schemas.tables import CHANGES, REJECTIONS

_BEFORE_AND_AFTER: Final = ("replicas", "leader", "isr", "leader_epoch", "leader_recovery_state")


def leader_and_isr_recipients(isr: str, replicas: str = "replicas") -> str:
    """Return SQL for the replicas that receive LeaderAndIsr.

    A replica that a drain has stopped receives it only if it is in this ISR: then it either leads or was never stopped,
    and the leader epoch of the change is later than the one at which it stopped.
    """
    known_isr = f"coalesce({isr}, {NO_BROKERS_SQL})"
    return f"array_intersect({replicas}, array_union(informed, array_intersect(eligible, {known_isr})))"


_IS_IN_ZOOKEEPER: Final = "leader IS NULL OR topic_version IS NOT NULL"
"""SQL for a partition whose state has a version, or has none only because it has no znode; in KRaft no znode exists."""

_UNCHANGED: Final = {
    **{f"{name}_{when}": name for name in _BEFORE_AND_AFTER for when in ("before", "after")},
    "wave": "0",
    "adding_before": "adding_replicas",
    "adding_after": "adding_replicas",
    "removing_before": "removing_replicas",
    "removing_after": "removing_replicas",
    "controller_epoch_before": "controller_epoch",
    "state_version": f"IF({_IS_IN_ZOOKEEPER}, coalesce(state_version, {NO_VERSION}), state_version)",
    "is_new": "leader IS NULL",
    "leader_and_isr_to": leader_and_isr_recipients("isr"),
    "stop_replica_to": NO_BROKERS_SQL,
    "requires_live": NO_BROKERS_SQL,
    "requires_dead": NO_BROKERS_SQL,
}
"""The columns of a change that changes nothing, by name, in SQL.

LeaderAndIsr goes to the live replicas of the assignment in any election: `Election.scala` names the assignment or its
online part as recipients, and `ControllerBrokerRequestBatch` sends to live brokers only.
"""

_NEW: Final = "new_"
"""Prefix of columns that a rule passes as a Column, until they are selected into the change."""


def with_topic_and_brokers(partitions: DataFrame, topics: DataFrame, brokers: DataFrame) -> DataFrame:
    """Join to the partitions what leadership rules need: their topics and the live brokers."""
    return partitions.transform(with_topic, topics).transform(with_live_brokers, brokers)


def join_current(lists: DataFrame, partitions: DataFrame, topics: DataFrame, brokers: DataFrame) -> DataFrame:
    """Join to rows of (topic, partition) what `with_topic_and_brokers` gives of each; all null for unknown partitions.

    The brokers come after the join, which shuffles all partitions.
    """
    known = partitions.transform(with_topic, topics).withColumns({"is_known": true()})
    joined = lists.join(known, ["topic", "partition"], "left")
    return joined.transform(with_live_brokers, brokers, F.col("is_known")).drop("is_known")


def change_columns(partitions: DataFrame, values: Mapping[str, str | Column]) -> DataFrame:
    """Return one CHANGES row per partition, without a plan id; `values` are the changed columns, as SQL or Column."""
    columns = {f"{_NEW}{name}": column for name, column in values.items() if not isinstance(column, str)}
    in_sql = {name: text if isinstance(text, str) else f"{_NEW}{name}" for name, text in values.items()}
    ready = partitions.withColumns(columns) if columns else partitions
    return ready.selectExpr(*changes_in_sql(in_sql))


def changes_in_sql(values: Mapping[str, str]) -> list[str]:
    """Return the columns of CHANGES in SQL; columns that are not in `values` stay unchanged."""
    texts = {"plan_id": "NULL", **_UNCHANGED, **values}
    columns = ((field.name, field.dataType.simpleString()) for field in CHANGES)
    return [f"CAST({texts.get(name, name)} AS {kind}) AS {name}" for name, kind in columns]


def as_rejections(partitions: DataFrame, action: Action | Column) -> DataFrame:
    """Return the rows that have a `code` as rejections of `action`."""
    name = F.lit(action.value) if isinstance(action, Action) else action
    return partitions.where(F.col("code").isNotNull()).withColumns({"action": name}).transform(with_schema, REJECTIONS)
