"""Signs that a cluster is on its way to KRaft, and a /controller that only looks like one.

Corresponds to `KafkaZkClient.tryRegisterKRaftControllerAsActiveController`: a KRaft controller makes /controller
persistent with its own epoch in it, after it wrote /migration. A persistent /controller without both was made by hand;
it keeps brokers from electing a controller all the same. In: a sign as ClusterState and `snapshots` have it.
"""

from typing import Final

MADE_BY_HAND: Final = "is persistent, and neither /migration nor kraftControllerEpoch is there: it was made by hand"

_DELETE: Final = (
    "find out who made it; `zookeeper-shell HOST:PORT delete /controller` lets a broker become the controller"
)


def is_made_by_hand(sign: str) -> bool:
    """Tell a persistent /controller that no KRaft controller made.

    >>> is_made_by_hand(f"/controller {MADE_BY_HAND}"), is_made_by_hand("/migration names KRaft controller 3000")
    (True, False)
    """
    return MADE_BY_HAND in sign


def migration_notice(sign: str) -> str:
    """Say what a sign means, for people who look.

    >>> migration_notice("/migration names KRaft controller 3000")
    'a migration to KRaft is in sight (/migration names KRaft controller 3000): plans and commits are refused'
    """
    if is_made_by_hand(sign):
        return f"{sign}, and no broker becomes the controller while it stands; plans and commits are refused: {_DELETE}"
    return f"a migration to KRaft is in sight ({sign}): plans and commits are refused"


def migration_refusal(sign: str) -> str:
    """Say why nothing is written."""
    if is_made_by_hand(sign):
        return f"{sign}, and no broker becomes the controller while it stands; {_DELETE}"
    return f"a migration to KRaft is in progress ({sign}): ZooKeeper is no longer the authority; use Kafka's own tools"
