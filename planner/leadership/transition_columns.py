"""The partition state machine as columns: the state of each partition, and whether an action is allowed in it.

Spark counterpart of `planner.rules.state_machines`. In: partitions with `leader` and `live`, and null `replicas` if
there is no such partition. Out: the same rows with `state` and `illegal`.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.derived_columns import partition_state
from planner.rules.state_machines import TRANSITIONS, allowed_transition
from schemas.enums import Action, PartitionState


def current_state() -> Column:
    """Return the state of a partition, as a new controller initializes it."""
    leader = F.col("leader")
    state = partition_state(leader, F.array_contains("live", leader))
    return F.when(F.col("replicas").isNull(), PartitionState.NON_EXISTENT.value).otherwise(state)


def legal(state: Column, action: Action) -> Column:
    """Return whether a partition in `state` may take the action."""
    _, starts = TRANSITIONS[action]
    return state.isin(*(start.value for start in starts))


def with_transition(partitions: DataFrame, action: Action) -> DataFrame:
    """Add `state`, and `illegal`: why the action is not allowed in that state, null if it is."""
    reason = F.concat(F.lit("it is "), F.col("state"), F.lit(f"; {allowed_transition(action)}"))
    return partitions.withColumns({"state": current_state()}).withColumns(
        {"illegal": F.when(~legal(F.col("state"), action), reason)},
    )
