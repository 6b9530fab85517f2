"""Output of `surveyor show replicas`: the state of each replica in Kafka's replica state machine.

It is a separate module because it uses DuckDB views, and importing DuckDB takes longer than most of `surveyor show`.
"""

from dataclasses import dataclass, replace
from typing import Final

from jobs.console_output.stored_tables import (
    ROWS_SHOWN,
    age_line,
    of_snapshot,
    refuse_unknown_topic,
    snapshot_shown,
    table_parts,
    warn_of_unread_topics,
)
from jobs.core.arrow_rows import StoredRows
from jobs.runtime.console import warnings_in_json
from jobs.runtime.output import show, stream
from jobs.runtime.settings import Settings
from jobs.sql_views.database import Summaries
from schemas.text import pluralise

REPLICA_STATE_COLUMNS: Final = ("topic", "partition", "broker_id", "state", "preferred", "leads", "in_sync")

NOT_UNDERSTOOD: Final = "not understood"
"""The state in the view of a replica whose partition or broker is not understood."""


@dataclass(frozen=True, slots=True)
class ReplicaFilter:
    """Filter of replicas; all given conditions must hold."""

    topic: str | None = None
    broker: int | None = None
    state: str | None = None

    @property
    def sql(self) -> str:
        """The query over the view; the topic is filtered where the table is read."""
        conditions = [] if self.broker is None else [f"broker_id = {self.broker:d}"]
        conditions += [] if self.state is None else [f"state = '{self.state}'"]
        return f"SELECT * FROM replicas{' WHERE ' * bool(conditions)}{' AND '.join(conditions)}"  # noqa: S608 - a number and a choice


def show_replicas(settings: Settings, selection: ReplicaFilter, snapshot_id: int | None) -> None:
    """Show the selected replicas of a snapshot, with what brokers have answered since."""
    snapshot = snapshot_shown(settings, snapshot_id)
    refuse_unknown_topic(settings, selection.topic, snapshot)
    only = {} if selection.topic is None else {"partitions": ("topic", "=", selection.topic)}
    views = Summaries(settings.warehouse, snapshot, only)
    rows = StoredRows(views.query(selection.sql, "replicas"))
    warn_of_unread_topics(settings, selection.topic, snapshot, "replicas")
    stream(settings, of_snapshot(snapshot) | warnings_in_json(), {"rows": rows})
    if settings.for_people:
        title = f"replicas of {settings.cluster}, snapshot {snapshot.snapshot_id}"
        for part in table_parts(settings, title, REPLICA_STATE_COLUMNS, rows.first(ROWS_SHOWN), of=len(rows)):
            show(part)
        if selection.state is not None:
            unknown = views.query(replace(selection, state=NOT_UNDERSTOOD).sql, "replicas").num_rows
            if unknown:
                show(f"not understood, so of unknown state: {pluralise(unknown, 'replica')}")
        show(age_line(snapshot.taken_at, len(rows)))
