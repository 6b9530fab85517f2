"""An oracle of the controller's rules in plain Python, one partition at a time, written from Kafka's procedures.

`Election.scala`: a strategy gets the assignment, the ISR and the online replicas, and returns a leader and an ISR.
`ReplicaStateMachine.removeReplicasFromIsr`: a dead follower leaves the ISR, but the last member stays.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from planner.columns.broker_sets import FAILED_COLUMN
from schemas.enums import NO_LEADER, RECOVERED, RECOVERING, DrainMode
from schemas.rows import Row
from tests.planner.frames import RuleInput
from tests.planner.rule_inputs import SILENT, UNCLEAN

DELETED: Final = "deleted"


def online(row: Row, rule_input: RuleInput) -> set[int]:
    """`isReplicaOnline`: the broker is registered, and its log dir of this replica has not failed."""
    return set(rule_input.registered) - set(row.get(FAILED_COLUMN) or ())


def able(row: Row, rule_input: RuleInput) -> list[int]:
    """Return replicas that may be in sync, in order: online, and on brokers that are understood."""
    return [replica for replica in row["replicas"] if replica in online(row, rule_input) & rule_input.live]


def electable(row: Row, rule_input: RuleInput) -> list[int]:
    """Return `able` replicas in the order of election, with those on drained brokers last."""
    return sorted(able(row, rule_input), key=lambda replica: replica in rule_input.drained)


def first_isr(row: Row, rule_input: RuleInput) -> list[int]:
    """Return the ISR of a new partition: a replica that a resident drain stops is in it only if no other is able."""
    going = [replica for replica in able(row, rule_input) if rule_input.drained.get(replica) is not DrainMode.RESIDENT]
    return going or able(row, rule_input)


def offline_election(row: Row, rule_input: RuleInput, *, unclean: bool) -> tuple[int, list[int], int] | None:
    """`offlinePartitionLeaderElection`: leader, ISR and recovery state, None if no replica can be elected."""
    members = [member for member in row["isr"] if member in online(row, rule_input)]
    for replica in electable(row, rule_input):
        if replica in members:
            return replica, members, row["leader_recovery_state"]
    if unclean and not set(members) & set(row["replicas"]):
        for replica in electable(row, rule_input):
            return replica, [replica], RECOVERING
    return None


def unclean_allowed(row: Row, rule_input: RuleInput) -> bool:
    """`LogConfig` with its fallback to `KafkaConfig`: the topic's config, else the brokers' if all agree."""
    configs = [row for row in rule_input.configs if row["name"] == "unclean.leader.election.enable"]
    by_brokers = [
        row["value"] is not None and row["value"].strip().lower() == "true" and not row["assumed"] for row in configs
    ]
    return row["topic"] in UNCLEAN or (row["topic"] in SILENT and bool(configs) and all(by_brokers))


def removal_from_isr(row: Row, rule_input: RuleInput) -> list[int]:
    """`removeReplicasFromIsr` for each offline replica in turn; the last member is never removed."""
    isr = list(row["isr"])
    for member in row["isr"]:
        if member not in online(row, rule_input) and len(isr) > 1:
            isr.remove(member)
    return isr


def _change(row: Row, action: str, leader: int, isr: list[int], recovery: int) -> Row:
    epoch = 0 if row["leader"] is None else row["leader_epoch"] + 1
    return {"action": action, "leader": leader, "isr": isr, "epoch": epoch, "recovery": recovery}


def due(row: Row, rule_input: RuleInput, *, allow_unclean: bool) -> Row | None:
    """Return the change of a cycle for a partition, or None."""
    if row["topic"] == DELETED or not row["understood"]:
        return None
    if row["leader"] is None:
        isr = first_isr(row, rule_input)
        leaders = [replica for replica in electable(row, rule_input) if replica in isr]
        return _change(row, "create", leaders[0], isr, RECOVERED) if isr else None
    if row["leader"] in online(row, rule_input):
        isr = removal_from_isr(row, rule_input)
        shrinks = isr != row["isr"] and isr[0] in online(row, rule_input)
        return _change(row, "shrink_isr", row["leader"], isr, row["leader_recovery_state"]) if shrinks else None
    elected = offline_election(row, rule_input, unclean=allow_unclean or unclean_allowed(row, rule_input))
    if elected is not None:
        return _change(row, "elect", *elected)
    # the whole ISR is kept: any member that returns has everything that was acknowledged
    if row["leader"] == NO_LEADER or not row["isr"] or set(row["isr"]) & online(row, rule_input):
        return None
    return _change(row, "take_offline", NO_LEADER, row["isr"], row["leader_recovery_state"])


def reconcile_code(row: Row, rule_input: RuleInput, *, allow_unclean: bool) -> str | None:
    """Return why a partition has no leader after a cycle, or was not considered."""
    if row["topic"] == DELETED:
        return None
    if not row["understood"]:
        return "NOT_UNDERSTOOD"
    if row["leader"] in online(row, rule_input):
        return None
    change = due(row, rule_input, allow_unclean=allow_unclean)
    return "NO_ELIGIBLE_LEADER" if change is None or change["leader"] == NO_LEADER else None


def preferred(row: Row, rule_input: RuleInput) -> Row | str:
    """`preferredReplicaPartitionLeaderElection`: the change, or the code of the rejection."""
    candidate, leader = row["replicas"][0], row["leader"]
    isr, registered = row["isr"] or (), rule_input.registered
    conditions = [
        ("DELETION_REQUESTED", row["topic"] == DELETED),
        ("NOT_UNDERSTOOD", not row["understood"]),
        ("NO_STATE", leader is None),
        ("ALREADY_PREFERRED", leader == candidate),
        ("NOT_UNDERSTOOD", leader in rule_input.opaque),
        ("DRAINED", candidate in registered and candidate in rule_input.drained),
        ("LOG_DIR_FAILED", candidate in registered - online(row, rule_input)),
        ("PREFERRED_NOT_ALIVE", candidate not in rule_input.live),
        ("PREFERRED_NOT_IN_ISR", candidate not in isr),
    ]
    for code, holds in conditions:
        if holds:
            return code
    return _change(row, "elect_preferred", candidate, row["isr"], row["leader_recovery_state"])


def rebalance(rows: Iterable[Row], threshold: float) -> tuple[dict[int, tuple[int, int]], set[tuple[str, int]]]:
    """`checkAndTriggerAutoLeaderRebalance`: by broker the partitions that prefer it and are not led by it; elections.

    Topics queued for deletion do not count; their partitions are still requested, and then rejected.
    """
    by_preferred: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_preferred[row["replicas"][0]].append(row)
    counts, candidates = {}, set()
    for broker, group in by_preferred.items():
        bad = [row for row in group if row["leader"] is not None and row["leader"] != broker]
        counted = [row for row in group if row["topic"] != DELETED]
        bad_counted = [row for row in bad if row["topic"] != DELETED]
        if counted:
            counts[broker] = (len(counted), len(bad_counted))
        if counted and len(bad_counted) / len(counted) > threshold:
            candidates |= {(row["topic"], row["partition"]) for row in bad}
    return counts, candidates


def outcome_columns(change: dict[str, Any]) -> Row:
    """Reduce a change row to the columns of the oracle."""
    return {
        "action": change["action"],
        "leader": change["leader_after"],
        "isr": change["isr_after"],
        "epoch": change["leader_epoch_after"],
        "recovery": change["leader_recovery_state_after"],
    }
