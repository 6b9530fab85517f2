"""State that a plan's changes depend on in addition to their columns, in a cluster without versions.

Eligible leader replicas are not in the table `changes`, so `jobs.repositories.plans.plans_reader` reads them from the
snapshot. They are unknown for a rollback, which is computed from the live cluster and not from a snapshot. They are
also unknown for a plan with versions of znodes, which does not need them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from planner.reassignment.registration_differences import PartitionRegistration
from schemas.current_state import CurrentPartition
from schemas.rows import Change, Key
from schemas.znode_codecs import MalformedZnodeError


@dataclass(frozen=True, slots=True)
class PlannedRegistrations:
    """State of a plan's partitions that its rows, which have no versions, do not contain."""

    eligible: Mapping[Key, list[int] | None] = field(default_factory=dict)
    """Eligible leader replicas as planned, if they are known."""
    first_waves: Mapping[Key, int] = field(default_factory=dict)
    """The wave of the first change of each partition."""

    def of(self, change: Change) -> PartitionRegistration | None:
        """Return the state that a change was planned on; None for one that follows others of its plan."""
        follows = self.first_waves.get(change.key, change.wave) < change.wave
        if follows or change.leader_epoch_before is None:
            return None
        return PartitionRegistration(
            change.replicas_before or [],
            change.adding_before or [],
            change.removing_before or [],
            change.leader_before,
            change.leader_epoch_before,
            change.isr_before or [],
            self.eligible.get(change.key),
        )


NO_REGISTRATIONS: Final = PlannedRegistrations()


def first_waves(changes: Iterable[Change]) -> dict[Key, int]:
    """Return the wave of the first change of each partition that was planned without versions."""
    waves: dict[Key, int] = {}
    for change in filter(is_unversioned, changes):
        waves[change.key] = min(change.wave, waves.get(change.key, change.wave))
    return waves


def is_unversioned(change: Change) -> bool:
    """Return whether a change of an existing partition was planned without versions, so on its whole state."""
    return not change.is_new and change.state_version is None


def current_registration(partition: CurrentPartition) -> PartitionRegistration | None:
    """Return the whole current state of a partition; None if it does not exist or cannot be decoded."""
    try:
        assignment = partition.assignment
    except MalformedZnodeError:
        return None
    state = partition.state
    if assignment is None or state is None:
        return None
    lists = assignment.replicas, assignment.adding, assignment.removing
    return PartitionRegistration(*lists, state.leader, state.leader_epoch, state.isr, partition.eligible)
