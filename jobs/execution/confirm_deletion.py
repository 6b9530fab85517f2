"""A commit that deletes topics: what goes with them, asked of the brokers, and a question that is not answered by yes.

On a terminal the topic's name is to be typed, or how many topics there are. Without one nothing is deleted unless the
command says --yes.
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
    """Return what goes with the topics that a commit would delete; asked of brokers where the controller is asked."""
    topics = [row.topic for row in operations_among(preflight.pending) if row.kind == OperationKind.DELETE_TOPIC]
    if not topics:
        return []
    records = _records(settings, preflight, topics) if preflight.mode is Mode.ADMIN else {}
    return deletion_impact(settings.lake, plan.row, topics, records)


def _records(settings: Settings, preflight: Preflight, topics: Sequence[str]) -> Mapping[str, int]:
    """Ask the leaders; where some do not answer, nobody knows, and the topics are deleted all the same."""
    try:
        with progress("asking brokers for their offsets"), admin_of(settings, preflight.state) as admin:
            return {topic: records for topic in topics if (records := admin.record_count(topic)) is not None}
    except (AdminUnavailableError, *UNKNOWN_OUTCOME):
        return {}


def agrees_to_delete(deleted: Sequence[DeletionImpact]) -> bool:
    """Ask for the topic's name, or for the number of topics: yes is said too quickly to what cannot be undone."""
    if len(deleted) == 1:
        expected, what = deleted[0].topic, "the topic's name"
    else:
        expected, what = str(len(deleted)), "how many topics are to be deleted"
    return typed_answer(f"this cannot be undone; type {what} to delete") == expected
