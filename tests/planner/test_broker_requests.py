"""Notices for changes and deletions: one example of each kind, and an oracle of their recipients."""

from hypothesis import given
from hypothesis import strategies as st

from planner.broker_requests import notices_for, notices_for_deletion
from schemas.enums import LEADER_DURING_DELETE, Action
from schemas.notices import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from schemas.rows import Change, Key
from tests.typed_rows import typed

IDS = st.lists(st.integers(0, 5), max_size=4, unique=True)
EPOCHS = st.none() | st.integers(0, 50)
changes = st.lists(
    st.builds(
        typed,
        action=st.sampled_from(["elect", Action.START_REASSIGNMENT, Action.NARROW_TO_TARGET, Action.END_REASSIGNMENT]),
        topic=st.sampled_from(["t", "u"]),
        partition=st.integers(0, 20),
        topic_id=st.none() | st.just("AAAAAAAAAAAAAAAAAAAAAg"),
        leader_after=st.integers(-1, 5),
        leader_epoch_after=EPOCHS,
        leader_recovery_state_after=st.none() | st.integers(0, 1),
        isr_after=IDS,
        replicas_after=IDS,
        adding_after=IDS,
        removing_after=IDS,
        is_new=st.booleans(),
        state_version=st.integers(-1, 50),
        leader_and_isr_to=IDS,
        stop_replica_to=st.none() | IDS,
    ),
    max_size=30,
    unique_by=lambda change: change.key,
)


def recipients(change: Change, live: set[int]) -> dict[tuple[str, int], bool]:
    """Return by API and broker whether the replica is new: the oracle, one broker at a time."""
    sent: dict[tuple[str, int], bool] = {}
    if change.leader_epoch_after is None or change.leader_recovery_state_after is None:
        return sent
    for broker in live:
        sent[UPDATE_METADATA, broker] = change.is_new
        if broker in change.leader_and_isr_to:
            is_added = change.action == Action.START_REASSIGNMENT and broker in change.adding_after
            sent[LEADER_AND_ISR, broker] = is_added or change.is_new
        if broker in (change.stop_replica_to or ()):
            sent[STOP_REPLICA, broker] = change.is_new
    return sent


@given(changes, st.sets(st.integers(0, 5)))
def test_recipients(decided: list[Change], live: set[int]) -> None:
    sent: dict[Key, dict[tuple[str, int], bool]] = {change.key: {} for change in decided}
    for notice in notices_for(decided, live):
        of_change = sent[notice.topic, notice.partition]
        assert notice.brokers
        assert not {(notice.api, broker) for broker in notice.brokers} & of_change.keys(), "a broker gets it twice"
        of_change |= {(notice.api, broker): notice.is_new for broker in notice.brokers}

    assert sent == {change.key: recipients(change, live) for change in decided}


def test_recipients_of_state_and_metadata() -> None:
    state = {"leader_after": 1, "leader_epoch_after": 7, "leader_recovery_state_after": 0, "state_version": 2}
    change = typed(leader_and_isr_to=[3, 1, 9], stop_replica_to=[2], **state)

    rows = notices_for([change], [3, 2, 1, 0])

    assert [(row.api, row.brokers) for row in rows] == [
        (LEADER_AND_ISR, (3, 1)),
        (UPDATE_METADATA, (0, 1, 2, 3)),
        (STOP_REPLICA, (2,)),
    ]
    assert {(row.leader, row.leader_epoch, row.state_version, row.delete_partition) for row in rows} == {
        (1, 7, 3, False)
    }


def test_added_replicas_are_new_and_leaving_ones_unassigned() -> None:
    moving = {"replicas_after": [3, 1], "adding_after": [3], "removing_after": [1], "leader_and_isr_to": [1, 3]}
    state = {"leader_after": 1, "leader_epoch_after": 7, "leader_recovery_state_after": 0, **moving}

    start = notices_for([typed(action=Action.START_REASSIGNMENT, **state)], [1, 2, 3])
    narrow = notices_for([typed(action=Action.NARROW_TO_TARGET, stop_replica_to=[1], **state)], [1, 2, 3])

    assert [(row.api, row.brokers, row.is_new) for row in start] == [
        (LEADER_AND_ISR, (3,), True),
        (LEADER_AND_ISR, (1,), False),
        (UPDATE_METADATA, (1, 2, 3), False),
    ]
    assert {tuple(row.replicas) for row in start} == {(3, 1)}
    assert {(*row.replicas, *row.adding_replicas, *row.removing_replicas) for row in narrow} == {(3,)}
    assert [(row.api, row.brokers) for row in narrow if row.delete_partition] == [(STOP_REPLICA, (1,))]


def test_changes_decided_by_kafka_have_no_notices() -> None:
    assert notices_for([typed(leader_and_isr_to=[1])], [1]) == []


def test_a_deleted_topic_has_no_leader_and_then_no_replicas() -> None:
    first, then = (notices_for_deletion("t", "id", {0: [2, 1]}, {1, 2, 3}, delete=delete) for delete in (False, True))

    assert [(row.api, row.brokers, row.delete_partition) for row in (*first, *then)] == [
        (UPDATE_METADATA, (1, 2, 3), False),
        (STOP_REPLICA, (1, 2), False),
        (STOP_REPLICA, (1, 2), True),
    ]
    assert {(row.leader, row.leader_epoch) for row in first} == {(LEADER_DURING_DELETE, LEADER_DURING_DELETE)}
