"""What-if by brute force: for each scenario, brokers are removed from the input and every partition is evaluated."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations

import msgspec

from planner.rules.inputs import BrokerSets
from planner.rules.leadership import offline_election
from planner.whatif.impact import BrokersLost
from schemas.enums import FailureScenario
from schemas.partition_info import PartitionInfo
from schemas.rows import Row
from tests.planner.frames import RuleInput
from tests.planner.rule_inputs import DELETED


def scenarios(
    rule_input: RuleInput, racks: Mapping[int, str | None], lose: FailureScenario | BrokersLost
) -> dict[str, list[int]]:
    """Return the brokers lost in each scenario."""
    brokers = sorted(rule_input.registered)
    if isinstance(lose, BrokersLost):
        lost_together = [broker for broker in brokers if broker in lose.broker_ids]
        return {lose.name: lost_together} if lost_together else {}
    if lose is FailureScenario.PAIRS:
        return {f"brokers {one}+{other}": [one, other] for one, other in combinations(brokers, 2)}
    if lose is FailureScenario.BROKERS:
        return {f"broker {broker}": [broker] for broker in brokers}
    lost: dict[str, list[int]] = {}
    for broker in brokers:
        rack = racks.get(broker)
        lost.setdefault(f"broker {broker}" if rack is None else f"rack {rack}", []).append(broker)
    return lost


def without(rule_input: RuleInput, lost: Iterable[int]) -> RuleInput:
    gone = frozenset(lost)
    return replace(rule_input, live=rule_input.live - gone, opaque=rule_input.opaque - gone)


def leader(row: Row, rule_input: RuleInput) -> int | None:
    """Return the leader after the clean elections due now."""
    if row["leader"] in rule_input.registered:
        return int(row["leader"])
    if not _judged(row):
        return None
    brokers = BrokerSets.of({broker: broker in rule_input.live for broker in rule_input.registered}, rule_input.drained)
    elected = offline_election(msgspec.convert(row, PartitionInfo), brokers, unclean_allowed=False)
    return elected.leader if elected else None


def costs(rule_input: RuleInput, lost: list[int]) -> Row:
    """Return the impact of a scenario, as in its WHATIF row."""
    after = without(rule_input, lost)
    judged = [row for row in rule_input.partitions if row["topic"] != DELETED and _judged(row)]
    offline = [row for row in judged if leader(row, after) is None]
    newly = [row for row in offline if leader(row, rule_input) is not None]
    without_live_in_sync = [row for row in newly if not _in_sync(row, after)]
    no_replica = [row for row in without_live_in_sync if not set(row["replicas"]) & after.live]
    under = [row for row in judged if _under_min_isr(row, after)]
    return {
        "lost": lost,
        "offline": len(offline),
        "newly_offline": len(newly),
        "unclean_only": len(without_live_in_sync) - len(no_replica),
        "no_replica": len(no_replica),
        "under_min_isr": len(under),
        "newly_under_min_isr": len([row for row in under if not _under_min_isr(row, rule_input)]),
        "leaders_moved": len([row for row in judged if leader(row, rule_input) != leader(row, after)]) - len(newly),
        "not_judged": len([row for row in rule_input.partitions if row["topic"] != DELETED and not _judged(row)]),
        **_spread(after),
    }


def _spread(after: RuleInput) -> Row:
    led_by = (leader(row, after) for row in after.partitions if row["topic"] != DELETED)
    leaders = Counter(broker for broker in led_by if broker is not None)
    most = max(leaders.values(), default=0)
    mean = leaders.total() / len(after.registered) if after.registered else None
    return {
        "max_leaders": most,
        "most_leaders_on": min((broker for broker in leaders if leaders[broker] == most), default=None),
        "mean_leaders": mean,
        "leader_skew": most / mean if mean else None,
    }


def _judged(row: Row) -> bool:
    return row["understood"] and row["leader"] is not None


def _in_sync(row: Row, rule_input: RuleInput) -> set[int]:
    return set(row["isr"]) & rule_input.registered


def _under_min_isr(row: Row, rule_input: RuleInput) -> bool:
    """Use the topic's config, else the largest value a broker is known to use, else 1."""
    config = next((topic["config"] or {} for topic in rule_input.topics if topic["topic"] == row["topic"]), {})
    known = [c for c in rule_input.configs if c["name"] == "min.insync.replicas" and not c["assumed"]]
    default = max((int(c["value"]) for c in known), default=1)
    return len(_in_sync(row, rule_input)) < int(config.get("min.insync.replicas") or default)
