"""Overrides of brokers and topics, set by the Admin API and owned up to in `commits`: what is meant, what came of it.

Throttles come and go, and nothing of them is left in the cluster or in `throttles` once they are gone; these rows stay.
In: overrides by resource, None where one is deleted. Out: what was refused, by resource.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from jobs.adapters.brokers.admin import UNKNOWN_OUTCOME
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import SurveyorError
from jobs.execution.admin.reassignment_options import Resource
from jobs.repositories.actor import this_actor
from jobs.repositories.plans.commit_log import next_attempt
from schemas.enums import Outcome, Step

Overrides = Mapping[Resource, Mapping[str, str | None]]


class ConfigAdmin(Protocol):
    """What of the Admin API throttles need."""

    def alter_override(self, kind: str, resource: str, overrides: Mapping[str, str | None]) -> int | str:
        """Set overrides of a broker or topic, or delete those that are None; 0, or why it was refused.

        Raise one of UNANSWERED where nobody knows.
        """


@dataclass(slots=True)
class AuditedConfigs:
    """Alters overrides for a plan, as part of one commit of it."""

    lake: Warehouse
    plan_id: str
    attempt: int | None = None
    """Which commit of the plan; None: one of its own."""

    def alter(
        self, step: Step, admin: ConfigAdmin, overrides: Overrides, *, continue_after_refusal: bool
    ) -> dict[Resource, str]:
        """Alter one resource after another; return what was refused. `to_the_end`: after that the others, too."""
        if not overrides:
            return {}
        self.lake.ensure_columns("commits")
        if self.attempt is None:
            self.attempt = next_attempt(self.lake, self.plan_id)
        self._record(step, [(Outcome.PENDING, override_text(*each)) for each in overrides.items()])
        became = dict.fromkeys(overrides, (Outcome.SKIPPED, "not asked for"))
        refused: dict[Resource, str] = {}
        try:
            for resource, values in overrides.items():
                became[resource] = Outcome.UNKNOWN, "ended before it was answered"
                try:
                    became[resource] = _outcome_of(admin.alter_override(resource[0].value, resource[1], values))
                except SurveyorError:  # instead of asking
                    became[resource] = Outcome.SKIPPED, "not asked for"
                    raise
                except UNKNOWN_OUTCOME as error:
                    became[resource] = Outcome.UNKNOWN, f"no answer ({error})"
                outcome, why = became[resource]
                if outcome is not Outcome.APPLIED:
                    refused[resource] = why
                    if not continue_after_refusal:
                        break
        finally:
            ends = ((outcome, f"{override_text(of, overrides[of])}: {why}") for of, (outcome, why) in became.items())
            self._record(step, [*ends])
        return refused

    def _record(self, step: Step, outcomes: Sequence[tuple[Outcome, str]]) -> None:
        common = {"plan_id": self.plan_id, "attempt": self.attempt, "action": step.value, **this_actor().columns}
        now = datetime.now(UTC)
        rows = (
            {**common, "outcome": each.value, "message": message, "committed_at": now} for each, message in outcomes
        )
        self.lake.append("commits", rows)


def _outcome_of(answer: int | str) -> tuple[Outcome, str]:
    """What came of a request, by its answer.

    >>> [_outcome_of(answer)[0].value for answer in (0, "InvalidConfig: no")]
    ['applied', 'failed']
    """
    return (Outcome.FAILED, str(answer)) if answer else (Outcome.APPLIED, "accepted")


def override_text(resource: Resource, values: Mapping[str, str | None]) -> str:
    """Say what is set, all of it: nothing else tells it once it is gone.

    >>> from jobs.execution.admin.reassignment_options import ResourceKind
    >>> override_text((ResourceKind.BROKER, "1"), {"leader.replication.throttled.rate": "5", "x": None})
    'broker 1: leader.replication.throttled.rate=5, x not set'
    """
    words = (f"{name} not set" if value is None else f"{name}={value}" for name, value in values.items())
    return f"{resource[0]} {resource[1]}: {', '.join(words)}"
