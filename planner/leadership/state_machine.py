"""The partition state machine as data: which state may follow which, and what an action makes of a partition.

Corresponds to `PartitionStateMachine` and `PartitionState.validPreviousStates`; seed 000 "PartitionStateMachine",
seed 001 section 4. A transition that is not legal is skipped and said, the others go on. In: partitions with
`leader` and `live`, null `replicas` where there is no such partition. Out: the same with `state` and `illegal`.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from planner.columns.derived_columns import partition_state
from schemas.enums import Action, PartitionState

VALID_PREVIOUS: Final[Mapping[PartitionState, tuple[PartitionState, ...]]] = {
    PartitionState.NEW: (PartitionState.NON_EXISTENT,),
    PartitionState.ONLINE: (PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE),
    PartitionState.OFFLINE: (PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE),
    PartitionState.NON_EXISTENT: (PartitionState.OFFLINE,),
}
"""State -> those it may follow."""

TRANSITIONS: Final[Mapping[Action, tuple[PartitionState, tuple[PartitionState, ...]]]] = {
    Action.CREATE: (PartitionState.ONLINE, (PartitionState.NEW,)),
    Action.ELECT: (PartitionState.ONLINE, (PartitionState.ONLINE, PartitionState.OFFLINE)),
    Action.ELECT_PREFERRED: (PartitionState.ONLINE, (PartitionState.ONLINE, PartitionState.OFFLINE)),
    Action.TAKE_OFFLINE: (PartitionState.OFFLINE, (PartitionState.ONLINE, PartitionState.OFFLINE)),
}
"""Action -> the state it leads to, and those it can start from.

`doHandleStateChanges` gives a New partition its first leader and elects only where there was one: two ways Online.
"""


def current_state() -> Column:
    """The state a partition is in, as a controller that fails over finds it."""
    leader = F.col("leader")
    known = partition_state(leader, F.array_contains("live", leader))
    return F.when(F.col("replicas").isNull(), PartitionState.NON_EXISTENT.value).otherwise(known)


def legal(state: Column, action: Action) -> Column:
    """Tell whether a partition in `state` may take the action."""
    _, starts = TRANSITIONS[action]
    return state.isin(*(start.value for start in starts))


def with_transition(partitions: DataFrame, action: Action) -> DataFrame:
    """Add `state`, and `illegal`: why the action cannot be taken from it, null where it can."""
    leads_to, starts = TRANSITIONS[action]
    allowed = ", ".join(starts)
    why = F.concat(F.lit("it is "), F.col("state"), F.lit(f"; {action.value} leads to {leads_to} from {allowed} only"))
    return partitions.withColumns({"state": current_state()}).withColumns(
        {"illegal": F.when(~legal(F.col("state"), action), why)},
    )
