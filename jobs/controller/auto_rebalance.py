"""Leadership led back to the preferred replicas, every few minutes, where a broker leads too few of those it should.

Corresponds to `KafkaController.checkAndTriggerAutoLeaderRebalance`, seed 000 "Partition Rebalance", with the brokers'
own settings: `auto.leader.rebalance.enable`, off where any broker says so, `leader.imbalance.check.interval.seconds`
and `leader.imbalance.per.broker.percentage`, the most patient of what they say. The ratio is that of
`planner.leadership.imbalance`; the memory counts it as it learns, so that a check costs what there is of brokers. In:
the memory. Out: partitions to be led by their preferred replica, if it is alive and in sync.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Self

from jobs.adapters.delta.warehouse import Row
from jobs.controller.context import ControllerContext
from schemas.rows import Key
from schemas.topic_configs import boolean, whole_number

_ENABLED: Final = "auto.leader.rebalance.enable"
_INTERVAL: Final = "leader.imbalance.check.interval.seconds"
_PERCENTAGE: Final = "leader.imbalance.per.broker.percentage"

FIRST_CHECK_SECONDS: Final = 5.0
"""Seconds after the take-over to the first check (`scheduleAutoLeaderRebalanceTask`)."""


@dataclass(slots=True)
class AutoLeaderRebalance:
    """When leadership is to be balanced, and from which imbalance on."""

    every: float
    """Seconds between two checks; infinite where leadership is left alone."""
    threshold: float
    """Of a broker's preferred partitions, the share led by others that is borne."""
    _next: float = field(default_factory=lambda: time.monotonic() + FIRST_CHECK_SECONDS)

    @classmethod
    def of(cls, broker_configs: Iterable[Row]) -> Self:
        """By what brokers said of themselves; what they did not say is Kafka's default."""
        values: dict[str, set[str]] = {_ENABLED: set(), _INTERVAL: set(), _PERCENTAGE: set()}
        for row in broker_configs:
            if row["name"] in values and row["value"] is not None:
                values[row["name"]].add(row["value"])
        enabled = all(boolean(value) for value in values[_ENABLED])
        every, percentage = (
            max((number for value in values[name] if (number := whole_number(value)) is not None), default=default)
            for name, default in ((_INTERVAL, 300), (_PERCENTAGE, 10))
        )
        return cls(float(every) if enabled else float("inf"), percentage / 100)

    def by(self, broker_configs: Iterable[Row]) -> "AutoLeaderRebalance":
        """The same with other settings of brokers: the next check is not put off, but by a longer interval."""
        changed = AutoLeaderRebalance.of(broker_configs)
        return replace(changed, _next=self._next) if changed.every == self.every else changed

    def due(self, memory: ControllerContext) -> set[Key]:
        """The partitions to be elected now: none between two checks."""
        if self.every == float("inf") or time.monotonic() < self._next:
            return set()
        self._next = time.monotonic() + self.every
        return {
            key
            for broker, (preferring, astray) in memory.imbalance().items()
            if broker in memory.live and len(astray) > self.threshold * preferring
            for key in astray
            if key not in memory.moving and broker in (memory.partitions[key].isr or ())
        }
