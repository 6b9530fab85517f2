"""What the metadata log of a KRaft cluster means: violations are found, and requests are counted."""

from typing import Any

import pytest

from tests.jobs.torture.metadata_log import LogRecord, MetadataHistory, Retargeted, decoded

TOPIC = {"name": "orders", "topicId": "A"}
PARTITION = {"topicId": "A", "partitionId": 0, "replicas": [1, 2], "isr": [1, 2], "leader": 1, "leaderEpoch": 0}


def history(*changes: dict[str, Any], since: int = 0) -> MetadataHistory:
    """A topic that is created, and changes of its only partition."""
    kinds: list[tuple[str, dict[str, Any]]] = [("TOPIC_RECORD", TOPIC), ("PARTITION_RECORD", PARTITION)]
    kinds += [("PARTITION_CHANGE_RECORD", {"topicId": "A", "partitionId": 0, **change}) for change in changes]
    return MetadataHistory.of((LogRecord(at, float(at), *kind) for at, kind in enumerate(kinds)), since)


MOVE = {"replicas": [3, 2, 1], "addingReplicas": [3], "removingReplicas": [1]}
MOVED = {"isr": [2, 3], "leader": 3, "replicas": [3, 2], "addingReplicas": [], "removingReplicas": []}


def test_a_move_is_one_request() -> None:
    moved = history(MOVE, {"isr": [1, 2, 3]}, MOVED)
    assert moved.retargeted == [Retargeted(2.0, "orders", 0, [1, 2], [3, 2])]
    assert (moved.wrong, moved.partitions["orders", 0].replicas) == ([], [3, 2])


def test_a_move_that_is_cancelled_is_two() -> None:
    back = {"replicas": [2, 1], "addingReplicas": [], "removingReplicas": []}
    assert [row.target for row in history(MOVE, back).retargeted] == [[3, 2], [2, 1]]


def test_a_later_offset_counts_alone() -> None:
    assert history(MOVE, since=3).retargeted == []


@pytest.mark.parametrize(
    ("change", "violation"),
    [
        ({"leader": 3}, "leader 3 is not in [1, 2]"),
        ({"leader": 3, "isr": [3], "leaderRecoveryState": 1}, "3 was elected uncleanly"),
        ({"isr": [2]}, "leader 1 is not in [2]"),
        ({"isr": [1, 7]}, "[1, 7] is not part of [1, 2]"),
    ],
)
def test_violations_are_found(change: dict[str, Any], violation: str) -> None:
    assert violation in history(change).wrong[0]


def test_lines_of_kafkas_tool_aredecoded() -> None:
    payload = '{"type":"TOPIC_RECORD","version":0,"data":{"name":"orders","topicId":"A"}}'
    lines = [
        "baseOffset: 12 lastOffset: 12 count: 1 CreateTime: 1732600000500 size: 100",
        f"| offset: 12 CreateTime: 1732600000500 keySize: -1 valueSize: 30 headerKeys: [] payload: {payload}",
    ]
    assert list(decoded(lines)) == [LogRecord(12, 1732600000.5, "TOPIC_RECORD", TOPIC)]
