"""Whether the quorum of a KRaft cluster keeps a majority of its voters while some of them restart.

Without a majority no leader of the quorum is elected and no metadata changes, so no partition gets another leader
(`LeaderState`, `QuorumState`). A node that is both broker and controller has one id for both. A voter counts as up to
date if it has caught up with the leader of the quorum recently: a live voter fetches at least twice a second.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.rows import Voter

MAX_VOTER_LAG_MS: Final = 5_000
"""Time without catching up after which a voter counts as down or lagging."""


def is_current(voter: Voter) -> bool:
    """Return whether a voter is known to be up to date, so that its node is alive."""
    return voter.lag_ms is not None and voter.lag_ms <= MAX_VOTER_LAG_MS


@dataclass(frozen=True, slots=True)
class QuorumAfterRestart:
    """The quorum while `restarting` voters are down."""

    voters: Sequence[int]
    restarting: Sequence[int]
    needed: int
    """The majority."""
    current: Sequence[int]
    """Voters that remain and are up to date."""
    uncertain: Sequence[int]
    """Voters that remain, and may or may not be up to date."""

    @property
    def keeps_majority(self) -> bool | None:
        """Whether a majority remains; None if it depends on what is unknown."""
        if len(self.current) >= self.needed:
            return True
        return None if len(self.current) + len(self.uncertain) >= self.needed else False


def majority(voters: int) -> int:
    """Return the majority of a number of voters.

    >>> [majority(voters) for voters in (1, 2, 3, 4, 5)]
    [1, 2, 2, 3, 3]
    """
    return voters // 2 + 1


def quorum_after_restart(voters: Sequence[Voter], restarting: Collection[int]) -> QuorumAfterRestart | None:
    """Return what remains of the quorum while these nodes restart; None if none of them is a voter.

    >>> voters = [Voter(voter_id=1, lag_ms=0), Voter(voter_id=2, lag_ms=300), Voter(voter_id=3, lag_ms=90_000)]
    >>> [quorum_after_restart(voters, [broker]).keeps_majority for broker in (1, 2, 3)]
    [False, False, True]
    >>> quorum_after_restart(voters, [9])
    """
    ids = [voter.voter_id for voter in voters]
    concerned = sorted({*restarting}.intersection(ids))
    if not concerned:
        return None
    remaining = [voter for voter in voters if voter.voter_id not in concerned]
    return QuorumAfterRestart(
        voters=ids,
        restarting=concerned,
        needed=majority(len(ids)),
        current=[voter.voter_id for voter in remaining if is_current(voter)],
        uncertain=[voter.voter_id for voter in remaining if voter.lag_ms is None],
    )


def may_restart_together(voters: Collection[int], brokers: Iterable[int]) -> bool:
    """Return whether a majority of the voters remains while these brokers restart, if all others are up to date.

    One voter alone may always restart, as each does at some time.
    """
    down = len({*voters}.intersection(brokers))
    return down <= max(1, len(voters) - majority(len(voters)))
