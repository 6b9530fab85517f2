"""Computes what must be done when a broker fails, before it fails.

A decision by Spark takes some tenths of a second, in which partitions without a leader would have to wait. While
nothing is due, decisions are computed for the failure of each live broker in turn, and cached. Nothing is written. When
the broker does fail, only partitions that have changed in the meantime need a query.
"""

import time
from dataclasses import dataclass, field
from typing import Final

from jobs.controller.context import ControllerContext
from jobs.controller.decisions.engine import DecisionEngine

IDLE_SECONDS: Final = 30.0
"""Seconds after which the failure of a broker is computed again, if its partitions have changed.

If the set of live brokers has changed, it is computed again immediately.
"""

MAX_CLASSES: Final = 5_000
"""Classes of partitions that are queried for one broker.

The failure of a broker with more of them is not computed in advance, as that would delay a cycle too long.
"""


@dataclass(slots=True)
class FailurePrecomputer:
    """Keeps the decisions for the failure of any one broker in the engine's cache."""

    engine: DecisionEngine
    context: ControllerContext
    _brokers: frozenset[tuple[int, int]] = frozenset()
    """Live brokers with their epochs, for which the cached failures were computed."""
    _computed_at: dict[int, float] = field(default_factory=dict)
    """By broker, when its failure was computed last."""

    def restart(self) -> None:
        """Compute all failures again, because an input of all decisions has changed."""
        self._brokers = frozenset()

    def run_next(self) -> bool:
        """Compute the failure of one broker, if one is due; return whether one was."""
        context = self.context
        brokers = frozenset((broker, context.brokers[broker]["broker_epoch"]) for broker in context.live)
        if brokers != self._brokers:
            self._brokers, self._computed_at = brokers, {}
        now = time.monotonic()
        for broker in context.live:
            computed_at = self._computed_at.get(broker)
            if computed_at is None or (broker in context.dirty_brokers and now - computed_at > IDLE_SECONDS):
                self._computed_at[broker] = now
                context.dirty_brokers.discard(broker)
                self.engine.precompute_failure(context, broker, MAX_CLASSES)
                return True
        return False
