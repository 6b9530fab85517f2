"""The planner of `plan reassign`, for any of its goals.

Corresponds to kafka-reassign-partitions. Targets come unchanged from a file or a snapshot, or from the optimiser. All
pass the lint; a plan that fails it is stored as refused, with its faults as rejections. With wave limits there is one
change per partition and wave, and each starts where the one before ended.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from jobs.core.errors import UsageError
from jobs.planning.placement.explicit_targets import FROM_FILE, TO_SNAPSHOT, from_file, from_snapshot
from jobs.planning.placement.linted_targets import Lint, StatedTargets
from jobs.planning.placement.optimise import optimise
from jobs.planning.placement.placement_options import PlacementLimits, StatedRequest, read_request
from jobs.planning.placement.weights import Weights, read_size_file
from jobs.planning.plan_draft import PlanDraft, Planner
from jobs.planning.planning_tables import PlanningTables

_EXPLICIT: Final[Mapping[str, Callable[[Any, PlacementLimits], Planner]]] = {
    FROM_FILE: from_file,
    TO_SNAPSHOT: from_snapshot,
}
"""Options whose targets are taken unchanged."""


def reassign_planner(option: str, value: Any, limits: PlacementLimits, sizes: Path | None, *, by_size: bool) -> Planner:  # noqa: ANN401 - as the option has it
    """Return the planner of the option that is given; with sizes it balances bytes."""
    weights = _weights(option, sizes, limits.within, by_size=by_size)
    if option in _EXPLICIT:
        return _EXPLICIT[option](value, limits)
    given = read_request(option, value, limits)
    if limits.within is not None and not given.request.goal.even:
        raise UsageError(f"--within is for goals that even brokers: {option} moves only what it must")
    by: dict[str, Any] = {"by_size": True} if by_size else {} if sizes is None else {"sizes": "file"}
    return _optimised(replace(given, parameters=given.parameters | by), weights)


def _weights(option: str, sizes: Path | None, within: float | None, *, by_size: bool) -> Weights | None:
    """Return the source of sizes, None if replicas are balanced instead of bytes."""
    if sizes is None and not by_size:
        if within is not None:
            raise UsageError("--within is for plans that even bytes: give --by-size or --sizes too")
        return None
    if sizes is not None and by_size:
        raise UsageError("--sizes and --by-size exclude each other: give a file, or use the table of `surveyor sizes`")
    if option in _EXPLICIT:
        raise UsageError(f"{option} takes targets as they are: leave out --sizes and --by-size")
    return Weights() if sizes is None else Weights(path=sizes, file=read_size_file(sizes))


def _optimised(given: StatedRequest, weights: Weights | None) -> Planner:
    request = given.request
    factor = request.goal.replication_factor is not None
    lint = Lint(
        factor_may_change=factor,
        rack_aware=request.rack_aware,
        leaves_out=True,
        below_min_isr=given.limits.allow_below_min_isr,
        internal=given.limits.internal,
    )

    def planner(tables: PlanningTables) -> PlanDraft:
        given.refuse_unable(tables)
        optimised = optimise(tables, request, weights)
        checks = replace(lint, given_up=optimised.given_up, may_hold=optimised.may_hold)
        faults = checks.faults(tables, optimised.targets).localCheckpoint()
        parameters = {**given.parameters, "figures": optimised.figures}
        targets = StatedTargets(
            rows=optimised.targets,
            parameters=parameters,
            held=optimised.held,
            skip_unsafe=given.limits.skip_unsafe,
            election_wave=optimised.waves if request.elects else None,
            elected=optimised.elected,
        )
        return targets.draft(tables, faults)

    return planner
