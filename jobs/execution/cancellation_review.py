"""The review of a cancellation, before anything is written: its dry run, its warnings and its question."""

from collections.abc import Iterable, Sequence

from deltalake.exceptions import DeltaError

from jobs.adapters.clusters.interface import Cluster
from jobs.console_output.plan_text import warnings
from jobs.core.errors import SurveyorError
from jobs.preconditions.cancellation_plan import PartitionStatus
from jobs.preconditions.min_isr import cancelled_below_min_isr
from jobs.repositories.snapshots import last_snapshot
from jobs.repositories.warehouse_status import default_min_isr_of
from jobs.runtime.approval import Approve, Review, warning_lines
from jobs.runtime.console import CommandResult, Result, keep_warnings, log, warn
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion
from planner.rules.effective_min_isr import min_isr_of
from schemas.topic_configs import DEFAULT_MIN_ISR, MIN_ISR


def dry_run(
    result: Result, title: str, lines: Iterable[str], steps: Sequence[Suggestion], warned: Sequence[str]
) -> CommandResult:
    """Return what shows a cancellation that is not carried out."""
    note = "dry run: nothing was written; --apply writes"
    shown = [*lines, *warning_lines(warned), note]
    return CommandResult(result | {"dry_run": True}, title, *shown, steps=steps, warnings=warned)


def refuse_unapproved(question: str, lines: Iterable[str], warned: Sequence[str], approve: Approve | None) -> None:
    """Show the warnings, with the question if one is asked; raise SurveyorError unless the answer is yes."""
    keep_warnings(warned)
    if approve is None:
        for line in warning_lines(warned):
            log(line)
    elif not approve(Review(question, [*lines, *warning_lines(warned)], warnings=warned)):
        raise SurveyorError("not cancelled: the question was not answered with yes")


def below_min_isr_warnings(settings: Settings, cluster: Cluster, partitions: Iterable[PartitionStatus]) -> list[str]:
    """Warn of partitions that a cancellation leaves below min.insync.replicas, by the configs of their topics now.

    A warehouse that cannot be read does not prevent a cancellation: Kafka's default then counts for other topics.
    """
    isr_after = {partition.key: partition.isr_after for partition in partitions}
    if not isr_after:
        return []
    default = DEFAULT_MIN_ISR
    try:
        if settings.warehouse.exists():
            default = default_min_isr_of(settings.warehouse, last_snapshot(settings.warehouse))
    except (SurveyorError, OSError, DeltaError):
        warn(f"the brokers' {MIN_ISR} is unknown: Kafka's default, {DEFAULT_MIN_ISR}, is assumed")
    topics = cluster.read_topics(sorted({topic for topic, _ in isr_after})).topics
    minimum = {row.topic: min_isr_of(row.config, default) for row in topics}
    return [*warnings((), (), (), cancelled_below_min_isr(minimum, isr_after))]
