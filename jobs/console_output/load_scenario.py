"""Output of `surveyor whatif` with --add, --remove or --growth: brokers before and after, bytes to copy, full disks."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from msgspec import Struct, convert
from msgspec.structs import asdict

from jobs.console_output.loads import NO_CAPACITY
from jobs.console_output.plan_figures import balance_lines, limit_warnings
from jobs.runtime.approval import warning_lines
from jobs.runtime.console import CommandResult, Line, Result, table
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import suggestion
from planner.load.resources import RESOURCES
from planner.placement.plan_figures import BalanceFigures, PlanFigures
from schemas.text import broker_list, join_ids, pluralise

COLUMNS: Final = (
    *("broker_id", "rack", "worst_before", "worst_after", "share_before", "share_after"),
    *("resource_after", "disk_full_before", "disk_full_after"),
)


class BrokerState(Struct, frozen=True, kw_only=True):
    """The load of a broker."""

    worst: float | None = None
    """The greatest load as a multiple of the broker's share after the change; None if it may hold no replicas."""
    share: float | None = None
    """The largest part of a capacity that is used; None if no capacity is known."""
    resource: str | None = None
    """The resource of that capacity."""
    disk_full: datetime | None = None


class ChangedBroker(Struct, frozen=True, kw_only=True):
    """A broker before and after a change."""

    broker_id: int
    rack: str | None
    before: BrokerState
    after: BrokerState

    @property
    def row(self) -> Result:
        """The columns of the broker."""
        sides = {"before": asdict(self.before), "after": asdict(self.after)}
        return {"broker_id": self.broker_id, "rack": self.rack} | {
            f"{name}_{side}": state[name] for name in asdict(self.before) for side, state in sides.items()
        }


class SimulatedCluster(Struct, frozen=True, kw_only=True):
    """A change of a cluster and its effects."""

    snapshot_id: int
    added: list[int]
    removed: list[int]
    growth: float
    """The share by which all loads grow."""
    days: int | None
    """The days in which they do."""
    loads: str
    """Where the loads are from."""
    capacities: list[str]
    """The resources of which some capacity is known."""
    worst_of: str
    """The share that `worst` is a multiple of, before and after."""
    load_balance: dict[str, Any] | None
    """The BalanceFigures of the plan that moves replicas."""
    brokers: list[ChangedBroker]
    warnings: list[str] = []
    """What happens to racks."""


def scenario_result(settings: Settings, simulated: SimulatedCluster) -> CommandResult:
    """Return what the command shows."""
    rows = [broker.row for broker in simulated.brokers]
    first = {side: _first_full(rows, f"disk_full_{side}") for side in ("before", "after")}
    about = {name: value for name, value in asdict(simulated).items() if name not in {"brokers", "warnings"}}
    fields: Result = {**about, "first_disk_full": first, "rows": rows}
    plan = ("plan", "reassign", "--remove-brokers", ",".join(map(str, simulated.removed)), "--by-load")
    steps = [suggestion(settings, "plan the removal", *plan)] if simulated.removed else []
    balance = simulated.load_balance
    figures = None if balance is None else PlanFigures(load_balance=convert(balance, BalanceFigures))
    warnings = [*simulated.warnings, *limit_warnings(figures)]
    lines = _lines(settings, simulated, figures, rows, first)
    return CommandResult(fields, *lines, *warning_lines(warnings), steps=steps, warnings=warnings)


def _first_full(rows: list[Result], column: str) -> Result | None:
    """Return the broker whose disk is the first to be full, None if no disk is."""
    full = sorted((row[column], row["broker_id"]) for row in rows if row[column] is not None)
    return {"broker_id": full[0][1], "at": full[0][0]} if full else None


def _lines(
    settings: Settings,
    simulated: SimulatedCluster,
    figures: PlanFigures | None,
    rows: list[Result],
    first: dict[str, Result | None],
) -> Iterator[Line]:
    title = (
        f"{settings.cluster}, snapshot {simulated.snapshot_id}, {_change(simulated)}, load from {simulated.loads}; "
        f"worst: multiples of {simulated.worst_of}"
    )
    columns = [name for name in COLUMNS if name == "broker_id" or any(row[name] is not None for row in rows)]
    yield table(title, columns, [{**row, **{name: _day(row[name]) for name in _DAYS}} for row in rows])
    if figures is not None:
        yield from balance_lines(figures)
    if any(first.values()):
        texts = ["none" if row is None else f"broker {row['broker_id']} on {_day(row['at'])}" for row in first.values()]
        yield f"first full disk: {' → '.join(texts)}"
    if not {*simulated.capacities} & {*RESOURCES}:
        yield NO_CAPACITY


_DAYS: Final = ("disk_full_before", "disk_full_after")


def _day(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment:%Y-%m-%d}"


def _change(simulated: SimulatedCluster) -> str:
    """Name the change.

    >>> common = {"snapshot_id": 1, "loads": "", "capacities": [], "worst_of": "", "load_balance": None, "brokers": []}
    >>> _change(SimulatedCluster(added=[6, 7], removed=[], growth=0.3, days=60, **common))
    'with 2 new brokers (6, 7), loads 30 % higher in 60 days'
    >>> _change(SimulatedCluster(added=[], removed=[3], growth=0.0, days=None, **common))
    'without broker 3'
    """
    changes = []
    if simulated.added:
        changes.append(f"with {pluralise(len(simulated.added), 'new broker')} ({join_ids(simulated.added)})")
    if simulated.removed:
        changes.append(f"without {broker_list(simulated.removed)}")
    if simulated.days is not None:
        changes.append(f"loads {100 * simulated.growth:.3g} % higher in {pluralise(simulated.days, 'day')}")
    return ", ".join(changes)
