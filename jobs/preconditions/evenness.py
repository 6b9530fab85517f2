"""How evenly replicas and leaders are spread over the brokers now."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planner.placement.plan_figures import Figures, spans_of
from schemas.current_state import CurrentPartition
from schemas.enums import NO_LEADER
from schemas.rows import Key
from schemas.znode_codecs import MalformedZnodeError


def current_evenness(counted: Sequence[int], current: Mapping[Key, CurrentPartition], snapshot: pa.Table) -> Figures:
    """Return the least and most replicas and leaders that a broker of `counted` has now.

    `current` has the partitions of the plan. The other partitions come from `snapshot`, with topic, partition, replicas
    and leader.
    """
    plan_partitions = {key: _held_and_led(partition) for key, partition in current.items()}
    keys = zip(snapshot["topic"].to_pylist(), snapshot["partition"].to_pylist(), strict=True)
    other_partitions = snapshot.filter(np.array([key not in plan_partitions for key in keys], dtype=bool))
    held = pc.list_flatten(other_partitions["replicas"]).to_numpy()
    led = pc.fill_null(other_partitions["leader"], NO_LEADER).to_numpy()
    readable = [partition for partition in plan_partitions.values() if partition is not None]
    replicas = [broker for brokers, _ in readable for broker in brokers]
    return {
        "replicas_per_broker": spans_of(np.append(held, np.array(replicas, dtype=np.int64)), counted),
        "led_per_broker": spans_of(
            np.append(led, np.array([leader for _, leader in readable], dtype=np.int64)), counted
        ),
    }


def _held_and_led(partition: CurrentPartition) -> tuple[Sequence[int], int] | None:
    """The replicas and the leader of a partition; None if they cannot be decoded or do not exist."""
    try:
        assignment = partition.assignment
    except MalformedZnodeError:
        return None
    if assignment is None:
        return None
    return assignment.replicas, NO_LEADER if partition.state is None else partition.state.leader
