"""Plans as text: their size, changes line by line, deletions and warnings."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime  # noqa: F401 - for the doctests
from enum import StrEnum
from typing import Any, Final

from jobs.core.units import format_bytes
from jobs.preconditions.config_validation import checked_config, config_risks
from jobs.repositories.deletion_impact import DeletionImpact
from jobs.runtime.approval import warning_lines
from jobs.runtime.console import format_cell, truncate
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line
from schemas.enums import NO_LEADER, Action, OperationKind, RejectionCode
from schemas.operation_data import AlteredConfig, CheckedConfig
from schemas.rows import (
    CandidateEvidence,
    ChangeSummary,
    Operation,
    PlanRecord,
    PlanRow,
    RejectionRecord,
    operations_among,
)
from schemas.stored_plan import Plan
from schemas.text import DRAINED_LEADS, LINES_SHOWN, broker_list, join_words, partition_name, plan_size, pluralise
from schemas.topic_configs import MIN_ISR


def summarise(plan: PlanRecord, operations: int, marked: Sequence[int] = ()) -> str:
    """Return the size of a plan, without zeros if there is nothing to do.

    `marked` has the brokers that its commit marks as drained, or of which it deletes the mark.

    >>> from datetime import datetime
    >>> made = {"plan_id": "5f", "snapshot_id": 1, "kind": "elect", "status": "planned", "created_at": datetime.min}
    >>> summarise(PlanRecord(**made, changes=3, rejected=1), 0), summarise(PlanRecord(**made, rejected=1), 0)
    ('3 changes, 0 replica moves, 1 rejected', 'nothing is due, 1 rejected')
    """
    if marked and not plan.changes:
        mark = "marked as drained" if plan.traits.drains else "no longer marked as drained"
        return f"no change but {broker_list(marked)} {mark}, {plan.rejected} rejected"
    if plan.changes or operations:
        return (
            f"{plan_size(plan.changes, operations)}, {pluralise(plan.moves, 'replica move')}, {plan.rejected} rejected"
        )
    return "nothing is due" + (f", {plan.rejected} rejected" if plan.rejected else "")


def pending_summary(plan: Plan, due: Sequence[PlanRow]) -> str:
    """Return how many of a plan's changes and operations are due."""
    tasks = len(operations_among(due))
    parts = (
        [f"{len(due) - tasks} of {pluralise(len(plan.changes), 'change')}"] if plan.changes or not plan.tasks else []
    )
    parts += [f"{tasks} of {pluralise(len(plan.tasks), 'operation')}"] if plan.tasks else []
    alone = len(parts) == 1 and len(plan.changes) + len(plan.tasks) == 1
    return f"{' and '.join(parts)} {'is' if alone else 'are'} due"


KINDS_SHOWN: Final = 5
"""Kinds of reasons that are listed."""

_NUMBER: Final = re.compile(r"\b\d+(?:,\d{3})*\b")
_SEVERAL_MOVES: Final = re.compile(r"\* → \*(, \* → \*)+")


def kind_lines(reasons: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Return a line for each kind of reason, with the number of rows; numbers in which reasons differ become `*`.

    >>> emptied = [("empties 3: 3 → 1", 5), ("empties 3: 3 → 2", 4)]
    >>> evened = [("evens out replicas: 1 → 3, 2 → 4", 2), ("evens out replicas: 2 → 3", 1)]
    >>> list(kind_lines([*emptied, *evened, ("as given", 1)]))
    ['  9 times: empties 3: 3 → *', '  3 times: evens out replicas', '  1 time: as given']
    >>> list(kind_lines([("evens out loads with 1,024 bytes: 3 → 5", 1), ("evens out loads with 994 bytes: 3 → 5", 1)]))
    ['  2 times: evens out loads with * bytes: 3 → 5']
    """
    kinds: dict[str, dict[str, int]] = {}
    for reason, rows in reasons:
        kinds.setdefault(_SEVERAL_MOVES.sub("* → *", _NUMBER.sub("*", reason)), {})[reason] = rows
    counted = sorted(((sum(kind.values()), name, kind) for name, kind in kinds.items()), key=lambda some: -some[0])
    for rows, name, kind in counted[:KINDS_SHOWN]:
        yield f"  {pluralise(rows, 'time')}: {_common_text(name, list(kind))}"
    if others := sum(rows for rows, _, _ in counted[KINDS_SHOWN:]):
        yield f"  {pluralise(others, 'time')}: another reason"


def _common_text(name: str, reasons: Sequence[str]) -> str:
    """Return the text that reasons have in common, or the name of their kind if their numbers of moves differ."""
    numbers = [_NUMBER.findall(reason) for reason in reasons]
    if len({len(some) for some in numbers}) == 1:
        common = iter([some[0] if len({*some}) == 1 else "*" for some in zip(*numbers, strict=True)])
        name = _NUMBER.sub(lambda _: next(common), reasons[0])
    return _SEVERAL_MOVES.sub("* → *", name).replace(": * → *", "")


class Sign(StrEnum):
    """Prefix of a change; `console` colours it on a terminal."""

    ADDED = "+"
    REMOVED = "-"
    CHANGED = "~"


_SIGN_BY_OPERATION: Final[Mapping[str, Sign]] = {
    OperationKind.CREATE_TOPIC: Sign.ADDED,
    OperationKind.EXPAND_TOPIC: Sign.ADDED,
    OperationKind.DELETE_TOPIC: Sign.REMOVED,
    OperationKind.DELETE_REPLICAS: Sign.REMOVED,
    OperationKind.REMOVE_TOPIC: Sign.REMOVED,
}


def change_line(change: ChangeSummary | Operation) -> str:
    """Format a change with its sign, values before and after, and reason; or an operation."""
    if isinstance(change, Operation):
        words = _data_words(change.kind, json.loads(change.data or "{}"))
        return "  ".join([f"{operation_sign(change.kind)} {change.kind} {change.topic}", *words])
    sign = Sign.ADDED if change.replicas_before is None else Sign.CHANGED
    moved = (
        _moved("replicas", change.replicas_before, change.replicas_after),
        _moved("leader", change.leader_before, change.leader_after),
        None if _is_in_sync(change) else _moved("isr", change.isr_before, change.isr_after),
    )
    return "  ".join([f"{sign} {change.name}", *filter(None, moved), change.reason])


def _data_words(kind: str, data: Mapping[str, Any]) -> Iterator[str]:
    """Return an operation's data in words, without what other lines of a review contain.

    >>> list(_data_words("alter_config", {"before": {"a": None, "b": "1"}, "after": {"a": "2", "b": None}}))
    ['a not set→2', 'b 1→not set']
    >>> list(_data_words("expand_topic", {"existing": 1, "partitions": 3, "topic_id": "x"}))
    ['existing 1', 'partitions 3']
    """
    if kind == OperationKind.ALTER_CONFIG:
        for name, value in data.get("after", {}).items():
            before, after = ("not set" if text is None else format_cell(text) for text in (data["before"][name], value))
            yield f"{name} {before}→{after}"
    else:
        left_out = {"topic_id", *CheckedConfig.__struct_fields__}
        yield from (f"{name} {format_cell(value)}" for name, value in data.items() if value and name not in left_out)


def _is_in_sync(change: ChangeSummary) -> bool:
    """Return whether the ISR is all replicas, before and after."""
    before = set(change.isr_before or ()) == set(change.replicas_before or ()) != set()
    return before and set(change.isr_after) == set(change.replicas_after)


def due_lines(due: Sequence[ChangeSummary | Operation], list_all: str, *, everything: bool) -> Iterator[str]:
    """Return a line for each row that would be written; many rows are summed up, and `list_all` lists them."""
    if everything or len(due) <= LINES_SHOWN:
        yield from (f"  would be written: {change_line(row)}" for row in due)
        return
    reasons = (row.action if isinstance(row, Operation) else f"{row.action}: {row.reason}" for row in due)
    yield from kind_lines(Counter(reasons).items())
    yield f"  the {len(due)} changes: {list_all}"


def shown_data(kind: str, data: str | None) -> str | None:
    """Format an operation's data, without the id of a new topic, which only batch mode uses, and without losses,
    which are warnings.

    >>> shown_data("create_topic", '{"config": {}, "topic_id": "x"}'), shown_data("delete_topic", '{"topic_id": "x"}')
    ('{"config": {}}', '{"topic_id": "x"}')
    """
    if kind == OperationKind.ALTER_CONFIG and data is not None and '"losses"' in data:
        return json.dumps({key: value for key, value in json.loads(data).items() if key != "losses"}, sort_keys=True)
    if kind != OperationKind.CREATE_TOPIC or data is None:
        return data
    return json.dumps(without_topic_ids(json.loads(data)), sort_keys=True)


def without_topic_ids(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Remove topic ids from a JSON value at any depth."""
    if isinstance(value, dict):
        return {key: without_topic_ids(item) for key, item in value.items() if key != "topic_id"}
    return [without_topic_ids(item) for item in value] if isinstance(value, list) else value


def operation_sign(kind: str) -> Sign:
    """Return whether an operation adds, removes or changes something."""
    return _SIGN_BY_OPERATION.get(kind, Sign.CHANGED)


def deletion_line(deleted: DeletionImpact) -> str:
    """Format what the deletion of a topic destroys, as far as it is known.

    >>> deletion_line(DeletionImpact(topic="a", partitions=6, replicas=18, bytes=2048,
    ...     sizes_at=datetime(2026, 11, 21, 12), records=1_200))
    'topic a would be deleted with 6 partitions, 1,200 records and 2.0 KiB (18 replicas, as of 2026-11-21 12:00:00)'
    >>> deletion_line(DeletionImpact(topic="a", partitions=None, replicas=None, bytes=None, sizes_at=None))
    'topic a would be deleted; how many partitions, records and bytes is unknown'
    >>> deletion_line(DeletionImpact(topic="a", partitions=1, replicas=None, bytes=None, sizes_at=None))
    'topic a would be deleted with 1 partition; how many records and bytes is unknown'
    """
    losses = []
    if deleted.partitions is not None:
        losses.append(pluralise(deleted.partitions, "partition"))
    if deleted.records is not None:
        losses.append(f"{deleted.records:,} records")
    if deleted.bytes is not None:
        losses.append(
            f"{format_bytes(deleted.bytes)} ({pluralise(deleted.replicas or 0, 'replica')}, "
            f"as of {format_cell(deleted.sizes_at)})"
        )
    unknown = [name for name in _COUNTED if getattr(deleted, name) is None]
    suffix = f" with {join_words(losses)}" if losses else ""
    unknown_part = f"; how many {join_words(unknown)} is unknown" if unknown else ""
    return f"topic {deleted.topic} would be deleted{suffix}{unknown_part}"


_COUNTED: Final = ("partitions", "records", "bytes")


def deletion_texts(deleted: Sequence[DeletionImpact], *, everything: bool = False) -> list[str]:
    """Return a text for each deleted topic."""
    listed = deleted if everything else deleted[:LINES_SHOWN]
    more = [f"... and {len(deleted) - len(listed)} more topics"] if len(deleted) > len(listed) else []
    return [*map(deletion_line, listed), *more]


def deletion_lines(deleted: Sequence[DeletionImpact], *, everything: bool = False) -> list[str]:
    """Return a line for each deleted topic, and a warning that deletion is final."""
    texts = deletion_texts(deleted, everything=everything)
    return [*(f"  {text}" for text in texts), *warning_lines(deletion_warnings(deleted))]


def deletion_warnings(deleted: Sequence[DeletionImpact]) -> list[str]:
    """Return the warning that deletion is final, if anything is deleted."""
    return ["a deletion cannot be undone"] if deleted else []


def evidence_line(evidence: CandidateEvidence) -> str:
    """Format the history of one candidate of an unclean election.

    >>> evidence_line(CandidateEvidence(topic="orders", partition=7, rank=1, broker_id=5, last_in_isr_snapshot=4,
    ...     last_in_isr_at=datetime(2026, 11, 21, 12), epochs_since=2, kafkas_choice=False))
    'orders-7  1. broker 5  in sync until snapshot 4 (2026-11-21 12:00:00 UTC)  leader epochs since 2  log size unknown'
    """
    snapshot_id, size = evidence.last_in_isr_snapshot, evidence.log_size
    in_sync = "never seen in sync"
    if snapshot_id is not None:
        at = format_cell(evidence.last_in_isr_at)
        in_sync = f"in sync until snapshot {snapshot_id} ({at} UTC)  leader epochs since {evidence.epochs_since}"
    parts = [
        partition_name(evidence.topic, evidence.partition),
        f"{evidence.rank}. broker {evidence.broker_id}",
        in_sync,
    ]
    parts.append("log size unknown" if size is None else f"log of {size} bytes")
    return "  ".join(parts + ["Kafka's choice"] * evidence.kafkas_choice)


def warnings(
    changes: Sequence[ChangeSummary],
    operations: Sequence[Operation],
    rejections: Sequence[RejectionRecord],
    below_min_isr: Sequence[str],
    short_lists: Sequence[str] = (),
    *,
    moves_replicas: bool = False,
    everything: bool = False,
) -> Iterator[str]:
    """Yield the warnings that end a review; `plan_review.warned` selects the changes that they may name.

    `below_min_isr` and `short_lists` are partitions found by `jobs.preconditions.min_isr`.
    """
    offline = [c.name for c in changes if c.leader_after == NO_LEADER]
    doomed = [row.name for row in rejections if row.code == RejectionCode.WOULD_GO_OFFLINE]
    unclean = [c.name for c in changes if c.action == Action.ELECT and not set(c.isr_after) <= set(c.isr_before or ())]
    by_drained = [c.name for c in changes if DRAINED_LEADS in (c.reason or "")]
    last = {c.name: c for c in changes if moves_replicas and c.action == Action.REASSIGN}
    dead = [name for name, change in last.items() if not {*change.replicas_after} <= {*change.requires_live}]
    warned = (
        ("keeps", "keep", "a replica on a broker that is not live", dead),
        ("goes", "go", "offline", offline),
        ("goes", "go", "offline when the drained brokers stop", sorted(doomed)),
        ("may", "may", "lose data by an unclean election", unclean),
        ("is", "are", "led by a drained broker, as no other replica can lead", by_drained),
        ("is", "are", f"left with fewer in sync than {MIN_ISR}, so acks=all writes fail there", below_min_isr),
        (
            "is",
            "are",
            f"left with fewer replicas than {MIN_ISR}; older brokers fail acks=all writes there",
            short_lists,
        ),
    )
    for one, several, subject, names in warned:
        if names:
            shown_names = names if everything else names[:LINES_SHOWN]
            more = f" and {len(names) - LINES_SHOWN} more" if len(names) > len(shown_names) else ""
            yield f"{pluralise(len(names), 'partition', one, several)} {subject}: {', '.join(shown_names)}{more}"
    yield from operation_warnings(changes, operations)


def rejection_line(row: RejectionRecord) -> str:
    """Format a rejection."""
    return f"rejected {row.name}  {row.code}: {row.reason}"


def rejection_lines(settings: Settings, plan: Plan) -> list[str]:
    """Return lines for a plan's rejections, truncated if there are many."""
    lines = [f"  {rejection_line(row)}" for row in plan.rejections]
    return truncate(lines, command_line(settings, "show", "rejections", plan.called, "--all"))


def _moved(name: str, before: object, after: object) -> str | None:
    if before == after:
        return None
    return f"{name} {format_cell(after)}" if before is None else f"{name} {format_cell(before)}→{format_cell(after)}"


def operation_warnings(changes: Sequence[ChangeSummary], operations: Sequence[Operation]) -> Iterator[str]:
    """Return warnings of topic configs that a plan sets, and of partitions that it adds."""
    factors: dict[str, int] = {}
    for change in changes:
        factors[change.topic] = min(factors.get(change.topic, 2**31), len(change.replicas_after))
    for operation in operations:
        topic, data = operation.topic, checked_config(operation)
        recorded = data.replication_factor if isinstance(data, AlteredConfig) else None
        yield from config_risks(topic, data, factors.get(topic) if recorded is None else recorded)
        for name, version in data.ignored_before.items():
            yield f"topic {topic}: {name} exists since Kafka {version}; older brokers ignore it"
        for name in data.unknown:
            yield f"topic {topic}: {name} is unknown, and its value was not checked"
        if operation.kind == OperationKind.EXPAND_TOPIC:
            yield f"topic {topic}: records of a key may go to another partition afterwards"
