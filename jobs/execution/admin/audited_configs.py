"""Config overrides of brokers and topics, set over the Admin API and audited in `commits`: each intent and its
outcome.

Once a throttle is removed, nothing of it is left in the cluster or in table `throttles`; the rows in `commits` stay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from jobs.adapters.brokers.admin_client import UNKNOWN_OUTCOME
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import SurveyorError
from jobs.execution.admin.throttle_configs import Resource
from jobs.repositories.plans.commit_rows import AuditEntry, CommitRows
from schemas.enums import Outcome, Step

Overrides = Mapping[Resource, Mapping[str, str | None]]

_NOT_REQUESTED: Final = Outcome.SKIPPED, "not requested"


class ConfigAdmin(Protocol):
    """The part of the Admin API that throttles need."""

    def alter_override(self, kind: str, resource: str, overrides: Mapping[str, str | None]) -> int | str:
        """Set overrides of a broker or topic, and delete those whose value is None; return 0, or why it was refused.

        Raise one of UNKNOWN_OUTCOME if the outcome is unknown.
        """


@dataclass(slots=True)
class AuditedConfigs:
    """Alters overrides for a plan, as part of one commit of it."""

    warehouse: Warehouse
    plan_id: str
    attempt: int | None = None
    """The attempt number of the commit; None starts a new attempt."""
    _rows: CommitRows | None = None

    def alter(
        self, step: Step, admin: ConfigAdmin, overrides: Overrides, *, continue_after_refusal: bool
    ) -> dict[Resource, str]:
        """Alter one resource after another; return the reasons of those that were refused.

        `continue_after_refusal`: continue with the other resources after a refusal.
        """
        if not overrides:
            return {}
        self._record(step, [(Outcome.PENDING, override_text(*override)) for override in overrides.items()])
        outcomes = dict.fromkeys(overrides, _NOT_REQUESTED)
        refusals: dict[Resource, str] = {}
        try:
            for resource, values in overrides.items():
                outcomes[resource] = Outcome.UNKNOWN, "the command ended before the answer"
                try:
                    outcomes[resource] = _outcome_of(admin.alter_override(resource[0].value, resource[1], values))
                except SurveyorError:  # raised before the request was sent
                    outcomes[resource] = _NOT_REQUESTED
                    raise
                except UNKNOWN_OUTCOME as error:
                    outcomes[resource] = Outcome.UNKNOWN, f"no answer ({error})"
                outcome, message = outcomes[resource]
                if outcome is not Outcome.APPLIED:
                    refusals[resource] = message
                    if not continue_after_refusal:
                        break
        finally:
            results = (
                (
                    outcome,
                    f"{override_text(resource, overrides[resource])}: {message}",
                )
                for resource, (outcome, message) in outcomes.items()
            )
            self._record(step, [*results])
        return refusals

    def _record(self, step: Step, outcomes: Sequence[tuple[Outcome, str]]) -> None:
        if self._rows is None:
            self._rows = CommitRows.begin(self.warehouse, self.plan_id, self.attempt)
        self._rows.append(AuditEntry(step, message, outcome=outcome) for outcome, message in outcomes)


def _outcome_of(error: int | str) -> tuple[Outcome, str]:
    """Outcome and message of a request, by its answer.

    >>> [_outcome_of(answer)[0].value for answer in (0, "InvalidConfig: no")]
    ['applied', 'failed']
    """
    return (Outcome.FAILED, str(error)) if error else (Outcome.APPLIED, "accepted")


def override_text(resource: Resource, values: Mapping[str, str | None]) -> str:
    """Name all overrides of one resource, because no other record of them exists after their removal.

    >>> from jobs.execution.admin.throttle_configs import ResourceKind
    >>> override_text((ResourceKind.BROKER, "1"), {"leader.replication.throttled.rate": "5", "x": None})
    'broker 1: leader.replication.throttled.rate=5, x not set'
    """
    words = (f"{name} not set" if value is None else f"{name}={value}" for name, value in values.items())
    return f"{resource[0]} {resource[1]}: {', '.join(words)}"
