"""Confirmation of a commit that deletes topics: show what is deleted with them, and require more than a yes.

On a terminal the user types the topic's name, or the number of topics. Without a terminal nothing is deleted unless
--yes is given.
"""

from collections.abc import Mapping, Sequence

from jobs.adapters.brokers.admin import UNKNOWN_OUTCOME, AdminUnavailableError
from jobs.execution.admin.connections import admin_of
from jobs.execution.preflight import Preflight
from jobs.preconditions.deletion_impact import DeletionImpact, deletion_impact
from jobs.repositories.plans.repository import Plan
from jobs.runtime.cli_enums import Mode
from jobs.runtime.console import typed_answer
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from schemas.enums import OperationKind
from schemas.rows import operations_among


def deletions_due(settings: Settings, plan: Plan, preflight: Preflight) -> list[DeletionImpact]:
    """Return what is deleted with the topics of a commit; in admin mode the brokers are asked for their offsets."""
    topics = [row.topic for row in operations_among(preflight.pending) if row.kind == OperationKind.DELETE_TOPIC]
    if not topics:
        return []
    records = _records(settings, preflight, topics) if preflight.mode is Mode.ADMIN else {}
    return deletion_impact(settings.lake, plan.row, topics, records)


def _records(settings: Settings, preflight: Preflight, topics: Sequence[str]) -> Mapping[str, int]:
    """Ask the leaders for the number of records by topic; topics are missing whose leaders do not answer.

    A missing number does not prevent the deletion.
    """
    try:
        with progress("asking brokers for their offsets"), admin_of(settings, preflight.state) as admin:
            return {topic: records for topic in topics if (records := admin.record_count(topic)) is not None}
    except (AdminUnavailableError, *UNKNOWN_OUTCOME):
        return {}


def agrees_to_delete(deleted: Sequence[DeletionImpact]) -> bool:
    """Ask for the topic's name, or for the number of topics: a plain yes is given too quickly for a deletion."""
    if len(deleted) == 1:
        expected, prompt = deleted[0].topic, "the topic's name"
    else:
        expected, prompt = str(len(deleted)), "the number of topics to be deleted"
    return typed_answer(f"this cannot be undone; type {prompt} to delete") == expected
