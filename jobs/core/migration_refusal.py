"""Signs that a cluster is migrating to KRaft, and a persistent /controller that only looks like such a sign.

Corresponds to `KafkaZkClient.tryRegisterKRaftControllerAsActiveController`: a KRaft controller writes /migration, then
makes /controller persistent and puts its own epoch into it. A persistent /controller without both was created manually,
and it also prevents brokers from electing a controller. All functions take a sign as in ClusterState and `snapshots`.
"""

from typing import Final

from jobs.core.errors import RefusedError

MADE_BY_HAND: Final = "is persistent, but /migration and kraftControllerEpoch are missing: it was created manually"

UNDECODABLE: Final = "exists and could not be decoded"
"""A /migration with content that no KRaft controller writes: it is unknown whether a migration is in progress."""

DURING_MIGRATION: Final = "use Kafka's own tools, or --bootstrap-server once all brokers have left ZooKeeper"
"""How a cluster is changed while it migrates."""

_CREATED_MANUALLY: Final = (
    "/controller is persistent and has no KRaft epoch, so it was created manually. No broker can become the "
    "controller. Find its origin, then run: zookeeper-shell HOST:PORT delete /controller"
)


def is_made_by_hand(sign: str) -> bool:
    """Return whether the sign is a persistent /controller that no KRaft controller made.

    >>> is_made_by_hand(f"/controller {MADE_BY_HAND}"), is_made_by_hand("/migration names KRaft controller 3000")
    (True, False)
    """
    return "/controller is persistent" in sign  # rows of earlier releases continue with other words


def is_started(sign: str) -> bool:
    """Return whether the sign shows that a KRaft controller has taken over.

    >>> is_started("/migration names KRaft controller 3000"), is_started(f"/migration {UNDECODABLE}")
    (True, False)
    """
    return not (is_made_by_hand(sign) or UNDECODABLE in sign)


def migration_notice(sign: str) -> str:
    """Describe a sign for the output of read-only commands.

    >>> migration_notice("/migration names KRaft controller 3000")
    'migration to KRaft is in progress (/migration names KRaft controller 3000): plans and commits are refused'
    """
    if is_made_by_hand(sign):
        return f"plans and commits are refused: {_CREATED_MANUALLY}"
    if not is_started(sign):
        return f"plans and commits are refused: {_undecided(sign)}"
    return f"migration to KRaft is in progress ({sign}): plans and commits are refused"


def migration_refusal(sign: str) -> str:
    """Describe a sign as the reason why nothing is written."""
    if is_made_by_hand(sign):
        return _CREATED_MANUALLY
    if not is_started(sign):
        return _undecided(sign)
    return f"migration to KRaft is in progress ({sign}): ZooKeeper is no longer the authority; {DURING_MIGRATION}"


def _undecided(sign: str) -> str:
    return (
        f"{sign}: whether a migration to KRaft is in progress is unknown; `surveyor migration check` has the reason. "
        "If no KRaft controller has ever run, run: zookeeper-shell HOST:PORT delete /migration"
    )


def refuse_migration(sign: str | None) -> None:
    """Raise RefusedError if there is a sign: nothing may be written to the cluster."""
    if sign:
        raise RefusedError(migration_refusal(sign))
