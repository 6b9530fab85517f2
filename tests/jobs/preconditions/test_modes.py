"""Both modes check the same preconditions, except where Kafka's controller decides: situations and verdicts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from msgspec.structs import replace

from jobs.preconditions.admin_changes import check_for_admin
from jobs.preconditions.change_preconditions import Preconditions
from schemas.current_state import CurrentPartition, CurrentState, CurrentTopic, Decoded
from schemas.enums import NO_VERSION, Action, Outcome
from schemas.rows import Change
from schemas.stored_plan import RowOutcome
from schemas.znode_codecs import Assignment, State
from tests.typed_rows import typed

ID: Final = "Aaaaaaaaaaaaaaaaaaaaag"
ABSENT: Final = "it does not exist"
EPOCHS: Final = {1: 11, 2: 12, 3: 13}

ELECTION: Final = typed(
    action=Action.ELECT_PREFERRED.value,
    replicas_before=[1, 2, 3],
    replicas_after=[1, 2, 3],
    adding_before=[],
    removing_before=[],
    leader_before=2,
    leader_after=1,
    leader_epoch_before=5,
    leader_epoch_after=6,
    isr_before=[1, 2, 3],
    isr_after=[1, 2, 3],
    state_version=7,
    topic_version=4,
    topic_id=ID,
    requires_live=[1],
)


def creation(topic: str, partition: int, replicas: list[int], version: int) -> Change:
    before: Any = dict.fromkeys(
        ["replicas_before", "adding_before", "removing_before", "leader_before", "isr_before", "leader_epoch_before"]
    )
    return replace(
        ELECTION,
        topic=topic,
        partition=partition,
        action=Action.CREATE.value,
        replicas_after=replicas,
        leader_after=replicas[0],
        isr_after=replicas,
        leader_epoch_after=0,
        state_version=NO_VERSION,
        topic_version=version,
        is_new=True,
        requires_live=replicas,
        **before,
    )


CHANGES: Final[Mapping[str, list[Change]]] = {
    "election": [ELECTION],
    "election without 3": [replace(ELECTION, requires_dead=[3])],
    "topic": [creation("new", 0, [1, 2], NO_VERSION), creation("new", 1, [2, 3], NO_VERSION)],
    "partitions": [creation("t", 1, [1, 2], 4), creation("t", 2, [2, 3], 4)],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The cluster at the commit: as planned, but for what is given."""

    epochs: Mapping[int, int] = field(default_factory=lambda: EPOCHS)
    deleting: frozenset[str] = frozenset()
    topic_version: int = 4
    topic_id: str = ID
    assigned: Mapping[int, list[int]] | None = None
    """None if topic t does not exist."""
    new: Mapping[int, list[int]] | None = None
    """The partitions of topic `new`; None if it does not exist."""
    state_version: int = 7
    leader: int = 2
    isr: tuple[int, ...] = (1, 2, 3)
    leader_epoch: int = 5

    def current(self, changes: list[Change]) -> CurrentState:
        topics = {
            "t": self._topic("t", self.assigned, self.topic_version),
            "new": self._topic("new", self.new, 0),
        }
        partitions = {change.key: self._partition(topics[change.topic], change.partition) for change in changes}
        return CurrentState(partitions, {}, frozenset(self.epochs), self.deleting)

    def _topic(self, name: str, assigned: Mapping[int, list[int]] | None, version: int) -> CurrentTopic:
        if assigned is None:
            return CurrentTopic(name, None, Decoded(None, ABSENT))
        return CurrentTopic(name, version, Decoded(Assignment(dict(assigned), {}, {}, self.topic_id)))

    def _partition(self, topic: CurrentTopic, number: int) -> CurrentPartition:
        if (topic.path, number) != ("t", 0) or not topic.exists:
            return CurrentPartition(topic, number, "state", None, Decoded(None, ABSENT))
        state = State(controller_epoch=1, leader=self.leader, leader_epoch=self.leader_epoch, isr=[*self.isr])
        return CurrentPartition(topic, number, "state", self.state_version, Decoded(state))


T: Final[Mapping[int, list[int]]] = {0: [1, 2, 3]}
WITHOUT_1: Final = {2: 12, 3: 13}
WITHOUT_3: Final = {1: 11, 2: 12}
AS_PLANNED: Final = Situation(assigned=T)
ADDED: Final = Situation(assigned={**T, 1: [1, 2], 2: [2, 3]}, topic_version=5)

PENDING: Final = "pending"
QUEUED: Final = "stale: topic t is queued for deletion"
RESTARTED: Final = "stale: broker 1 registered again since the snapshot"

SAME: Final[list[tuple[str, Situation, str]]] = [
    ("election", AS_PLANNED, PENDING),
    ("election", Situation(assigned=T, epochs=WITHOUT_1), "stale: broker 1 is not live"),
    ("election", Situation(assigned=T, epochs=WITHOUT_1, leader=3, leader_epoch=6), "stale: broker 1 is not live"),
    ("election", Situation(assigned=T, epochs=WITHOUT_3), PENDING),
    ("election", Situation(assigned=T, deleting=frozenset({"t"})), QUEUED),
    ("election", Situation(assigned=T, deleting=frozenset({"t"}), epochs=WITHOUT_1), QUEUED),
    ("election", Situation(assigned=T, state_version=8, leader=1, leader_epoch=6), "applied: found applied"),
    ("election without 3", AS_PLANNED, "stale: broker 3 is live again"),
    ("election without 3", Situation(assigned=T, epochs=WITHOUT_3), PENDING),
    ("topic", AS_PLANNED, PENDING),
    ("topic", Situation(assigned=T, epochs=WITHOUT_1), "stale: broker 1 is not live"),
    ("topic", Situation(assigned=T, epochs=WITHOUT_3), "stale: broker 3 is not live"),
    (
        "topic",
        Situation(assigned=T, new={0: [3]}, topic_id="Bbbbbbbbbbbbbbbbbbbbbg"),
        "stale: topic new exists and is not the one planned",
    ),
    ("partitions", AS_PLANNED, PENDING),
    ("partitions", Situation(assigned=T, epochs=WITHOUT_3), "stale: broker 3 is not live"),
    ("partitions", Situation(assigned=T, deleting=frozenset({"t"})), QUEUED),
    ("partitions", Situation(), "stale: topic t is gone"),
    (
        "partitions",
        Situation(assigned={**T, 1: [3, 1]}, topic_version=5),
        "stale: t is at version 5, planned at 4",
    ),
]
"""Changes, a situation, and the verdict on each of them in both modes."""

DIFFERENT: Final[list[tuple[str, Situation, str, str, str]]] = [
    (
        "Kafka's controller writes the epochs, so a restart is no reason to refuse",
        Situation(assigned=T, epochs=EPOCHS | {1: 99}),
        "election",
        RESTARTED,
        PENDING,
    ),
    (
        "Kafka's controller writes the epochs, so a restart is no reason to refuse",
        Situation(assigned=T, epochs=EPOCHS | {1: 99}),
        "topic",
        RESTARTED,
        PENDING,
    ),
    (
        "Kafka's controller writes the ISR, and a request contains none",
        Situation(assigned=T, state_version=8, isr=(2, 1)),
        "election",
        "stale: state is at version 8, planned at 7: leader 2, ISR [2, 1], leader epoch 5",
        PENDING,
    ),
    (
        "the state is written at its version, and a request names the leader that the plan replaces",
        Situation(assigned=T, state_version=8, leader=3, leader_epoch=6),
        "election",
        "stale: state is at version 8, planned at 7: leader 3, ISR [1, 2, 3], leader epoch 6",
        "stale: the leader is no longer 2",
    ),
    (
        "the topic's znode is written at its version, and a request depends on the replicas",
        Situation(assigned=T, topic_version=5),
        "election",
        "stale: t is at version 5, planned at 4",
        PENDING,
    ),
    (
        "a request is about the partition, a write about the topic's znode",
        Situation(),
        "election",
        "stale: topic t is gone",
        "stale: t-0 is gone",
    ),
    (
        "Kafka's controller creates the states of a topic that exists",
        ADDED,
        "partitions",
        PENDING,
        "applied: found applied",
    ),
]
"""Why the modes differ, the situation, the changes, and the verdicts in batch mode and in admin mode."""


def verdicts(changes: list[Change], situation: Situation) -> tuple[set[str], set[str]]:
    current = situation.current(changes)
    batch = Preconditions.in_batch_mode(EPOCHS, changes, situation.epochs, situation.deleting)
    return texts(*batch.check(changes, current.partitions)), texts(*check_for_admin(changes, current))


def texts(pending: list[Change], outcomes: list[RowOutcome]) -> set[str]:
    return {PENDING for _ in pending} | {f"{row.outcome.value}: {row.message}" for row in outcomes}


@pytest.mark.parametrize(("changes", "situation", "verdict"), SAME)
def test_modes_agree(changes: str, situation: Situation, verdict: str) -> None:
    assert verdicts(CHANGES[changes], situation) == ({verdict}, {verdict})


@pytest.mark.parametrize(("cause", "situation", "changes", "in_batch", "in_admin"), DIFFERENT)
def test_modes_differ_where_the_controller_decides(
    cause: str, situation: Situation, changes: str, in_batch: str, in_admin: str
) -> None:
    assert verdicts(CHANGES[changes], situation) == ({in_batch}, {in_admin}), cause


def test_what_exists_of_a_topic_is_completed() -> None:
    """An interrupted commit has created the topic; the first state of partition 0 does not need broker 3."""
    situation = Situation(assigned=T, new={0: [1, 2], 1: [2, 3]}, epochs=WITHOUT_3)

    assert verdicts(CHANGES["topic"], situation)[0] == {PENDING, "stale: broker 3 is not live"}


def test_a_partition_is_not_moved_to_where_its_next_move_cannot_begin() -> None:
    move = {"action": Action.REASSIGN.value, "leader_epoch_after": None, "leader_after": 2}
    first = replace(ELECTION, **move, replicas_after=[1, 2, 4], requires_live=[1, 2])
    second = replace(first, wave=1, replicas_before=[1, 2, 4], replicas_after=[5, 2, 4], requires_live=[5, 2])
    away = replace(second, requires_live=[2], requires_dead=[3])

    for later, reason in ((second, "broker 5 is not live"), (away, "broker 3 is live again")):
        pending, outcomes = check_for_admin([first, later], AS_PLANNED.current([first]))
        assert (pending, outcomes[0].outcome, outcomes[0].message) == ([], Outcome.STALE, reason)
