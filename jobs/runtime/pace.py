"""How long commands wait for others, how much they do at once, and the clock by which they do.

A program that calls commands in its own process, such as a test, can give them another pace, as the object of click's
context.
"""

import time
from dataclasses import dataclass
from typing import Final, Protocol


class Clock(Protocol):
    """The functions of module `time` that commands call."""

    def monotonic(self) -> float: ...

    def time(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Pace:
    """Times are in seconds."""

    clock: Clock = time
    probe: float = 5.0
    """For a server to answer a check of `doctor`."""
    live: float = 5.0
    """For the cluster to answer a command that only shows it."""
    bootstrap: float = 10.0
    """For some broker to answer the Admin API."""
    contact: float = 6.0
    """For brokers to answer before anything is written; brokers register before they can answer."""
    configs: float = 10.0
    """For brokers to return their configs."""
    configs_again: float = 20.0
    """For brokers to return their configs that did not at first, before a take-over."""
    lease_handover: float = 60.0
    """For a commit to release the lease to a cancellation: it does so between two polls or requests."""
    previous_wave: float = 15.0
    """For the wave before to show in ZooKeeper: Kafka's controller answers after it has written a request."""
    cancellation: float = 15.0
    """For a cancellation to show in ZooKeeper: Kafka's controller answers after it has written it."""
    read_back: float = 15.0
    """For a received request whose answer was lost to show in ZooKeeper."""
    check_valid: float = 5.0
    """After which the reading by which changes were checked is too old to request them."""
    checked_together: int = 500
    """Changes that one reading checks, unless one request has more: about as many as can be requested one by one in
    `check_valid`.
    """
    batch_changes: int = 1000
    """Maximum number of changes in a multi; its bytes are limited as well."""
    small_cluster: int = 10_000
    """Partitions of a cluster up to which this process reads it, and to compile queries takes longer than it saves."""
    resignation: float = 20.0
    """For a broker to become the controller after Surveyor has resigned."""
    cycle: float = 15.0
    """After which a cycle of `control` starts no further multi; the next one decides on the other changes again."""
    first_pause: float = 2.0
    """Before `reconcile --until-quiet` looks again at partitions that copy; each further pause is twice as long."""


DEFAULT: Final = Pace()
