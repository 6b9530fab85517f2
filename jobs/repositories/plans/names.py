"""The names of plans: a plan may have several. A name is taken from another plan only on request.

Planning under a name that a plan on another snapshot has is refused. Otherwise a command could silently use yesterday's
plan for today's incident. If several plans have the same name anyway, a lookup by it is refused. The column `name` of
`plans` is the first of `names`.
"""

import re
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from msgspec.structs import replace

from jobs.adapters.delta.warehouse import Warehouse, decode_rows
from jobs.core.errors import RefusedError, UsageError
from jobs.repositories.plans.plan_rows import parameters_json
from jobs.repositories.plans.plans_writer import rename_plans
from schemas.enums import PlanKind
from schemas.plan_digest import ID_LENGTH
from schemas.rows import PlanRecord

_UNUSABLE: Final = re.compile(rf"\s*|-.*|[0-9a-f]{{{ID_LENGTH}}}")
"""Blank text, text that looks like an option, and text that looks like a plan id; ids are looked up before names."""


@dataclass(frozen=True, slots=True)
class Alias:
    """The name to give to a plan; with `replaces`, a plan that already has the name loses it."""

    name: str | None = None
    replaces: bool = False

    def __post_init__(self) -> None:
        """Raise UsageError for a name that commands would not accept as a plan."""
        if self.name is not None and (not self.name.isprintable() or _UNUSABLE.fullmatch(self.name)):
            raise UsageError(
                f"--name {self.name!r} cannot be the name of a plan: use printable characters, no leading dash, "
                f"and not the form of an id ({ID_LENGTH} of 0-9 and a-f)",
            )


def plan_named(warehouse: Warehouse, name: str | None) -> PlanRecord | None:
    """Return the plan that has a name, or None; raise RefusedError if several plans have it."""
    if name is None:
        return None
    plans = warehouse.read("plans")
    firsts = plans["name"].to_pylist()
    names = plans["names"].to_pylist() if "names" in plans.column_names else [None] * len(firsts)
    at = [number for number, first in enumerate(firsts) if name in (names[number] or [first])]
    if not at:
        return None
    namesakes = decode_rows(PlanRecord, plans.take(at))
    if len(namesakes) > 1:
        ids = ", ".join(sorted(plan.plan_id for plan in namesakes))
        raise RefusedError(f"the name {name!r} belongs to several plans, {ids}: give the id of one of them")
    return namesakes[0]


def give_name(warehouse: Warehouse, plan_id: str, alias: Alias) -> PlanRecord:
    """Add a name to a plan and return its row; raise RefusedError if another plan has the name and keeps it."""
    given: list[PlanRecord] = []

    def renamed(stored: list[PlanRecord]) -> list[PlanRecord]:
        plans = [_renamed(plan, plan_id, alias) for plan in stored]
        given[:] = [plan for plan in plans if plan.plan_id == plan_id]
        return plans

    rename_plans(warehouse, renamed)
    if not given:
        raise RefusedError(
            f"plan {plan_id} has nothing to change and was replaced by a newer plan in the meantime; plan again"
        )
    return given[0]


def _renamed(plan: PlanRecord, plan_id: str, alias: Alias) -> PlanRecord:
    names = plan.all_names
    if alias.name and plan.plan_id == plan_id:
        names = [*(name for name in names if name != alias.name), alias.name]
    elif alias.name in names:
        if not alias.replaces:
            raise RefusedError(
                f"{_name_taken(plan, alias.name)}; give this plan another --name, or {REPLACE_NAME_HINT}"
            )
        names = [name for name in names if name != alias.name]
    return replace(plan, name=names[0] if names else None, names=names)


REPLACE_NAME_HINT: Final = "--replace-name, which removes the name from that plan"


def refuse_older(plan: PlanRecord, name: str, newest: int) -> None:
    """Raise RefusedError if the plan with this name is based on a snapshot older than the newest."""
    if plan.snapshot_id < newest:
        raise RefusedError(
            f"{_name_taken(plan, name)}, and snapshot {newest} is newer: nothing was planned. Give another --name; or "
            f"--snapshot {plan.snapshot_id} for the same plan again; "
            f"or {REPLACE_NAME_HINT}, to plan on a newer one",
        )


def refuse_refresh(plan: PlanRecord, name: str) -> NoReturn:
    """Raise RefusedError, because the snapshot that --refresh takes is newer than the snapshot of any stored plan."""
    raise RefusedError(
        f"{_name_taken(plan, name)}, and --refresh would plan on a newer one: no snapshot was taken, "
        f"nothing was planned. Give another --name, or {REPLACE_NAME_HINT}",
    )


def refuse_other_parameters(
    named: PlanRecord, name: str, kind: PlanKind, parameters: dict[str, Any], snapshot_id: int | None
) -> None:
    """Raise RefusedError unless the plan with this name has the same kind, parameters and, if given, snapshot."""
    same = (named.kind, named.parameters) == (kind.value, parameters_json(parameters))
    if not same or snapshot_id not in {None, named.snapshot_id}:
        raise RefusedError(
            f"{_name_taken(named, name)}, with the parameters {_stated_parameters(named)}; give the same "
            f"parameters, give this plan another --name, or {REPLACE_NAME_HINT}",
        )


def _name_taken(plan: PlanRecord, name: str) -> str:
    return f"the name {name!r} is taken by plan {plan.plan_id}: {plan.kind} on snapshot {plan.snapshot_id}"


def _stated_parameters(plan: PlanRecord) -> str:
    """The parameters given by the user, without the figures of the result."""
    return parameters_json({key: value for key, value in plan.options.items() if key != "figures"})
