"""Moves leadership back to the preferred replicas every few minutes, from brokers that lead too few of theirs.

Corresponds to `KafkaController.checkAndTriggerAutoLeaderRebalance`, with the brokers' own settings.
`auto.leader.rebalance.enable` is off if any broker sets it to false; of `leader.imbalance.check.interval.seconds` and
`leader.imbalance.per.broker.percentage` the largest value counts. The ratio is defined in
`planner.leadership.imbalance`. The context maintains the counts, so that a check costs time per broker and not per
partition.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Self

from jobs.controller.controller_context import ControllerContext
from schemas.rows import BrokerConfig, Key
from schemas.topic_configs import boolean, whole_number

_ENABLED: Final = "auto.leader.rebalance.enable"
_INTERVAL: Final = "leader.imbalance.check.interval.seconds"
_PERCENTAGE: Final = "leader.imbalance.per.broker.percentage"

FIRST_CHECK_SECONDS: Final = 5.0
"""Seconds from the take-over to the first check (`scheduleAutoLeaderRebalanceTask`)."""


@dataclass(slots=True)
class AutoLeaderRebalance:
    """When leadership is balanced, and from which imbalance on."""

    interval_seconds: float
    """Seconds between two checks; infinite if leadership is not balanced."""
    threshold: float
    """The share of a broker's preferred partitions that other brokers may lead."""
    _next_check: float = field(default_factory=lambda: time.monotonic() + FIRST_CHECK_SECONDS)

    @classmethod
    def of(cls, broker_configs: Iterable[BrokerConfig]) -> Self:
        """Make it from the brokers' settings; a setting without a value has Kafka's default."""
        values: dict[str, set[str]] = {_ENABLED: set(), _INTERVAL: set(), _PERCENTAGE: set()}
        for row in broker_configs:
            if row.name in values and row.value is not None:
                values[row.name].add(row.value)
        enabled = all(boolean(value) for value in values[_ENABLED])
        interval_seconds, percentage = (
            max((number for value in values[name] if (number := whole_number(value)) is not None), default=default)
            for name, default in ((_INTERVAL, 300), (_PERCENTAGE, 10))
        )
        return cls(float(interval_seconds) if enabled else float("inf"), percentage / 100)

    def with_configs(self, broker_configs: Iterable[BrokerConfig]) -> "AutoLeaderRebalance":
        """Return it with other broker settings; the time of the next check changes only if the interval does."""
        changed = AutoLeaderRebalance.of(broker_configs)
        return (
            replace(changed, _next_check=self._next_check)
            if changed.interval_seconds == self.interval_seconds
            else changed
        )

    def due(self, context: ControllerContext) -> set[Key]:
        """Return the partitions to be elected now; none between two checks."""
        if self.interval_seconds == float("inf") or time.monotonic() < self._next_check:
            return set()
        self._next_check = time.monotonic() + self.interval_seconds
        return {
            key
            for broker, (preferred_count, led_by_others) in context.imbalance().items()
            if broker in context.live and len(led_by_others) > self.threshold * preferred_count
            for key in led_by_others
            if key not in context.moving and broker in (context.partitions[key].isr or ())
        }
