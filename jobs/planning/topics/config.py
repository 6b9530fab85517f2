"""Config overrides of a topic, set or deleted in /config/topics/T.

New values are checked against what Kafka accepts (`schemas.topic_configs`). Any override can be deleted.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from jobs.core.errors import RefusedError, UsageError
from jobs.planning.broker_features import config_notes
from jobs.planning.internal_topic_permission import NOT_ALLOWED, InternalTopics
from jobs.planning.plan_draft import PlanDraft
from jobs.planning.topics.existing_topic import ExistingTopic, find_topic
from jobs.preconditions.config_validation import config_risks
from jobs.repositories.snapshot_tables import SnapshotTables
from schemas.enums import WHOLE_TOPIC, OperationKind, PlanKind, RejectionCode
from schemas.internal_topics import unmet_configs
from schemas.metadata_names import MetadataNames
from schemas.operation_data import AlteredConfig
from schemas.rows import RejectionRecord
from schemas.topic_configs import MIN_ISR, conflicts, losses

_NAME: Final = re.compile(r"[A-Za-z0-9]+([._-][A-Za-z0-9]+)*")

Overrides = dict[str, str | None]
"""Values by name; None deletes the override, so that the broker's default applies."""


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """The request of `plan config`."""

    topic: str
    overrides: Overrides
    unknown_config_allowed: bool = False
    internal: InternalTopics = NOT_ALLOWED

    def plan(self, tables: SnapshotTables) -> PlanDraft:
        """Plan the differences; without any the plan has no operations."""
        topic = find_topic(tables, self.topic)
        config = _config_of(topic, tables.snapshot.names)
        before = {name: config.get(name) for name in sorted(self.overrides)}
        after = {name: self.overrides[name] for name in before if before[name] != self.overrides[name]}
        self._refuse_conflicts(config)
        operations = []
        if after:
            alteration = self._alteration(tables, topic, config, after)
            operations.append(alteration.operation(self.topic))
            self._refuse_internal(alteration, config | after)
        missing = [self._not_set(name) for name in before if before[name] is None and self.overrides[name] is None]
        return PlanDraft(
            PlanKind.CONFIG,
            {"topic": self.topic, "config": self.overrides}
            | ({"allow_unknown_config": True} if self.unknown_config_allowed else {})
            | self.internal.parameters,
            changes=None,
            operations=operations,
            rejected_operations=missing,
        )

    def _alteration(
        self, tables: SnapshotTables, topic: ExistingTopic, config: Overrides, after: Overrides
    ) -> AlteredConfig:
        values = {name: value for name, value in after.items() if value is not None}
        replicas = [len(row.replicas) for row in topic.partitions] if MIN_ISR in values else []
        return AlteredConfig(
            topic_id=topic.row.topic_id,
            before={name: config.get(name) for name in after},
            after=after,
            replication_factor=min(replicas, default=None),
            losses=list(losses(config, config | after)),
            **config_notes(tables, values),
        )

    def _refuse_internal(self, alteration: AlteredConfig, config: Overrides) -> None:
        """Refuse, without permission, what may lose records of an internal topic or what its owner cannot work with."""
        unmet = unmet_configs(self.topic, config, alteration.replication_factor)
        needed = [f"its owner needs {name}={value}" for name, value in unmet.items() if name in alteration.after]
        unsafe = config_risks(self.topic, alteration, alteration.replication_factor)
        for risk in (*alteration.losses, *needed, *unsafe):
            self.internal.refuse([self.topic], risk)

    def _refuse_conflicts(self, config: Overrides) -> None:
        fault = next(conflicts(config | self.overrides), None)
        if fault is not None:
            raise RefusedError(f"topic {self.topic}: {fault}; Kafka refuses such a pair; set or delete one of them")

    def _not_set(self, name: str) -> RejectionRecord:
        return RejectionRecord(
            topic=self.topic,
            partition=WHOLE_TOPIC,
            action=OperationKind.ALTER_CONFIG.value,
            code=RejectionCode.NOT_SET.value,
            reason=f"{name} is not set on this topic, so there is nothing to delete",
        )


def _config_of(topic: ExistingTopic, names: MetadataNames) -> Overrides:
    """Return the config; refuse an unreadable value, as Kafka, too, writes a config as a whole or not at all."""
    config = topic.row.config
    if config is not None and None not in config.values():
        return config
    unread = "" if config is None else f" ({', '.join(sorted(name for name in config if config[name] is None))})"
    if not names.has_znodes:
        raise RefusedError(
            f"config of topic {topic.name} is not known: {names.unread_config}; then run `surveyor snapshot` again"
        )
    raise RefusedError(
        f"config of topic {topic.name} is not understood{unread}: {names.topic_config(topic.name)} must hold an object "
        "of strings under config; `surveyor show quarantine` shows it; repair it, then run `surveyor snapshot` again",
    )


def parse_overrides(pairs: Sequence[str], deleted: Sequence[str]) -> Overrides:
    """Parse the overrides to set and to delete; no name may occur twice.

    >>> parse_overrides(["retention.ms=60000"], ["min.insync.replicas"])
    {'retention.ms': '60000', 'min.insync.replicas': None}
    """
    pairs_given = [*map(_pair, pairs), *((name, None) for name in deleted)]
    if not pairs_given:
        raise UsageError("no change is given: expected --set key=value or --delete key")
    overrides: Overrides = {}
    for name, value in pairs_given:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not a config name: expected one like min.insync.replicas")
        if name in overrides:
            raise UsageError(f"{name} is given twice; give it once")
        overrides[name] = value
    return overrides


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {text!r}: expected key=value")
    return name, value
