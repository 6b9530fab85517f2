"""Raises the controller epoch of the resident controller above each one that partition states or brokers know.

Corresponds to `KafkaZkClient.registerControllerAndIncrementControllerEpoch`, which Kafka calls at a take-over only.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.controller.context import ControllerContext
from jobs.execution.batch.notification import EPOCH_STEPS, raised_line
from jobs.repositories.drained_brokers import carry_over
from jobs.runtime.console import LogLine


@dataclass(frozen=True, slots=True)
class ControllerEpoch:
    """The epoch of one controllership, which may rise while it lasts."""

    control: Controllership
    context: ControllerContext
    warehouse: Warehouse | None
    """The warehouse in which drains are marked with the epoch; None without settings."""
    log_line: LogLine
    _steps: Iterator[int] = field(default_factory=lambda: iter(EPOCH_STEPS))
    """By how much our epoch is raised each time that a broker refuses it."""

    def raise_if_refused(self, refused_epochs: Mapping[int, int]) -> None:
        """Raise our epoch above those in partition states and those that brokers know.

        Kafka never overwrites a state of a later controller epoch, and brokers refuse a controller with an earlier
        epoch. /controller_epoch may have been deleted or set back before we took over. While a plan is being written,
        it uses the present epoch, and this must not be called. `refused_epochs`: our epoch by broker that refused it.
        """
        epoch = self.control.epoch
        brokers = sorted(broker for broker, refused in refused_epochs.items() if refused == epoch)
        if not (brokers or self.context.latest_epoch > epoch):
            return
        latest = self.context.latest_epoch
        if brokers:
            latest = max(latest, epoch + next(self._steps, 0) - 1)
            self.log_line(f"surveyor: {raised_line(brokers, epoch)}", logging.WARNING)
        self.control.raise_above(latest)
        self.log_line(f"surveyor: controller epoch {self.control.epoch}, after {epoch}")
        if self.warehouse is not None:
            carry_over(self.warehouse, epoch, self.control.epoch)
