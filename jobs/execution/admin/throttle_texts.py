"""Lines and warnings about throttles: the rates of a plan, slow copies, throttles that others have left."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from jobs.adapters.clusters.interface import Cluster
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import SurveyorError
from jobs.core.units import format_duration
from jobs.execution.admin.throttle_configs import Throttle, throttled_brokers
from jobs.execution.admin.throttles import other_throttled_plans, throttle_of, throttle_rows, throttled_resources
from jobs.repositories.copy_volume import Volume
from jobs.snapshots.copy_throttles import throttles_of_moves
from planner.load.throttle_rates import FLOOR_SHARE, Rates, ThrottleRate
from schemas.enums import Action
from schemas.rows import Change, PlanRow, ThrottledConfig, changes_among
from schemas.stored_plan import Plan
from schemas.text import broker_list


def not_removed_text(rows: Iterable[ThrottledConfig]) -> str:
    """Name the brokers and topics on which a throttle is left that nothing needs."""
    return f"its throttle could not be removed from {', '.join(throttled_resources(rows))}"


def throttle_lines(
    warehouse: Warehouse, pending: Sequence[Change], rates: Rates | None, being_committed: Collection[str]
) -> Iterator[str]:
    """Describe what a commit of these changes would throttle, and which throttles earlier commits have left.

    A throttle of the plans `being_committed` is not left: it is in use.
    """
    moves = [change for change in pending if change.action == Action.REASSIGN]
    brokers = throttled_brokers(moves) if rates else []
    if brokers:
        topics = ", ".join(sorted({move.topic for move in moves if throttled_brokers([move])}))
        limit = f"to {rates} B/s" if isinstance(rates, int) else "by load"
        names = ", ".join(map(str, brokers))
        yield f"  would be throttled {limit}, wave by wave: brokers {names}, and moving replicas of {topics}"
    if isinstance(rates, Mapping):
        yield from rate_lines(moves, rates)
    yield from map(other_throttle_line, other_throttled_plans(warehouse, being_committed))


def rate_lines(pending: Sequence[Change], rates: Mapping[int, ThrottleRate]) -> Iterator[str]:
    """Return the rates of the brokers that copy, a line for each."""
    for broker in throttled_brokers(change for change in pending if change.action == Action.REASSIGN):
        rate = rates[broker]
        yield f"    broker {broker} in this hour: receives {rate.receive} B/s, sends {rate.send} B/s"


def slow_copies(pending: Sequence[Change], rates: Mapping[int, ThrottleRate], copied: Volume) -> Iterator[str]:
    """Warn of brokers without room for copies below the limits of their network, whose rates are the least ones."""
    moves = [change for change in pending if change.action == Action.REASSIGN]
    slow = {broker: rates[broker] for broker in throttled_brokers(moves) if rates[broker].is_least}
    if slow:
        least = min(min(rate.receive, rate.send) for rate in slow.values())
        takes = f", and take at least {format_duration(copied.seconds(rates))}" if copied.is_known else ""
        yield (
            f"the load leaves no room below the limit of the network of {broker_list([*slow])}: copies get "
            f"{FLOOR_SHARE:.0%} of the capacity, as little as {least} B/s{takes}; a partition does not complete while "
            "more than that is written to it: commit in an hour of less load, or give a rate, as --throttle 50MB/s"
        )


def other_throttle_line(plan_id: str) -> str:
    """Say that the throttle of another plan is set."""
    return (
        f"  the throttle of plan {plan_id} is still set: `surveyor commit {plan_id} --apply` removes it, "
        "once none of its replicas move"
    )


def foreign_throttle_texts(
    warehouse: Warehouse, cluster: Cluster, plan: Plan, pending: Sequence[PlanRow], throttle: Throttle | None
) -> Iterator[str]:
    """Describe the throttles of other tools and plans that limit a plan's moves; its own one takes their place."""
    rows = throttle_rows(warehouse)
    if throttle or (throttle is None and throttle_of(row for row in rows if row.plan_id == plan.plan_id)):
        return
    try:
        throttles = throttles_of_moves(cluster, changes_among(pending), rows)
    except SurveyorError as error:  # a config that cannot be read prevents no commit that sets no throttle
        yield f"whether a throttle of another tool limits the moves is unknown: {error}"
        return
    for other in throttles:
        if other.plan_id == plan.plan_id:
            continue
        override = (
            f"`surveyor commit {plan.called} --apply --throttle RATE` sets another rate until the moves are complete"
        )
        yield f"{other.stored_text(warehouse)}; {override}"
