"""Which ISRs that leaders propose are accepted: Kafka's checks in their order, and an oracle written from Kafka."""

from dataclasses import dataclass
from dataclasses import replace as replace_fields
from typing import Any, Final

import pytest
from hypothesis import Phase, assume, find, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from planner.rules.alter_partition import IsrCandidates, IsrError, IsrProposal, IsrVerdict, check_proposal
from schemas.enums import NO_LEADER, RECOVERED, RECOVERING
from schemas.partition_info import PartitionInfo
from tests.planner import isr_oracle as oracle

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


def _check(row: PartitionInfo | None = ROW, version: int = LATEST, **proposed: Any) -> IsrVerdict:  # noqa: ANN401
    return check_proposal(replace(PROPOSAL, **proposed), row, CANDIDATES, version=version)


@pytest.mark.parametrize("isr", [[1], [1, 2, 3], [3, 1], [1, 3]])
def test_replicas_join_and_leave(isr: list[int]) -> None:
    assert _check(isr=isr) == ACCEPTED


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

    assert _check(**proposed) == IsrVerdict(error)


@pytest.mark.parametrize("partition_epoch", [0, 6, 7])
def test_what_is_so_already_succeeds(partition_epoch: int) -> None:
    assert _check(isr=[1, 2], partition_epoch=partition_epoch) == UNCHANGED


def test_a_recovered_leader_says_so_once() -> None:
    recovering = replace(ROW, isr=[1], leader_recovery_state=RECOVERING)

    assert _check(recovering, isr=[1]) == ACCEPTED
    assert _check(recovering, isr=[1], leader_recovery_state=RECOVERING) == UNCHANGED
    assert _check(recovering, isr=[1, 2]) == ACCEPTED
    assert _check(recovering, isr=[1, 2], leader_recovery_state=RECOVERING) == IsrVerdict(IsrError.INVALID_REQUEST)


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
    verdict = check_proposal(PROPOSAL, ROW, IsrCandidates({1: 101, 2: 102}), version=version)

    assert verdict == IsrVerdict(error)


def test_a_dead_member_is_ineligible_until_removed() -> None:
    candidates = IsrCandidates({1: 101, 3: 103})

    assert check_proposal(PROPOSAL, ROW, candidates, version=LATEST) == IsrVerdict(IsrError.INELIGIBLE_REPLICA)
    assert check_proposal(replace(PROPOSAL, isr=[1, 3]), ROW, candidates, version=LATEST) == ACCEPTED


def test_a_stopped_broker_stays_and_does_not_join() -> None:
    epochs = CANDIDATES.epochs

    assert check_proposal(PROPOSAL, ROW, IsrCandidates(epochs, {2}), version=LATEST) == ACCEPTED
    refused = check_proposal(PROPOSAL, ROW, IsrCandidates(epochs, {3}), version=LATEST)
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
    assert _check(broker_epochs=broker_epochs) == verdict


def test_a_member_outside_of_the_assignment_may_stay() -> None:
    strange = replace(ROW, isr=[1, 2, 9], replicas=[1, 2])
    candidates = IsrCandidates({1: 101, 2: 102, 9: 109})

    assert check_proposal(replace(PROPOSAL, isr=[1, 9]), strange, candidates, version=LATEST) == ACCEPTED


def test_unknown_and_illegible_partitions() -> None:
    new = replace(ROW, leader=None, isr=None, leader_epoch=None, state_version=None)

    assert _check(None) == IsrVerdict(IsrError.UNKNOWN_TOPIC_OR_PARTITION)
    assert _check(new) == IsrVerdict(IsrError.UNKNOWN_TOPIC_OR_PARTITION)
    assert _check(replace(ROW, understood=False)) == IsrVerdict(IsrError.OPERATION_NOT_ATTEMPTED)
    assert _check(replace(new, understood=False, state_version=4)) == IsrVerdict(IsrError.OPERATION_NOT_ATTEMPTED)


BROKER_IDS = st.integers(0, 4)
NO_BROKERS: Final = frozenset[int]()


@dataclass(frozen=True)
class Case:
    """A proposal, the stored state, the registered brokers with their epochs, and those that a drain has stopped."""

    row: PartitionInfo | None
    proposal: IsrProposal
    epochs: dict[int, int]
    stopped: frozenset[int]
    version: int

    def check(self) -> oracle.IsrOutcome:
        """Our answer in the form of the oracle."""
        candidates = IsrCandidates(self.epochs, self.stopped)
        verdict = check_proposal(self.proposal, self.row, candidates, version=self.version)
        if verdict.error is not IsrError.NONE:
            assert not verdict.changes
            return int(verdict.error)
        current = self.current
        assert current is not None
        return (
            replace_fields(self.new, partition_epoch=current.partition_epoch + 1)  # as written
            if verdict.changes
            else current
        )

    @property
    def current(self) -> oracle.LeaderAndIsr | None:
        row = self.row
        if row is None or row.leader is None or row.leader_epoch is None or row.state_version is None:
            return None
        recovery_state = row.leader_recovery_state or RECOVERED
        return oracle.LeaderAndIsr(
            row.leader, row.leader_epoch, tuple(row.isr or ()), recovery_state, row.state_version
        )

    @property
    def new(self) -> oracle.LeaderAndIsr:
        of = self.proposal
        return oracle.LeaderAndIsr(
            of.leader, of.leader_epoch, tuple(of.isr), of.leader_recovery_state, of.partition_epoch
        )

    @property
    def of_kafka(self) -> oracle.IsrOutcome:
        return oracle.answer_of_kafka(self.current, self.new, self.epochs, self.version)

    @property
    def is_correct(self) -> bool:
        """Whether a correct leader proposes this, and no check of decision record 028 applies."""
        current, row = self.current, self.row
        if current is None or row is None:
            return row is None or row.state_version is None
        of_leader = oracle.is_of_a_correct_leader(current, self.new, row.replicas)
        return row.understood and of_leader and self.may_all_join

    @property
    def may_all_join(self) -> bool:
        current = self.current
        assert current is not None
        proposed = dict(zip(self.proposal.isr, self.proposal.broker_epochs, strict=False))
        return oracle.may_all_join(current, self.new, proposed, self.epochs, self.stopped)

    @property
    def expected(self) -> oracle.IsrOutcome:
        """The answer of Kafka, and the checks of decision record 028."""
        current, row, of_kafka = self.current, self.row, self.of_kafka
        if row is not None and not row.understood and row.had_state:
            return oracle.OPERATION_NOT_ATTEMPTED
        if current is None or row is None:
            return of_kafka
        is_last_check = of_kafka == oracle.ineligible(self.version)
        is_written = isinstance(of_kafka, oracle.LeaderAndIsr) and of_kafka != current
        if not (is_last_check or is_written):
            return of_kafka
        if not oracle.is_of_a_correct_leader(current, self.new, row.replicas):
            return oracle.INVALID_REQUEST
        return of_kafka if self.may_all_join else oracle.ineligible(self.version)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a case; half of the proposals are those of a correct leader, so that each check decides in some of them."""
    is_correct = draw(st.booleans())
    leader = draw(st.sampled_from([1, 1, 1, 2, 2, NO_LEADER]))
    others = draw(st.lists(st.sampled_from([1, 2, 3, 4]), unique=True, max_size=3))
    isr = [*dict.fromkeys([leader, *others] if leader >= 0 else others)]
    recovery_states = st.sampled_from([RECOVERED, RECOVERED, RECOVERING])
    row = replace(ROW, leader=leader, isr=isr, leader_recovery_state=draw(st.none() | recovery_states))
    of_replicas = st.lists(st.sampled_from([1, 2, 3]), unique=True).map(lambda more: [*dict.fromkeys([leader, *more])])
    proposed = draw(of_replicas if is_correct else st.permutations(isr) | st.lists(BROKER_IDS, max_size=4))
    epochs = {broker: 100 + broker for broker in draw(st.sets(BROKER_IDS) | st.just({1, 2, 3, 4}))}
    known = [draw(st.sampled_from([-1, 100 + broker, 100 + broker, 99])) for broker in proposed]
    proposal = IsrProposal(
        topic="orders",
        partition=0,
        leader=leader if is_correct else draw(st.sampled_from([*[leader] * 6, *range(5)])),
        leader_epoch=5 + draw(st.sampled_from([*[0] * 8, -1, 1])),
        partition_epoch=7 + draw(st.sampled_from([*[0] * 8, -1, 1])),
        isr=[*proposed],
        broker_epochs=draw(st.just([]) | st.just(known)),
        leader_recovery_state=draw(st.sampled_from([*[RECOVERED] * 6, RECOVERING, RECOVERING, 25])),
    )
    none = replace(row, leader=None, isr=None, leader_epoch=None, state_version=None, leader_recovery_state=None)
    illegible = replace(none, understood=False, state_version=7)
    stored = draw(st.sampled_from([*[row] * 12, None, none, illegible]))
    stopped = draw(st.just(NO_BROKERS) | st.frozensets(BROKER_IDS, max_size=2))
    return Case(stored, proposal, epochs, stopped, draw(st.integers(0, LATEST)))


@given(cases())
def test_the_answer_of_kafka_with_the_additional_checks(case: Case) -> None:
    assert case.check() == case.expected


@given(cases())
def test_what_is_accepted_is_safe(case: Case) -> None:
    """Whatever is written: the leader and its epoch stay, and each member of the ISR has a replica, and is live."""
    proposal, row, written = case.proposal, case.row, case.check()
    if row is None or written in (case.current, None) or not isinstance(written, oracle.LeaderAndIsr):
        return
    assert (proposal.leader, proposal.leader_epoch, proposal.partition_epoch) == (row.leader, 5, 7)
    assert proposal.leader_recovery_state in {RECOVERED, RECOVERING}
    assert row.leader in proposal.isr
    assert {*proposal.isr} <= case.epochs.keys() & {*row.replicas, *(row.isr or ())}
    assert len({*proposal.isr}) == len(proposal.isr)


@given(cases())
def test_a_correct_leader_gets_the_answer_of_kafka(case: Case) -> None:
    """What Kafka accepts is accepted, what it refuses is refused with its error, and the same state is written."""
    assume(case.is_correct)
    assert case.check() == case.of_kafka


def _outcome(case: Case) -> int | str:
    answer = case.check()
    if isinstance(answer, oracle.LeaderAndIsr):
        return "unchanged" if answer == case.current else "written"
    return answer


@pytest.mark.parametrize("outcome", [*oracle.ERRORS, "written", "unchanged"])
def test_each_answer_is_among_the_cases(outcome: int | str) -> None:
    """So that the equality above is about all of them, also for correct leaders."""
    drawn = settings(max_examples=5000, phases=[Phase.generate], derandomize=True, database=None)

    assert find(cases(), lambda case: case.is_correct and _outcome(case) == outcome, settings=drawn)
