"""Topics queued for deletion: which are deleted, and which wait and for what."""

from typing import Final

from pyspark.sql import SparkSession

from planner.rules.topic_deletion import DeletionStep
from schemas.enums import LEADER_DURING_DELETE, RejectionCode, RequestKind
from schemas.rows import Row
from tests.planner.frames import as_rows, config_row, partition_row, topic_row
from tests.planner.reconciliation.cycles import cycle_of, request_row, stopped_row

LIVE: Final = {1, 2, 3}
QUEUED: Final = RequestKind.DELETE_TOPIC
S, CODES = DeletionStep, RejectionCode

# topic -> replicas, what else, the step, the code
CASES: Final[dict[str, tuple[list[int], Row, DeletionStep, RejectionCode | None]]] = {
    "plain": ([1, 2], {}, S.DELETE, None),
    "new": ([1, 2], {"leader": None, "isr": None}, S.DELETE, None),
    "dead": ([1, 9], {}, S.WAIT, CODES.WAITS_FOR_REPLICAS),
    "moved": ([1, 2], {"adding_replicas": [2]}, S.WAIT, CODES.WAITS_FOR_REPLICAS),
    # Kafka's controllers fail over such a topic one after another; nothing moves, and nothing is waited for
    "unborn": (
        [1, 2],
        {"adding_replicas": [2], "leader": None, "isr": None, "state_version": None},
        S.DELETE,
        None,
    ),
    "illegible": ([1, 2], {"adding_replicas": [2], "leader": None, "isr": None}, S.WAIT, CODES.WAITS_FOR_REPLICAS),
    "config": ([1, 2], {}, S.DELETE, None),
    "elected": ([1, 2], {}, S.WAIT, CODES.WAITS_FOR_REPLICAS),
    "half": ([1, 2], {}, S.DELETE, None),
    "done": ([1, 2], {}, S.REMOVE, None),
    "died": ([1, 9], {}, S.REMOVE, None),
    "opaque": ([1, 2], {}, S.WAIT, CODES.NOT_UNDERSTOOD),
}
STOPPED: Final = [
    stopped_row(0, 1, LEADER_DURING_DELETE, "half"),
    *(stopped_row(0, broker, LEADER_DURING_DELETE, "done") for broker in (1, 2)),
    *(stopped_row(0, broker, LEADER_DURING_DELETE, "died") for broker in (1, 9)),
    # stopped by a reassignment, which does not count for a deletion
    *(stopped_row(0, broker, 5, "plain") for broker in (1, 2)),
]


def _partitions() -> list[Row]:
    return [
        partition_row(replicas, 1, replicas[:1], topic=name) | others
        for name, (replicas, others, _, _) in CASES.items()
    ]


def test_deletion_steps(spark: SparkSession) -> None:
    topics = [
        topic_row(
            name,
            deletion_requested=True,
            understood=name not in {"opaque", "config"},
            assignment_understood=name != "opaque",
        )
        for name in CASES
    ]
    requests = [request_row(QUEUED, name, None) for name in (*CASES, "unknown")]
    requests.append(request_row(RequestKind.PREFERRED_ELECTION, "elected"))

    cycle = cycle_of(spark, _partitions(), LIVE, requests, stopped=STOPPED, topics=topics)

    steps = {row["topic"]: (row["step"], row["code"]) for row in as_rows(cycle.deletions)}
    assert steps == {
        **{name: (step, code) for name, (_, _, step, code) in CASES.items()},
        "unknown": (S.REFUSE, CODES.UNKNOWN_TOPIC),
    }


def test_disabled_deletion_refuses_requests(spark: SparkSession) -> None:
    topics = [topic_row("plain", deletion_requested=True)]
    configs = [config_row(1, "delete.topic.enable", "true"), config_row(2, "delete.topic.enable", "False")]
    rows = [
        partition_row([1, 2], 1, [1, 2], topic="plain"),
        partition_row([9, 1], 9, [9, 1], topic="plain", partition=1),
    ]

    cycle = cycle_of(spark, rows, LIVE, [request_row(QUEUED, "plain", None)], topics=topics, configs=configs)

    (deletion,) = as_rows(cycle.deletions)
    assert (deletion["step"], deletion["code"]) == (S.REFUSE, CODES.DELETION_DISABLED)
    assert as_rows(cycle.decisions) == []  # no leader is elected in a queued topic
