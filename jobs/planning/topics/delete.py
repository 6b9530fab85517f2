"""`plan delete`: topics that can be deleted with all their data; a commit requests it in /admin/delete_topics."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from jobs.core.errors import RefusedError
from jobs.planning.internal_topic_permission import NOT_ALLOWED, InternalTopics
from jobs.planning.placement.partition_arrays import matching
from jobs.planning.plan_draft import PlanDraft
from jobs.planning.topics.existing_topic import is_assignment_understood, name_fault, unknown_topics
from jobs.preconditions.unread_metadata import QUARANTINE_COMMAND
from jobs.repositories.snapshot_tables import SnapshotTables
from jobs.repositories.snapshots import rows_as_of
from schemas import reasons
from schemas.enums import WHOLE_TOPIC, OperationKind, PlanKind, RejectionCode
from schemas.operation_data import DeletedTopic
from schemas.rows import BrokerConfig, RejectionRecord, Topic
from schemas.topic_configs import DELETION_ENABLED, boolean


@dataclass(frozen=True, slots=True)
class DeleteRequest:
    """The request of `plan delete`."""

    topics: list[str]
    """Names, and regexes that match whole names: what cannot be a name is one."""
    internal: InternalTopics = NOT_ALLOWED

    def check(self) -> None:
        """Refuse internal topics, which are rarely deleted on purpose, before anything is read."""
        self._refuse_internal([topic for topic in self.topics if name_fault(topic) is None])

    def _refuse_internal(self, names: Sequence[str]) -> None:
        self.internal.refuse(names, "its owner loses the state that it keeps there")

    def plan(self, tables: SnapshotTables) -> PlanDraft:
        """Plan the deletion of topics that can be deleted; the others are rejections."""
        warehouse = tables.warehouse
        _refuse_disabled(rows_as_of(warehouse, tables.snapshot, BrokerConfig, ("name", "=", DELETION_ENABLED)))
        existing = {row.topic: row for row in rows_as_of(warehouse, tables.snapshot, Topic)}
        topics, unknown = _named(self.topics, existing)
        why_unknown = unknown_topics(unknown, tables)
        if topics == unknown:
            raise why_unknown
        self._refuse_internal(topics)
        verdicts = [(topic, _rejection(topic, existing.get(topic), str(why_unknown))) for topic in topics]
        rejections = [rejection for _, rejection in verdicts if rejection is not None]
        deletable = [existing[topic] for topic, rejection in verdicts if rejection is None]
        operations = [
            DeletedTopic(topic_id=row.topic_id).operation(row.topic, number) for number, row in enumerate(deletable)
        ]
        return PlanDraft(
            PlanKind.DELETE,
            {"topics": self.topics} | self.internal.parameters,
            changes=None,
            operations=operations,
            rejected_operations=rejections,
        )


def _named(parts: Sequence[str], existing: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the topics that the parts name or match, and the parts among them that no topic has.

    >>> _named(["a.b", "t[0-9]"], ["axb", "t1", "t2"])
    (['a.b', 't1', 't2'], ['a.b'])
    """
    found = {part: {part} if name_fault(part) is None else matching(re.compile(part), existing) for part in parts}
    topics = {topic for part, names in found.items() for topic in names or {part}}
    return sorted(topics), sorted(topics.difference(existing))


def _rejection(topic: str, row: Topic | None, why_unknown: str) -> RejectionRecord | None:
    if row is None:
        code, reason = RejectionCode.UNKNOWN_TOPIC, why_unknown
    elif row.deletion_requested:
        code, reason = RejectionCode.DELETION_REQUESTED, "queued for deletion already"
    elif not is_assignment_understood(row):
        code, reason = RejectionCode.NOT_UNDERSTOOD, reasons.TOPIC_NOT_UNDERSTOOD.render(command=QUARANTINE_COMMAND)
    else:
        return None
    action = OperationKind.DELETE_TOPIC.value
    return RejectionRecord(topic=topic, partition=WHOLE_TOPIC, action=action, code=code.value, reason=reason)


def _refuse_disabled(settings: list[BrokerConfig]) -> None:
    """Refuse if any broker forbids deletion.

    Any broker may become the controller, and a controller that forbids deletion drops the request.
    """
    forbidding = [row.broker_id for row in settings if boolean(row.value) is False and not row.assumed]
    if forbidding:
        raise RefusedError(
            f"{DELETION_ENABLED} is false on brokers {', '.join(map(str, sorted(forbidding)))}: Kafka would drop "
            "the request and delete nothing; set it to true, then run `surveyor snapshot` again",
        )
