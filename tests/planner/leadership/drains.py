"""An oracle for drains in plain Python, one partition at a time, written from Kafka's procedures.

Corresponds to `KafkaController.doControlledShutdown` and `Election.leaderForControlledShutdown`; a demotion is a
reorder and a preferred election.
"""

from collections.abc import Collection, Sequence
from typing import Any

from schemas.rows import Row
from tests.planner.frames import RuleInput
from tests.planner.oracle import DELETED


def shutdown_leader(row: Row, rule_input: RuleInput, down: Collection[int]) -> int | None:
    """Return the first replica of the assignment that is in the ISR, registered and not shutting down."""
    for replica in row["replicas"]:
        if replica in row["isr"] and replica in rule_input.live and replica not in down:
            return int(replica)
    return None


def demoted(replicas: Sequence[int], last: Collection[int]) -> list[int]:
    return sorted(replicas, key=lambda broker: broker in last)


def code(row: Row, rule_input: RuleInput, down: Collection[int]) -> str | None:
    """Return why a partition is left as it is, in either mode."""
    if row["topic"] == DELETED:
        return "DELETION_REQUESTED"
    if not row["understood"]:
        return "NOT_UNDERSTOOD"
    if row["leader"] is None:
        return "NO_STATE"
    needs_it = row["leader"] in down or (row["leader"] not in rule_input.registered and set(row["isr"]) & set(down))
    return "GOES_OFFLINE" if needs_it and shutdown_leader(row, rule_input, down) is None else None


def shut_down(row: Row, rule_input: RuleInput, down: Collection[int]) -> Row | str | None:
    """Return the change of a controlled shutdown, or a code; None without a replica on these brokers."""
    if not set(row["replicas"]) & set(down):
        return None
    rejection = code(row, rule_input, down)
    if rejection is None and row["leader"] not in rule_input.registered:
        rejection = "LEADER_NOT_ALIVE"
    if rejection is None and not set(row["isr"]) - set(down):
        rejection = "LAST_IN_ISR"
    if rejection is not None:
        return rejection
    isr = [member for member in row["isr"] if member not in down]
    stopped = [broker for broker in row["replicas"] if broker in down and broker != row["leader"]]
    notified = [replica for replica in row["replicas"] if replica in rule_input.live and replica not in stopped]
    common = {"isr": isr, "epoch": row["leader_epoch"] + 1, "stopped": stopped, "told": notified}
    if row["leader"] in down:
        return common | {"action": "controlled_shutdown", "leader": shutdown_leader(row, rule_input, down)}
    action = "shrink_isr" if isr != row["isr"] else "stop_replica"
    return common | {"action": action, "leader": row["leader"]}


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


def told_shut_down(change: dict[str, Any]) -> Row:
    return {
        "action": change["action"],
        "leader": change["leader_after"],
        "isr": change["isr_after"],
        "epoch": change["leader_epoch_after"],
        "told": change["leader_and_isr_to"],
        "stopped": change["stop_replica_to"],
    }


def told_demotion(change: dict[str, Any]) -> Row:
    return {
        "wave": change["wave"],
        "action": change["action"],
        "replicas": change["replicas_after"],
        "leader": change["leader_after"],
        "epoch": change["leader_epoch_after"],
    }
