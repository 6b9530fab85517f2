"""Plans of unclean elections in a KRaft cluster: those that are clean are left to the controller, and never requested.

A request is for an unclean election, whatever the plan expects: if the last replica in sync died just before, the
controller would elect one that lacks its records, without a permission.
"""

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec.structs import replace

from jobs.adapters.clusters.interface import WHY_NO_FENCE
from jobs.core.errors import RefusedError
from jobs.execution.admin.controller_client import request_changes
from jobs.execution.mode_selection import choose_mode
from jobs.runtime.cli_enums import Mode
from jobs.runtime.pace import Pace
from schemas.current_state import CurrentPartition, CurrentState, CurrentTopic, Decoded, LeaderAndIsr
from schemas.enums import NO_LEADER, Action
from schemas.rows import Change, Key
from schemas.znode_codecs import Assignment
from tests.typed_rows import UNVERSIONED, typed

if TYPE_CHECKING:
    from schemas.stored_plan import RowOutcome

UNCLEAN = typed(
    partition=1,
    action=Action.ELECT.value,
    replicas_before=[1, 2],
    replicas_after=[1, 2],
    adding_before=[],
    removing_before=[],
    leader_before=NO_LEADER,
    leader_after=2,
    leader_epoch_before=5,
    isr_before=[1],
    isr_after=[2],
    **UNVERSIONED,
    requires_live=[2],
    requires_dead=[1],
)
CLEAN = Change(
    wave=0,
    topic="t",
    partition=1,
    action=Action.ELECT.value,
    replicas_before=[1, 2],
    replicas_after=[1, 2],
    adding_before=[],
    adding_after=[],
    removing_before=[],
    removing_after=[],
    leader_before=NO_LEADER,
    leader_after=2,
    leader_epoch_before=5,
    isr_before=[1],
    isr_after=[2],
    state_version=None,
    topic_version=None,
    is_new=False,
    leader_and_isr_to=[],
    requires_live=[2],
    requires_dead=[1],
    reason="a test",
)
CLEAN = replace(UNCLEAN, partition=0, isr_before=[1, 2])


class ReadCluster:
    """The cluster, in which the partition of the clean election has this leader."""

    def __init__(self, leader: int) -> None:
        self.leaders = {("t", 0): leader, ("t", 1): NO_LEADER}

    def sync(self) -> None:
        """Nothing is cached."""

    def read_current(self, changes: Sequence[Change]) -> CurrentState:
        return CurrentState({change.key: self._partition(change.key) for change in changes}, {}, frozenset({2}))

    def read_operations(self, _: object) -> Any:  # noqa: ANN401 - of no operations
        return None

    def _partition(self, key: Key) -> CurrentPartition:
        topic = CurrentTopic(
            "topic t", None, Decoded(Assignment({0: [1, 2], 1: [1, 2]}, {}, {}, None)), is_unversioned=True
        )
        state = Decoded(LeaderAndIsr(self.leaders[key], 6, [2]))
        return CurrentPartition(topic, key[1], "t", None, state, [], [])


def outcomes(leader: int) -> tuple[list[Key], dict[int, tuple[str, str]]]:
    """Request both elections; return which were, and the outcome and message of each."""
    asked: list[Key] = []
    judged: list[RowOutcome] = []

    def elect_unclean(keys: Sequence[Key]) -> dict[Key, int]:
        asked.extend(keys)
        return dict.fromkeys(keys, 0)

    commit_log = SimpleNamespace(
        add_outcomes=judged.extend, plan=SimpleNamespace(operations=[], row=SimpleNamespace(options={}))
    )
    controller = SimpleNamespace(elect_unclean=elect_unclean)
    parts = ReadCluster(leader), commit_log, controller
    lease = SimpleNamespace(refuse_lost=lambda: None)
    given = cast("tuple[Any, Any, Any]", parts)
    request_changes(
        *given, [CLEAN, UNCLEAN], cast("Any", lease), list, lambda _: None, time.monotonic(), Pace(read_back=0.0)
    )
    return asked, {row.change.key[1]: (row.outcome.value, row.message) for row in judged}


@pytest.mark.parametrize(("leader", "clean"), [(2, "applied"), (NO_LEADER, "skipped")])
def test_clean_elections_are_left_to_the_controller(leader: int, clean: str) -> None:
    asked, found = outcomes(leader)
    assert asked == [("t", 1)]
    assert (found[0][0], found[1][0]) == (clean, "applied")
    assert ("elects in-sync replicas itself" in found[0][1]) == (clean == "skipped")


@pytest.mark.parametrize(
    ("changes", "is_admin"), [([UNCLEAN], True), ([CLEAN, UNCLEAN], True), ([CLEAN], False)], ids=str
)
def test_a_plan_with_an_unclean_election_can_be_committed(changes: list[Change], is_admin: bool) -> None:  # noqa: FBT001
    plan = cast(
        "Any", SimpleNamespace(title="p", changes=changes, tasks=[], operations=[], row=SimpleNamespace(kind="elect"))
    )
    cluster = cast("Any", SimpleNamespace(fence=None))
    nothing = cast("Any", None)
    if is_admin:
        assert choose_mode(Mode.AUTO, nothing, plan, nothing, cluster=cluster) == (Mode.ADMIN, WHY_NO_FENCE)
    else:
        with pytest.raises(RefusedError, match="elects live replicas in sync by itself"):
            choose_mode(Mode.AUTO, nothing, plan, nothing, cluster=cluster)
