"""Output of `surveyor whatif --lose`: the impact of each loss, the worst first, and the partitions concerned."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from jobs.repositories.snapshots import with_age
from jobs.runtime.console import CommandResult, Result, table
from jobs.runtime.fleet import FleetSummary
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import Suggestion, suggestion
from schemas.enums import FailureScenario
from schemas.rows import LossImpact, Snapshot
from schemas.text import MAX_PARTITIONS_NAMED, pluralise

SCENARIO_COLUMNS: Final = (
    "scenario",
    "newly_offline",
    "unclean_only",
    "newly_under_min_isr",
    "leaders_moved",
    "max_leaders",
    "most_leaders_on",
)
"""Columns of the console; --json and the table `whatif` also have the values before any loss."""

MAX_PARTITIONS_IN_JSON: Final = 100
"""Partitions named in a row of --json, per cost."""

COSTS: Final = {
    "newly_offline": "offline",
    "newly_under_min_isr": "under min ISR",
}
"""Counts whose partitions are named on the console, and how they are called there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """The impact of each loss of a kind on a snapshot, the worst first."""

    snapshot: Snapshot
    loss: str
    """A FailureScenario, or the brokers that are lost together."""
    impacts: Sequence[LossImpact]
    named_partitions: Sequence[Mapping[str, list[str]]]
    """The first partitions counted, by cost, of the impacts that the console shows."""
    crowded: int
    """Partitions with more replicas in one rack than necessary."""
    warnings: Sequence[str]

    @property
    def scenarios_offline(self) -> int:
        """The number of losses that take partitions offline."""
        return sum(impact.newly_offline > 0 for impact in self.impacts)

    @property
    def may_spread(self) -> bool:
        """Whether a plan could spread replicas over racks."""
        return self.crowded > 0 and self.loss == FailureScenario.RACKS


def losses_result(settings: Settings, losses: Losses, at: Sequence[str], *, everything: bool) -> CommandResult:
    """Return what the command shows; `at` are the options of a suggestion for the same snapshot."""
    impacts = losses.impacts
    rows = [_row(losses, number) for number in range(len(impacts))]
    shown = impacts[: len(losses.named_partitions)]
    result = {
        "snapshot_id": losses.snapshot.snapshot_id,
        "taken_at": losses.snapshot.taken_at,
        "lose": losses.loss,
        "scenarios": len(rows),
        "scenarios_offline": losses.scenarios_offline,
        "crowded": losses.crowded,
        "warnings": losses.warnings,
        "rows": rows,
    }
    title = f"{settings.cluster}, snapshot {losses.snapshot.snapshot_id}, losing {losses.loss}"
    left = len(rows) - len(shown)
    lines = [
        table(title, SCENARIO_COLUMNS, rows[: len(shown)]),
        *([f"... and {left} more; --limit shows more, --json gives all"] if left else []),
        *_cost_lines(shown, losses.named_partitions, everything=everything),
        f"{losses.scenarios_offline} of {len(rows)} scenarios take partitions offline",
        with_age(losses.snapshot),
        *(_crowded_lines(losses.crowded) if losses.may_spread else ()),
        *(f"warning: {warning}" for warning in losses.warnings),
    ]
    return CommandResult(result, *lines, steps=[*_suggestions(settings, losses, at)], warnings=losses.warnings)


def _row(losses: Losses, number: int) -> Result:
    """Return an impact as JSON, with the partitions concerned if they are known."""
    columns, named = losses.impacts[number].columns(), losses.named_partitions
    return columns | ({"partitions": named[number]} if number < len(named) else {})


def _fleet_figures(result: Result) -> Result:
    """Return the number of scenarios, and the figures of the worst one."""
    worst: Result = next(iter(result["rows"]), {})
    figures = {name: worst.get(name) for name in SCENARIO_COLUMNS}
    return {
        "snapshot_id": result["snapshot_id"],
        "scenarios_offline": result["scenarios_offline"],
        "scenarios": result["scenarios"],
        **figures,
    }


WHATIF_SUMMARY: Final = FleetSummary(
    title="whatif",
    figures=_fleet_figures,
    shown=("snapshot_id", "scenarios_offline", *SCENARIO_COLUMNS[:4]),
    worst_by=("newly_offline", "scenarios_offline", "newly_under_min_isr"),
)


def _suggestions(settings: Settings, losses: Losses, at: Sequence[str]) -> Iterator[Suggestion]:
    """Yield suggestions about the worst loss, if it takes partitions offline."""
    worst = next(iter(losses.impacts), None)
    if worst is None or not worst.newly_offline:
        if losses.may_spread:
            yield suggestion(settings, "spread over racks", "plan", "reassign", "--fix-racks")
        return
    if worst.unclean_only:
        yield suggestion(settings, "show lagging replicas", "show", "partitions", "--under-replicated", *at)
    for broker in worst.lost[:1]:
        yield suggestion(settings, "show its partitions", "show", "partitions", "--broker", str(broker), *at)
    if losses.loss == FailureScenario.RACKS:
        yield suggestion(settings, "spread over racks", "plan", "reassign", "--fix-racks")


def _cost_lines(
    impacts: Sequence[LossImpact], named: Sequence[Mapping[str, list[str]]], *, everything: bool
) -> Iterator[str]:
    """Yield a line per scenario and cost with the partitions concerned."""
    for impact, partitions in zip(impacts, named, strict=True):
        for cost, phrase in COSTS.items():
            names = partitions[cost] if everything else partitions[cost][:MAX_PARTITIONS_NAMED]
            if names:
                count: int = getattr(impact, cost)
                topics = len({name.rpartition("-")[0] for name in partitions[cost]})
                extent = "" if topics == 1 else f" of {'at least ' * (count > MAX_PARTITIONS_IN_JSON)}{topics} topics"
                others = f" and {count - len(names)} more (--all-partitions)" if count > len(names) else ""
                counted = f"{pluralise(count, 'partition')}{extent}"
                yield f"  {impact.scenario}: {counted} {phrase}: {', '.join(names)}{others}"


def _crowded_lines(crowded: int) -> Iterator[str]:
    have = pluralise(crowded, "partition", "has", "have")
    yield f"{have} more replicas in one rack than necessary: `plan reassign --fix-racks` spreads them"
