"""How evenly brokers are used now: the partitions of a plan as they are, the others as in a snapshot."""

import pyarrow as pa

from jobs.preconditions.evenness import current_evenness
from schemas.current_state import CurrentPartition, CurrentTopic, Decoded, LeaderAndIsr
from schemas.znode_codecs import Assignment


def test_partitions_of_the_plan_replace_those_of_the_snapshot() -> None:
    topic = CurrentTopic("topic t", None, Decoded(Assignment({0: [3, 2]}, {}, {}, None)), is_unversioned=True)
    moved = CurrentPartition(topic, 0, "t-0", None, Decoded(LeaderAndIsr(3, 5, [3, 2])))
    gone = CurrentPartition(topic, 9, "t-9", None, Decoded(None))
    columns = {
        "topic": ["t", "t", "u"],
        "partition": [0, 9, 0],
        "replicas": pa.array([[1, 2], [1, 2], [1, 2]], pa.list_(pa.int32())),
        "leader": pa.array([1, 1, None], pa.int32()),
    }

    evenness = current_evenness([1, 2, 3], {("t", 0): moved, ("t", 9): gone}, pa.table(columns))

    assert evenness == {"replicas_per_broker": [1, 2], "led_per_broker": [0, 1]}
