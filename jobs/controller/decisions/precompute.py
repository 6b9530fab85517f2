"""What is to be done when a broker fails, found out before it does.

A decision by Spark takes some tenths of a second, and partitions without a leader would wait for it. So whenever
nothing is due it is decided for one live broker after the other as if it were gone. Nothing is done about it, but it is
known then: when the broker fails, only those partitions are asked about that have changed in another way since.
"""

import time
from dataclasses import dataclass, field
from typing import Final

from jobs.controller.context import ControllerContext
from jobs.controller.decisions.engine import DecisionEngine

IDLE_SECONDS: Final = 30.0
"""Seconds after which a broker is looked at again, if its partitions have changed; at once if other brokers have."""

MAX_CLASSES: Final = 5_000
"""Kinds of partitions that are asked about; a broker that has more is not foreseen, as that would hold up too much."""


@dataclass(slots=True)
class FailurePrecomputer:
    """Keeps the decider prepared for the failure of any one broker."""

    decider: DecisionEngine
    memory: ControllerContext
    _among: frozenset[tuple[int, int]] = frozenset()
    """Brokers and their epochs by which it was foreseen what is known."""
    _last: dict[int, float] = field(default_factory=dict)
    """When each broker was looked at."""

    def restart(self) -> None:
        """Foresee everything again: what is decided by has changed."""
        self._among = frozenset()

    def run_next(self) -> bool:
        """Foresee the failure of one broker, if there is one to look at; return whether there was."""
        memory = self.memory
        among = frozenset((broker, memory.brokers[broker]["broker_epoch"]) for broker in memory.live)
        if among != self._among:
            self._among, self._last = among, {}
        now = time.monotonic()
        for broker in memory.live:
            last = self._last.get(broker)
            if last is None or (broker in memory.dirty_brokers and now - last > IDLE_SECONDS):
                self._last[broker] = now
                memory.dirty_brokers.discard(broker)
                self.decider.precompute_failure(memory, broker, MAX_CLASSES)
                return True
        return False
