"""Which ISRs that leaders propose are accepted: Kafka's checks in their order, and a second form of them."""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from planner.rules.alter_partition import IsrCandidates, IsrError, IsrProposal, IsrVerdict, judge_proposal
from planner.rules.inputs import PartitionInfo
from schemas.enums import NO_LEADER, RECOVERED, RECOVERING

ROW: Final = PartitionInfo(
    topic="orders",
    partition=0,
    replicas=[1, 2, 3],
    adding_replicas=[],
    removing_replicas=[],
    topic_version=1,
    understood=True,
    leader=1,
    isr=[1, 2],
    leader_epoch=5,
    controller_epoch=3,
    state_version=7,
    leader_recovery_state=RECOVERED,
)
LATEST: Final = 3
PROPOSAL: Final = IsrProposal(topic="orders", partition=0, leader=1, leader_epoch=5, partition_epoch=7, isr=[1, 2, 3])
CANDIDATES: Final = IsrCandidates({1: 101, 2: 102, 3: 103})
ACCEPTED: Final = IsrVerdict(IsrError.NONE, changes=True)
UNCHANGED: Final = IsrVerdict(IsrError.NONE, changes=False)


def _judge(row: PartitionInfo | None = ROW, version: int = LATEST, **proposed: Any) -> IsrVerdict:  # noqa: ANN401
    return judge_proposal(replace(PROPOSAL, **proposed), row, CANDIDATES, version=version)


@pytest.mark.parametrize("isr", [[1], [1, 2, 3], [3, 1], [1, 3]])
def test_replicas_join_and_leave(isr: list[int]) -> None:
    assert _judge(isr=isr) == ACCEPTED


ERRORS: Final[dict[str, tuple[IsrError, dict[str, Any]]]] = {
    "later partition epoch": (IsrError.NOT_CONTROLLER, {"partition_epoch": 8}),
    "later leader epoch": (IsrError.NOT_CONTROLLER, {"leader_epoch": 6}),
    "earlier leader epoch": (IsrError.FENCED_LEADER_EPOCH, {"leader_epoch": 4}),
    "earlier partition epoch": (IsrError.INVALID_UPDATE_VERSION, {"partition_epoch": 6}),
    "recovering with followers": (IsrError.INVALID_REQUEST, {"leader_recovery_state": RECOVERING}),
    "recovering again": (IsrError.INVALID_REQUEST, {"leader_recovery_state": RECOVERING, "isr": [1]}),
    "no recovery state": (IsrError.INVALID_REQUEST, {"leader_recovery_state": 25}),
    "another broker's partition": (IsrError.INVALID_REQUEST, {"leader": 2}),
    "without the leader": (IsrError.INVALID_REQUEST, {"isr": [2, 3]}),
    "empty": (IsrError.INVALID_REQUEST, {"isr": []}),
    "a broker twice": (IsrError.INVALID_REQUEST, {"isr": [1, 3, 3]}),
    "a broker without a replica": (IsrError.INVALID_REQUEST, {"isr": [1, 4]}),
    # two at once: the earlier check answers
    "recovering again, earlier partition epoch": (
        IsrError.INVALID_UPDATE_VERSION,
        {"leader_recovery_state": RECOVERING, "partition_epoch": 6},
    ),
    "recovering again, later partition epoch": (
        IsrError.NOT_CONTROLLER,
        {"leader_recovery_state": RECOVERING, "partition_epoch": 8},
    ),
    "recovering again, earlier leader epoch": (
        IsrError.FENCED_LEADER_EPOCH,
        {"leader_recovery_state": RECOVERING, "leader_epoch": 4},
    ),
    "recovering again, later leader epoch": (
        IsrError.NOT_CONTROLLER,
        {"leader_recovery_state": RECOVERING, "leader_epoch": 6},
    ),
    "later partition epoch, earlier leader epoch": (
        IsrError.NOT_CONTROLLER,
        {"partition_epoch": 8, "leader_epoch": 4},
    ),
    "earlier leader and partition epoch": (IsrError.FENCED_LEADER_EPOCH, {"partition_epoch": 6, "leader_epoch": 4}),
    "earlier partition epoch, empty": (IsrError.INVALID_UPDATE_VERSION, {"partition_epoch": 6, "isr": []}),
}


@pytest.mark.parametrize("case", ERRORS)
def test_refusals(case: str) -> None:
    error, proposed = ERRORS[case]

    assert _judge(**proposed) == IsrVerdict(error)


@pytest.mark.parametrize("partition_epoch", [0, 6, 7])
def test_what_is_so_already_succeeds(partition_epoch: int) -> None:
    assert _judge(isr=[1, 2], partition_epoch=partition_epoch) == UNCHANGED


def test_a_recovered_leader_says_so_once() -> None:
    recovering = replace(ROW, isr=[1], leader_recovery_state=RECOVERING)

    assert _judge(recovering, isr=[1]) == ACCEPTED
    assert _judge(recovering, isr=[1], leader_recovery_state=RECOVERING) == UNCHANGED
    assert _judge(recovering, isr=[1, 2]) == ACCEPTED
    assert _judge(recovering, isr=[1, 2], leader_recovery_state=RECOVERING) == IsrVerdict(IsrError.INVALID_REQUEST)


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (0, IsrError.OPERATION_NOT_ATTEMPTED),
        (1, IsrError.OPERATION_NOT_ATTEMPTED),
        (2, IsrError.INELIGIBLE_REPLICA),
        (3, IsrError.INELIGIBLE_REPLICA),
    ],
)
def test_a_broker_that_is_not_alive_is_ineligible(version: int, error: IsrError) -> None:
    verdict = judge_proposal(PROPOSAL, ROW, IsrCandidates({1: 101, 2: 102}), version=version)

    assert verdict == IsrVerdict(error)


def test_a_member_that_died_is_ineligible_until_the_leader_takes_it_out() -> None:
    candidates = IsrCandidates({1: 101, 3: 103})

    assert judge_proposal(PROPOSAL, ROW, candidates, version=LATEST) == IsrVerdict(IsrError.INELIGIBLE_REPLICA)
    assert judge_proposal(replace(PROPOSAL, isr=[1, 3]), ROW, candidates, version=LATEST) == ACCEPTED


def test_a_stopped_broker_stays_and_does_not_join() -> None:
    epochs = CANDIDATES.epochs

    assert judge_proposal(PROPOSAL, ROW, IsrCandidates(epochs, {2}), version=LATEST) == ACCEPTED
    refused = judge_proposal(PROPOSAL, ROW, IsrCandidates(epochs, {3}), version=LATEST)
    assert refused == IsrVerdict(IsrError.INELIGIBLE_REPLICA)


@pytest.mark.parametrize(
    ("broker_epochs", "verdict"),
    [
        ([101, 102, 103], ACCEPTED),
        ([-1, -1, -1], ACCEPTED),
        ([101, 102, 99], IsrVerdict(IsrError.INELIGIBLE_REPLICA)),
        ([], ACCEPTED),
    ],
)
def test_a_member_of_an_earlier_registration_is_ineligible(broker_epochs: list[int], verdict: IsrVerdict) -> None:
    assert _judge(broker_epochs=broker_epochs) == verdict


def test_a_member_outside_of_the_assignment_may_stay() -> None:
    strange = replace(ROW, isr=[1, 2, 9], replicas=[1, 2])
    candidates = IsrCandidates({1: 101, 2: 102, 9: 109})

    assert judge_proposal(replace(PROPOSAL, isr=[1, 9]), strange, candidates, version=LATEST) == ACCEPTED


def test_unknown_and_illegible_partitions() -> None:
    new = replace(ROW, leader=None, isr=None, leader_epoch=None, state_version=None)

    assert _judge(None) == IsrVerdict(IsrError.UNKNOWN_TOPIC_OR_PARTITION)
    assert _judge(new) == IsrVerdict(IsrError.UNKNOWN_TOPIC_OR_PARTITION)
    assert _judge(replace(ROW, understood=False)) == IsrVerdict(IsrError.OPERATION_NOT_ATTEMPTED)
    assert _judge(replace(new, understood=False, state_version=4)) == IsrVerdict(IsrError.OPERATION_NOT_ATTEMPTED)


BROKER_IDS = st.integers(0, 4)
ROWS = st.builds(
    lambda leader, isr, recovering: replace(
        ROW,
        leader=leader,
        isr=[*dict.fromkeys([*isr, *([leader] if leader >= 0 else [])])],
        leader_recovery_state=RECOVERING if recovering else RECOVERED,
    ),
    st.sampled_from([1, 2, 3, NO_LEADER]),
    st.lists(st.sampled_from([1, 2, 3]), max_size=3),
    st.booleans(),
)
PROPOSALS = st.builds(
    IsrProposal,
    topic=st.just("orders"),
    partition=st.just(0),
    leader=BROKER_IDS,
    leader_epoch=st.integers(4, 6),
    partition_epoch=st.integers(6, 8),
    isr=st.lists(BROKER_IDS, max_size=4),
    leader_recovery_state=st.sampled_from([RECOVERED, RECOVERED, RECOVERING, RECOVERING, 25]),
)


@given(ROWS, PROPOSALS, st.sets(BROKER_IDS))
def test_what_is_accepted_is_safe(row: PartitionInfo, proposal: IsrProposal, live: set[int]) -> None:
    """Whatever is written: the leader and its epoch stay, and each member of the ISR is a live replica."""
    verdict = judge_proposal(proposal, row, IsrCandidates(dict.fromkeys(live, 1)), version=LATEST)

    if not verdict.changes:
        return
    assert verdict.error is IsrError.NONE
    assert (proposal.leader, proposal.leader_epoch, proposal.partition_epoch) == (row.leader, 5, 7)
    assert proposal.leader_recovery_state in {RECOVERED, RECOVERING}
    assert row.leader in proposal.isr
    assert {*proposal.isr} <= live & {*row.replicas}
    assert len({*proposal.isr}) == len(proposal.isr)


@given(ROWS, PROPOSALS, st.sets(BROKER_IDS))
def test_an_accepted_proposal_succeeds_when_repeated(row: PartitionInfo, proposal: IsrProposal, live: set[int]) -> None:
    candidates = IsrCandidates(dict.fromkeys(live, 1))
    if not judge_proposal(proposal, row, candidates, version=LATEST).changes:
        return
    written = replace(row, isr=proposal.isr, leader_recovery_state=proposal.leader_recovery_state, state_version=8)

    assert judge_proposal(proposal, written, IsrCandidates({}), version=LATEST) == UNCHANGED


@given(ROWS, PROPOSALS, st.sets(BROKER_IDS))
def test_the_checks_of_kafka(row: PartitionInfo, proposal: IsrProposal, live: set[int]) -> None:
    """The same checks as a list of refusals in the order of `KafkaController.tryProcessAlterPartition`."""
    asked, isr = proposal, proposal.isr
    same = (asked.leader, asked.leader_epoch, isr) == (row.leader, 5, row.isr)
    is_same = same and asked.leader_recovery_state == row.leader_recovery_state
    recovering = asked.leader_recovery_state == RECOVERING
    refusals = [
        (asked.partition_epoch == 8 or asked.leader_epoch == 6, 41),
        (asked.leader_epoch == 4, 74),
        (is_same, 0),
        (asked.partition_epoch == 6, 95),
        (asked.leader_recovery_state == 25, 42),
        (recovering and (len(isr) > 1 or row.leader_recovery_state == RECOVERED), 42),
        (asked.leader != row.leader or asked.leader not in isr, 42),
        (any(isr.count(broker) > 1 for broker in isr), 42),
        (any(broker not in [*row.replicas, *(row.isr or [])] for broker in isr), 42),
        (any(broker not in live for broker in isr), 107),
    ]
    expected = next((code for applies, code in refusals if applies), 0)

    assert judge_proposal(asked, row, IsrCandidates(dict.fromkeys(live, 1)), version=LATEST).error == expected
