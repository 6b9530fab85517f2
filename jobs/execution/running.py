"""How a plan's reassignments are run: whom to ask, how fast to copy, how long to wait."""

from dataclasses import dataclass
from enum import StrEnum


class Via(StrEnum):
    """How Kafka's controller is asked."""

    ADMIN = "admin"
    """By the Admin API."""
    ZOOKEEPER = "zookeeper"
    """By /admin/reassign_partitions and /admin/preferred_replica_election, as before Kafka 2.4."""


@dataclass(frozen=True, slots=True)
class Running:
    """What the command line says of it."""

    via: Via = Via.ADMIN
    throttle: int | None = None
    """Bytes a second; None: as it is."""
    wait: bool = False
    """Also for the last wave."""
    max_wait: float | None = None
    """Seconds; None: as long as it takes."""

    @property
    def watches(self) -> bool:
        """Whether a plan that is committed already is still to be looked after."""
        return self.wait or self.throttle is not None
