"""The partition state machine as data: valid previous states, and the transition of each action.

Corresponds to `PartitionStateMachine` and `PartitionState.validPreviousStates`. An illegal transition is skipped and
reported; the other partitions continue. In: partitions with `leader` and `live`, and null `replicas` if there is no
such partition. Out: the same rows with `state` and `illegal`.
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
"""The previous states that each state allows."""

TRANSITIONS: Final[Mapping[Action, tuple[PartitionState, tuple[PartitionState, ...]]]] = {
    Action.CREATE: (PartitionState.ONLINE, (PartitionState.NEW,)),
    Action.ELECT: (PartitionState.ONLINE, (PartitionState.ONLINE, PartitionState.OFFLINE)),
    Action.ELECT_PREFERRED: (PartitionState.ONLINE, (PartitionState.ONLINE, PartitionState.OFFLINE)),
    Action.TAKE_OFFLINE: (PartitionState.OFFLINE, (PartitionState.ONLINE, PartitionState.OFFLINE)),
}
"""The state that each action leads to, and the states it can start from.

`doHandleStateChanges` initializes a New partition with its first leader and elects only if it had one before, so there
are two transitions to Online.
"""


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
    leads_to, starts = TRANSITIONS[action]
    allowed = ", ".join(starts)
    why = F.concat(F.lit("it is "), F.col("state"), F.lit(f"; {action.value} leads to {leads_to} from {allowed} only"))
    return partitions.withColumns({"state": current_state()}).withColumns(
        {"illegal": F.when(~legal(F.col("state"), action), why)},
    )
