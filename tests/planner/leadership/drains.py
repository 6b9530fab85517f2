"""An oracle for drains in admin mode, one partition at a time: a demotion is a reorder and a preferred election."""

from collections.abc import Collection, Sequence
from typing import Any

from schemas.rows import Row
from tests.planner.frames import RuleInput
from tests.planner.rule_inputs import DELETED


def shutdown_leader(row: Row, rule_input: RuleInput, down: Collection[int]) -> int | None:
    """Return the first replica of the assignment that is in the ISR, registered and not shutting down."""
    for replica in row["replicas"]:
        if replica in row["isr"] and replica in rule_input.live and replica not in down:
            return int(replica)
    return None


def demoted(replicas: Sequence[int], last: Collection[int]) -> list[int]:
    return sorted(replicas, key=lambda broker: broker in last)


def code(row: Row, rule_input: RuleInput, down: Collection[int]) -> str | None:
    """Return why a partition is left as it is."""
    if row["topic"] == DELETED:
        return "DELETION_REQUESTED"
    if not row["understood"]:
        return "NOT_UNDERSTOOD"
    if row["leader"] is None:
        return "NO_STATE"
    needs_it = row["leader"] in down or (row["leader"] not in rule_input.registered and set(row["isr"]) & set(down))
    return "WOULD_GO_OFFLINE" if needs_it and shutdown_leader(row, rule_input, down) is None else None


def demotion(row: Row, rule_input: RuleInput, down: Collection[int]) -> list[Row] | str | None:
    """Return the order and leader of a drain in admin mode, or a code; None without a replica on these brokers."""
    if not set(row["replicas"]) & set(down):
        return None
    rejection = code(row, rule_input, down)
    if rejection is None and row["adding_replicas"]:
        rejection = "REASSIGNMENT_IN_PROGRESS"
    if rejection is not None:
        return rejection
    order = demoted(row["replicas"], down)
    leader = shutdown_leader(row, rule_input, down)
    led = row["leader"] in down
    if led and not (order[0] in row["isr"] and order[0] in rule_input.live and order[0] not in down):
        order.sort(key=lambda broker: broker != leader)
    changes: list[Row] = []
    if order != row["replicas"]:
        changes.append({"wave": 0, "action": "reassign", "replicas": order, "leader": row["leader"], "epoch": None})
    if led:
        epoch = row["leader_epoch"] + len(changes) + 1
        changes.append({"wave": 1, "action": "elect_preferred", "replicas": order, "leader": leader, "epoch": epoch})
    return changes


def told_demotion(change: dict[str, Any]) -> Row:
    return {
        "wave": change["wave"],
        "action": change["action"],
        "replicas": change["replicas_after"],
        "leader": change["leader_after"],
        "epoch": change["leader_epoch_after"],
    }
