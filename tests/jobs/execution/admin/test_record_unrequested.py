"""What an interrupted commit records of changes that it has not recorded yet."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Final

from jobs.execution.admin.admin_commit import AdminCommit
from jobs.preconditions.planned_registrations import NO_REGISTRATIONS
from jobs.repositories.plans.commit_log import CommitLog
from schemas.current_state import CurrentPartition, CurrentState, CurrentTopic, Decoded, LeaderAndIsr
from schemas.enums import Outcome
from schemas.plan import Plan, RowOutcome
from schemas.rows import Change
from schemas.znode_codecs import Assignment
from tests.jobs.support.rows.plan_rows import plan_record
from tests.typed_rows import typed

A, B = [1, 2], [3, 2]
WAVES: Final = [
    typed(wave=wave, replicas_before=before, replicas_after=after)
    for wave, (before, after) in enumerate([(A, B), (B, A), (A, B)])
]


def test_a_request_that_was_interrupted_is_recorded_if_it_runs() -> None:
    assert outcomes_of(decided=[]) == [Outcome.APPLIED, Outcome.SKIPPED, Outcome.SKIPPED]


def test_a_later_wave_to_the_same_replicas_does_not_run() -> None:
    assert outcomes_of(decided=WAVES[:1]) == [Outcome.APPLIED, Outcome.SKIPPED, Outcome.SKIPPED]


def outcomes_of(decided: list[Change]) -> list[Outcome]:
    """Return the outcome of each wave of an interrupted commit, while the partition moves from A to B."""
    assignment = Assignment({0: [*B, 1]}, {0: [3]}, {0: [1]}, None)
    topic = CurrentTopic("topic t", None, Decoded(assignment), is_unversioned=True)
    partition = CurrentPartition(topic, 0, "t-0", None, Decoded(LeaderAndIsr(1, 5, A)))
    current = CurrentState({("t", 0): partition}, {}, frozenset({1, 2, 3}))
    reader: Any = SimpleNamespace(sync=lambda: None, read_current=lambda _: current)
    cluster: Any = SimpleNamespace(reading=lambda: nullcontext(reader))
    none: Any = None
    log = CommitLog(none, Plan(plan_record(), WAVES, [], []), none, intents_written=True)
    log.add_outcomes(RowOutcome(change, Outcome.APPLIED, "accepted") for change in decided)

    AdminCommit(none, cluster, log, none, none, none, none, none, NO_REGISTRATIONS, None).record_unrequested(WAVES)

    return [row.outcome for row in sorted(log.outcomes, key=lambda row: row.change.wave)]
