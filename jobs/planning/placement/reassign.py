"""The planner of `plan reassign`, for any of its goals.

Corresponds to kafka-reassign-partitions. Targets come unchanged from a file or a snapshot, or from the optimiser. All
pass the lint; a plan that fails it is stored as refused, with its faults as rejections. With wave limits there is one
change per partition and wave, and each starts where the one before ended.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from jobs.console_output.plans_by_budget import BudgetPlans
from jobs.core.errors import UsageError
from jobs.planning.placement.explicit_targets import FROM_FILE, TO_SNAPSHOT, from_file, from_snapshot
from jobs.planning.placement.linted_targets import Lint, StatedTargets
from jobs.planning.placement.measured_loads import MeasuredLoads
from jobs.planning.placement.optimise import optimise
from jobs.planning.placement.pareto import plans_by_budget
from jobs.planning.placement.placement_options import PlacementLimits, StatedRequest, read_request
from jobs.planning.placement.weights import Weights, read_size_file
from jobs.planning.plan_draft import PlanDraft, Planner
from jobs.planning.planning_tables import PlanningTables

_EXPLICIT: Final[Mapping[str, Callable[[Any, PlacementLimits], Planner]]] = {
    FROM_FILE: from_file,
    TO_SNAPSHOT: from_snapshot,
}
"""Options whose targets are taken unchanged."""


BudgetPlanner = Callable[[PlanningTables], BudgetPlans]
"""Plans by load with several budgets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancedBy:
    """The quantity that is balanced instead of replicas: sizes of a file, recorded sizes, or measured loads."""

    sizes: Path | None = None
    by_size: bool = False
    loads: MeasuredLoads | None = None

    @property
    def options(self) -> list[str]:
        """The options that were given."""
        given = {"--sizes": self.sizes, "--by-size": self.by_size, "--by-load": self.loads}
        return [option for option, value in given.items() if value]

    @property
    def parameters(self) -> dict[str, Any]:
        """The options as parameters of the plan."""
        sizes = {"by_size": True} if self.by_size else {} if self.sizes is None else {"sizes": "file"}
        return sizes if self.loads is None else self.loads.parameters

    def weights(self) -> Weights | MeasuredLoads | None:
        """Return the source of weights or loads, None if replicas are balanced."""
        if self.loads is not None or not self.options:
            return self.loads
        return Weights() if self.sizes is None else Weights(path=self.sizes, file=read_size_file(self.sizes))


def reassign_planner(option: str, value: Any, limits: PlacementLimits, by: BalancedBy) -> Planner:  # noqa: ANN401 - as the option has it
    """Return the planner of the option that is given."""
    _refuse_contradictions(option, limits, by)
    if option in _EXPLICIT:
        return _EXPLICIT[option](value, limits)
    given = _stated(option, value, limits)
    return _optimised(replace(given, parameters=given.parameters | by.parameters), by.weights())


def budget_plans(option: str, value: Any, limits: PlacementLimits, by: BalancedBy) -> BudgetPlanner:  # noqa: ANN401 - as above
    """Return the plans by load that budgets allow; raise UsageError for options that name one plan."""
    _refuse_contradictions(option, limits, by)
    if by.loads is None:
        raise UsageError("--pareto shows plans by load: give --by-load, too")
    if by.loads.max_bytes is not None:
        raise UsageError("--pareto shows the plans of several budgets: leave out --budget")
    given = _stated(option, value, limits)
    loads = replace(by.loads, factor=given.request.goal.replication_factor)

    def read(tables: PlanningTables) -> BudgetPlans:
        given.refuse_unable(tables)
        return plans_by_budget(tables, given.request, loads)

    return read


def _stated(option: str, value: Any, limits: PlacementLimits) -> StatedRequest:  # noqa: ANN401 - as above
    given = read_request(option, value, limits)
    if limits.within is not None and not given.request.goal.even:
        raise UsageError(f"--within is for goals that even brokers: {option} moves only what it must")
    return given


def _refuse_contradictions(option: str, limits: PlacementLimits, by: BalancedBy) -> None:
    if limits.within is not None and not by.options:
        raise UsageError("--within is for plans that even bytes or loads: give --by-load, --by-size or --sizes too")
    if len(by.options) > 1:
        raise UsageError(f"{' and '.join(by.options)} exclude each other: a plan evens one of them")
    if by.options and option in _EXPLICIT:
        raise UsageError(f"{option} takes targets as they are: leave out {by.options[0]}")


def _optimised(given: StatedRequest, weights: Weights | MeasuredLoads | None) -> Planner:
    request = given.request
    factor = request.goal.replication_factor is not None
    if isinstance(weights, MeasuredLoads):
        weights = replace(weights, factor=request.goal.replication_factor)
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
