"""Finished requests of a plan, judged by the znodes at the time of the commit."""

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
from kazoo.protocol.states import ZnodeStat

from jobs.adapters.zookeeper.precondition_reader import operation_state, topic_settings
from jobs.adapters.zookeeper.znode_reads import Znode
from jobs.preconditions.change_status import operation_status
from jobs.preconditions.operations import outcome_of
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas.current_state import OperationState
from schemas.enums import OperationKind, Outcome
from schemas.rows import Operation
from schemas.znode_codecs import Assignment, encode_assignment

REASSIGN, ELECTION, EPOCH = "/admin/reassign_partitions", "/admin/preferred_replica_election", "/controller_epoch"
T, CONFIG, DELETION = "/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t"
MINE, OTHER = "AAAAAAAAAAAAAAAAAAAAAg", "BBBBBBBBBBBBBBBBBBBBBg"
STAT: Final = ZnodeStat(*[0] * 11)


def topic(topic_id: str = MINE) -> bytes:
    return encode_assignment(Assignment({0: [1, 2]}, {}, {}, topic_id))


def request(*partitions: Mapping[str, Any]) -> bytes:
    return json.dumps({"version": 1, "partitions": partitions}).encode()


ORDER = {"topic": "t", "partition": 0, "replicas": [1, 2]}
GOES = {"topic_id": MINE, "replicas": {"0": [1, 2]}}
REMOVED = {"topic_id": MINE, "controller_epoch": 7, "topic_version": 0}
KIND = OperationKind
DUE = None

NO_TOPIC: Final = {"exists": False, "reason": "no such topic"}
KEPT: Final = {"exists": True, "reason": "deletion is off"}

# the operation, the existing znodes, and the outcome
CASES: Final[dict[str, tuple[OperationKind, dict[str, Any], dict[str, bytes], Outcome | None]]] = {
    "an order": (KIND.WITHDRAW_REASSIGNMENT, {"orders": {"0": [1, 2]}}, {REASSIGN: request(ORDER)}, DUE),
    "no order any more": (KIND.WITHDRAW_REASSIGNMENT, {"orders": {"0": [1, 2]}}, {}, Outcome.APPLIED),
    "another order": (KIND.WITHDRAW_REASSIGNMENT, {"orders": {"0": [3]}}, {REASSIGN: request(ORDER)}, Outcome.APPLIED),
    "an order of another topic": (
        KIND.WITHDRAW_REASSIGNMENT,
        {"orders": {"0": [1, 2]}},
        {REASSIGN: request(ORDER | {"topic": "u"})},
        Outcome.APPLIED,
    ),
    "a garbled order": (KIND.WITHDRAW_REASSIGNMENT, {"orders": {"0": [1]}}, {REASSIGN: b"?"}, Outcome.STALE),
    "an election": (KIND.WITHDRAW_ELECTION, {"partitions": [0]}, {ELECTION: request(ORDER)}, DUE),
    "another election": (KIND.WITHDRAW_ELECTION, {"partitions": [1]}, {ELECTION: request(ORDER)}, Outcome.APPLIED),
    "no such topic": (KIND.WITHDRAW_DELETION, NO_TOPIC, {DELETION: b""}, DUE),
    "a topic after all": (KIND.WITHDRAW_DELETION, NO_TOPIC, {DELETION: b"", T: topic()}, Outcome.STALE),
    "must not be deleted": (KIND.WITHDRAW_DELETION, KEPT, {DELETION: b"", T: topic()}, DUE),
    "taken back already": (KIND.WITHDRAW_DELETION, KEPT, {T: topic()}, Outcome.APPLIED),
    "goes": (KIND.DELETE_REPLICAS, GOES, {DELETION: b"", T: topic()}, DUE),
    "is kept": (KIND.DELETE_REPLICAS, GOES, {T: topic()}, Outcome.STALE),
    "was created again": (KIND.DELETE_REPLICAS, GOES, {DELETION: b"", T: topic(OTHER)}, Outcome.STALE),
    "is gone": (KIND.DELETE_REPLICAS, GOES, {}, Outcome.APPLIED),
    "is removed": (KIND.REMOVE_TOPIC, REMOVED, {DELETION: b"", T: topic(), EPOCH: b"7"}, DUE),
    "is removed by us": (KIND.REMOVE_TOPIC, REMOVED, {DELETION: b"", T: topic(), EPOCH: b"8"}, DUE),
    "has grown": (KIND.REMOVE_TOPIC, REMOVED | {"topic_version": -1}, {DELETION: b"", T: topic()}, Outcome.STALE),
    "others were the controller": (KIND.REMOVE_TOPIC, REMOVED, {DELETION: b"", T: topic(), EPOCH: b"9"}, Outcome.STALE),
}

LOST: Final = topic().replace(f'"topic_id":"{MINE}"'.encode(), b'"version":3')

RESTORE: Final = (
    f"the topic has lost its topic id {MINE}: "
    "restore the id in its znode before another controller starts and assigns a new one"
)

# live brokers, the topic -> the status
DELETIONS: Final[list[tuple[list[int], bytes, ReassignmentStatus, str]]] = [
    ([1, 2], topic(), ReassignmentStatus.IN_PROGRESS, "found queued for deletion"),
    (
        [1],
        topic(),
        ReassignmentStatus.IN_PROGRESS,
        "found queued for deletion; it waits for broker 2, not live: start it",
    ),
    (
        [],
        topic(),
        ReassignmentStatus.IN_PROGRESS,
        "found queued for deletion; it waits for brokers 1, 2, not live: start it",
    ),
    (
        [1],
        topic(OTHER),
        ReassignmentStatus.DIVERGED,
        "the topic was deleted and created again; the topic of this name is not the one that the plan deletes",
    ),
    (
        [1],
        LOST,
        ReassignmentStatus.DIVERGED,
        f"{RESTORE}; the topic of this name is not the one that the plan deletes",
    ),
]


@pytest.mark.parametrize(("live", "data", "standing", "detail"), DELETIONS)
def test_waiting_deletion_names_the_broker(
    live: list[int], data: bytes, standing: ReassignmentStatus, detail: str
) -> None:
    task = Operation(sequence=0, kind=KIND.DELETE_TOPIC, topic="t", data=json.dumps({"topic_id": MINE}))

    assert operation_status(task, _current({DELETION: b"", T: data}), live) == (standing, detail)


@pytest.mark.parametrize("name", CASES)
def test_pending_requests(name: str) -> None:
    kind, data, znodes, expected = CASES[name]
    task = Operation(sequence=0, kind=kind, topic="t", data=json.dumps(data))

    outcome = outcome_of(task, _current(znodes))

    assert (None if outcome is None else outcome.outcome) == expected


def _current(znodes: Mapping[str, bytes]) -> OperationState:
    topic, config, deletion, *shared = (
        _znode(path, znodes) for path in (T, CONFIG, DELETION, REASSIGN, ELECTION, EPOCH)
    )
    return operation_state({"t": topic_settings(topic, config, deletion)}, *shared)


def _znode(path: str, znodes: Mapping[str, bytes]) -> Znode:
    return Znode(path, znodes.get(path), STAT if path in znodes else None)
