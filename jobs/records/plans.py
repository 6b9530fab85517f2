"""Stored plans: found by id or alias, read whole, checked against their id, and shown as people read them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime  # noqa: F401 - the doctest's
from typing import Final

from jobs.adapters.delta.lake import Lake, Row
from jobs.basics.errors import RefusedError, UnreadableError, UsageError
from jobs.records.checked_configs import config_warnings
from jobs.records.plan_names import names_of, plan_named
from jobs.runtime.console import shown
from schemas.digest import plan_header, plan_id
from schemas.names import NO_LEADER, STANDALONE, WHOLE_TOPIC, Action, PlanKind, RejectionCode

LINES_SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan and its rows, in the order they are committed."""

    row: Row
    changes: list[Row]
    operations: list[Row]
    rejections: list[Row]

    @property
    def plan_id(self) -> str:
        return str(self.row["plan_id"])

    @property
    def title(self) -> str:
        return titled(self.row)

    @property
    def tasks(self) -> list[Row]:
        """The operations that no change carries, as rows that are judged and recorded as changes are."""
        return [
            {"wave": 0, "topic": op["topic"], "partition": None, "action": op["kind"], "data": op["data"]}
            for op in self.operations
            if op["kind"] in STANDALONE
        ]

    @property
    def size(self) -> int:
        """How many changes and operations a commit has to do."""
        return len(self.changes) + len(self.tasks)


def titled(plan: Row) -> str:
    """Name a plan by its id and its names.

    >>> titled({"plan_id": "5f", "name": "a", "names": ["a", "b"]}), titled({"plan_id": "5f", "name": None})
    ('5f (a, b)', '5f')
    """
    names = names_of(plan)
    return f"{plan['plan_id']} ({', '.join(names)})" if names else str(plan["plan_id"])


def find_plan(lake: Lake, id_or_name: str) -> Row:
    """Return a plan's row by id or alias."""
    if not lake.exists():
        raise UnreadableError(f"no warehouse at {lake.warehouse}; check --warehouse")
    found = lake.rows("plans", ("plan_id", "=", id_or_name)) or list(filter(None, [plan_named(lake, id_or_name)]))
    if found:
        return found[0]
    raise UsageError(
        f"no plan {id_or_name!r} of cluster {lake.cluster!r} in {lake.warehouse}; "
        "`surveyor show plans` lists those there are",
    )


def read_plan(lake: Lake, id_or_name: str) -> Plan:
    """Return a plan whole."""
    row = find_plan(lake, id_or_name)
    mine = ("plan_id", "=", row["plan_id"])
    changes = sorted(lake.rows("changes", mine), key=lambda c: (c["wave"], c["topic"], c["partition"]))
    operations = sorted(lake.rows("operations", mine), key=lambda o: o["sequence"])
    return Plan(row, changes, operations, lake.rows("rejections", mine))


def refuse_edited(plan: Plan) -> None:
    """Raise RefusedError unless the rows are those the plan's id was made of."""
    rows = {"changes": plan.changes, "operations": plan.operations, "rejections": plan.rejections}
    found = plan_id(plan_header(plan.row), rows)
    if found != plan.plan_id:
        raise RefusedError(
            f"plan {plan.title} is not what was planned: its rows hash to {found}; "
            "somebody edited or lost rows of it; plan again",
        )


def how_much(changes: int, operations: int) -> str:
    """Say how much a plan does; an operation is no change, and not nothing.

    >>> how_much(0, 1), how_much(3, 1), how_much(1, 0)
    ('1 operation', '3 changes, 1 operation', '1 changes')
    """
    done = f"{operations} operation{'s' * (operations != 1)}"
    return f"{changes} changes" if not operations else f"{changes} changes, {done}" if changes else done


def how_much_is_due(plan: Plan, due: Sequence[Row]) -> str:
    """Say how many of a plan's changes and operations are due."""
    tasks = sum(row["partition"] is None for row in due)
    parts = [f"{len(due) - tasks} of {len(plan.changes)} changes"] if plan.changes or not plan.tasks else []
    parts += [f"{tasks} of {len(plan.tasks)} operations"] if plan.tasks else []
    return f"{' and '.join(parts)} are due"


def cut(lines: Sequence[str], command: str, *, everything: bool = False) -> list[str]:
    """Keep the first lines unless all are asked for, and say how many are left out and which command shows them."""
    if everything or len(lines) <= LINES_SHOWN:
        return list(lines)
    return [*lines[:LINES_SHOWN], f"  ... and {len(lines) - LINES_SHOWN} more: `surveyor {command}` shows them"]


def change_line(change: Row) -> str:
    """Write one change as people read it: what was -> what will be, and why.

    >>> change_line({"topic": "orders", "partition": 7, "action": "elect", "replicas_before": [2, 5],
    ...     "replicas_after": [2, 5], "leader_before": 2, "leader_after": 5, "isr_before": [2, 5],
    ...     "isr_after": [5], "reason": "broker 2 is gone"})
    'orders-7  leader 2→5  isr [2,5]→[5]  broker 2 is gone'
    """
    if change["partition"] is None:
        return f"{change['topic']}  {change['action']} {change['data']}"
    names = ("replicas", "leader", "isr")
    moved = [_moved(name, change[f"{name}_before"], change[f"{name}_after"]) for name in names]
    return "  ".join([_name(change), *filter(None, moved), change["reason"]])


def evidence_line(evidence: Row) -> str:
    """Write what history says of one candidate.

    >>> evidence_line({"topic": "orders", "partition": 7, "rank": 1, "broker_id": 5, "last_in_isr_snapshot": 4,
    ...     "last_in_isr_at": datetime(2026, 11, 21, 12), "epochs_since": 2, "log_size": None, "kafkas_choice": False})
    'orders-7  1. broker 5  in sync until snapshot 4 (2026-11-21 12:00:00)  leader epochs since 2  log size unknown'
    """
    seen, size = evidence["last_in_isr_snapshot"], evidence["log_size"]
    told = "never seen in sync"
    if seen is not None:
        at = shown(evidence["last_in_isr_at"])
        told = f"in sync until snapshot {seen} ({at})  leader epochs since {evidence['epochs_since']}"
    parts = [_name(evidence), f"{evidence['rank']}. broker {evidence['broker_id']}", told]
    parts.append("log size unknown" if size is None else f"log of {size} bytes")
    return "  ".join(parts + ["Kafka's choice"] * evidence["kafkas_choice"])


def warnings(plan: Plan, *, everything: bool = False) -> Iterator[str]:
    """What a reviewer must see last; `plan_review.warned` tells which changes of many it may speak of."""
    offline = [_name(c) for c in plan.changes if c["leader_after"] == NO_LEADER]
    doomed = [_name(r) for r in plan.rejections if r["code"] == RejectionCode.GOES_OFFLINE]
    unclean = [
        _name(c)
        for c in plan.changes
        if c["action"] == Action.ELECT and not set(c["isr_after"]) <= set(c["isr_before"])
    ]
    last = {_name(c): c for c in plan.changes if plan.row["kind"] == PlanKind.REASSIGN}
    dead = [name for name, change in last.items() if _keeps_dead(change)]
    warned = (
        ("keep a replica on a broker that is not alive", dead),
        ("go offline", offline),
        ("go offline when the drained brokers stop", sorted(doomed)),
        ("may lose data by an unclean election", unclean),
    )
    for what, names in warned:
        if names:
            shown_names = names if everything else names[:LINES_SHOWN]
            more = f" and {len(names) - LINES_SHOWN} more" if len(names) > len(shown_names) else ""
            yield f"{len(names)} partitions {what}: {', '.join(shown_names)}{more}"
    yield from config_warnings(plan.changes, plan.operations)


def _keeps_dead(change: Row) -> bool:
    return change["action"] == Action.REASSIGN and not set(change["replicas_after"]) <= set(change["requires_live"])


def row_name(row: Row) -> str:
    """Name what a row is about: a partition, or a topic as a whole.

    >>> row_name({"topic": "orders", "partition": 7}), row_name({"topic": "orders", "partition": None})
    ('orders-7', 'orders')
    """
    if row["partition"] in {None, WHOLE_TOPIC}:
        return str(row["topic"])
    return f"{row['topic']}-{row['partition']}"


_name: Final = row_name


def _moved(name: str, before: object, after: object) -> str | None:
    if before == after:
        return None
    return f"{name} {shown(after)}" if before is None else f"{name} {shown(before)}→{shown(after)}"
