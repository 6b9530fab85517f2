"""`surveyor plan config`: a topic's config overrides set or deleted (seed 001: /config/topics/T).

Names are checked for their shape only: which exist, and what they take, is for the cluster's Kafka to say.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from jobs.errors import ExitCode, UsageError
from jobs.options import DetailedExitcode, command
from jobs.plan_names import Alias, Name, ReplaceName
from jobs.plan_topics import Topic, find_topic, operation, topic_name
from jobs.planning import Planned, SnapshotId, report_plan
from jobs.settings import Settings
from jobs.snapshots import SnapshotTables
from schemas.names import OperationKind, PlanKind

_NAME: Final = re.compile(r"[A-Za-z0-9]+([._-][A-Za-z0-9]+)*")

Wanted = dict[str, str | None]
"""Values by name; None deletes the override, so that the broker's default holds again."""


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """What was asked for on the command line."""

    topic: str
    wanted: Wanted

    def plan(self, at: SnapshotTables) -> Planned:
        """Plan what differs; nothing does: a plan without operations."""
        found = find_topic(at, self.topic).row
        before = {name: found["config"].get(name) for name in sorted(self.wanted)}
        changed = [name for name in before if before[name] != self.wanted[name]]
        operations = []
        if changed:
            data = {
                "topic_id": found["topic_id"],
                "before": {name: before[name] for name in changed},
                "after": {name: self.wanted[name] for name in changed},
            }
            text = json.dumps(data, sort_keys=True)
            operations.append(operation(0, OperationKind.ALTER_CONFIG, self.topic, text))
        parameters = {"topic": self.topic, "config": self.wanted}
        return Planned(PlanKind.CONFIG, parameters, at.tables.frame("changes", []), operations=operations)


@command
def config(
    settings: Settings,
    *,
    topic: Topic,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, may be repeated")] = None,
    delete: Annotated[list[str] | None, typer.Option(help="A key to delete, may be repeated.")] = None,
    snapshot: SnapshotId = None,
    name: Name = None,
    replace_name: ReplaceName = False,
    detailed_exitcode: DetailedExitcode = False,
) -> ExitCode:
    """Plan changes of a topic's configuration."""
    asked = ConfigRequest(topic_name(topic), parse_wanted(set_ or [], delete or []))
    return report_plan(settings, snapshot, Alias(name, replace_name), asked.plan, detailed=detailed_exitcode)


def parse_wanted(pairs: Sequence[str], deleted: Sequence[str]) -> Wanted:
    """Read what is to be set and deleted, nothing twice.

    >>> parse_wanted(["retention.ms=60000"], ["min.insync.replicas"])
    {'retention.ms': '60000', 'min.insync.replicas': None}
    """
    asked = [*map(_pair, pairs), *((name, None) for name in deleted)]
    if not asked:
        raise UsageError("say what to change: --set key=value, --delete key")
    wanted: Wanted = {}
    for name, value in asked:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name of a configuration: expected one as in min.insync.replicas")
        if name in wanted:
            raise UsageError(f"{name} is named twice; say once what it should be")
        wanted[name] = value
    return wanted


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {text!r}: expected key=value")
    return name, value
