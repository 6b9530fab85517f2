"""Brokers that failed and registered again before their failure was written.

Corresponds to the bounced brokers of `KafkaController.processBrokerChange`, for which `onBrokerFailure` comes before
`onBrokerStartup`. Such a broker has lost its state and perhaps unflushed records. Its partitions are therefore written
as after a failure, and only then it is sent the full state.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from jobs.controller.broker_requests.batch import BrokerRequestBatch
from jobs.controller.controller_context import ControllerContext
from jobs.controller.metadata_reader import MetadataReader
from jobs.controller.pending_work import PendingWork
from schemas.enums import Outcome
from schemas.stored_plan import RowOutcome

MAX_FAILURE_CYCLES: Final = 3
"""Cycles in which a broker's failure is written.

After the last one, the broker is sent the full state if it is back.
"""


@dataclass(slots=True)
class BouncedBrokers:
    """The failures that are not written completely, and which of these brokers are back."""

    context: ControllerContext
    reader: MetadataReader
    broker_requests: BrokerRequestBatch
    pending: PendingWork
    _unhandled_failures: dict[int, int] = field(default_factory=dict)
    """Failed brokers whose partitions have not all been updated yet, with the number of cycles to keep retrying.

    A broker may have re-registered in the meantime. After the last retry it is sent the full state anyway, so that a
    partition that cannot be written does not keep the broker from starting.
    """

    @property
    def ids(self) -> set[int]:
        """Brokers that registered again before their failure was written."""
        return self._unhandled_failures.keys() & {*self.context.live}

    @property
    def serving(self) -> set[int]:
        """The live brokers that have not bounced."""
        return {*self.context.live} - self.ids

    def is_failing(self, broker: int) -> bool:
        """Return whether the failure of a broker is not written completely; may be called from any thread."""
        return broker in self._unhandled_failures or broker in self.reader.observed.failed_brokers

    def add_failures(self, failed: Iterable[int]) -> None:
        """Add brokers whose registration no longer exists."""
        self._unhandled_failures |= dict.fromkeys(failed, MAX_FAILURE_CYCLES)

    def finish_cycle(self, outcomes: Sequence[RowOutcome]) -> None:
        """Send bounced brokers the full state, once their partitions are written as after a failure."""
        if any(outcome.outcome is Outcome.SKIPPED for outcome in outcomes):
            return  # the next cycle continues
        bounced, all_written = self.ids, all(outcome.outcome is Outcome.APPLIED for outcome in outcomes)
        self._unhandled_failures = (
            {}
            if all_written
            else {broker: cycles - 1 for broker, cycles in self._unhandled_failures.items() if cycles > 1}
        )
        back = sorted(bounced - self._unhandled_failures.keys())
        if back:
            self.broker_requests.send_full_state(back)
            partitions = {key for broker in back for key in self.context.of_broker(broker)}
            self.pending.add(partitions, requests_due=True)  # a deletion may have waited for them
