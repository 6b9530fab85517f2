"""The names of plans: a plan may have several, a name is one plan's.

A name is never given away silently: whoever plans under a name that another snapshot's plan has is told so, or an
incident of today would be answered by the plan of yesterday. `name` in `plans` is the first of `names`.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import pyarrow as pa

from jobs.adapters.delta.warehouse import Row, Warehouse, as_rows
from jobs.core.errors import RefusedError, UsageError
from schemas.digest import ID_LENGTH
from schemas.enums import PlanKind

_UNUSABLE: Final = re.compile(rf"\s*|-.*|[0-9a-f]{{{ID_LENGTH}}}")
"""Nothing; what looks like an option; and what may be another plan's id, which comes before names."""

_EVERY_PLAN: Final = ("snapshot_id", ">=", 0)


@dataclass(frozen=True, slots=True)
class Alias:
    """The name a plan is to have; `moves`: another plan that has it loses it."""

    name: str | None = None
    moves: bool = False

    def __post_init__(self) -> None:
        """Raise UsageError for a name that no command would take for the plan."""
        if self.name is not None and (not self.name.isprintable() or _UNUSABLE.fullmatch(self.name)):
            raise UsageError(
                f"--name {self.name!r} cannot be the name of a plan: give it one of printable characters that begins "
                f"with no dash, and that is not an id ({ID_LENGTH} of 0-9 and a-f)",
            )


def names_of(plan: Row) -> list[str]:
    """Return a plan's names, the first one first; a table of an older version knows one at most.

    >>> names_of({"name": "a", "names": ["a", "b"]}), names_of({"name": "a"}), names_of({"name": None, "names": None})
    (['a', 'b'], ['a'], [])
    """
    return list(plan.get("names") or ([plan["name"]] if plan["name"] else []))


def plan_named(lake: Warehouse, name: str | None) -> Row | None:
    """Return the plan that has a name, None where none has; raise RefusedError where somebody gave it to several."""
    if name is None:
        return None
    plans = lake.read("plans")
    light = plans.select([column for column in ("name", "names") if column in plans.column_names])
    at = [number for number, row in enumerate(light.to_pylist()) if name in names_of(row)]
    if not at:
        return None
    namesakes = as_rows(plans.take(at))
    if len(namesakes) > 1:
        ids = ", ".join(sorted(plan["plan_id"] for plan in namesakes))
        raise RefusedError(f"the name {name!r} is that of several plans, {ids}: say which by its id")
    return namesakes[0]


def give_name(lake: Warehouse, plan_id: str, alias: Alias) -> Row:
    """Give a plan a name beside those it has, and return its row; refused where another plan has it and keeps it."""
    given: list[Row] = []

    def renamed(table: pa.Table) -> pa.Table:
        plans = [_renamed(plan, plan_id, alias) for plan in as_rows(table)]
        given[:] = [plan for plan in plans if plan["plan_id"] == plan_id]
        return pa.Table.from_pylist(plans, schema=table.schema)

    lake.transform_rows("plans", _EVERY_PLAN, renamed)
    if not given:
        raise RefusedError(
            f"plan {plan_id} finds nothing to change, and a newer one took its place meanwhile; plan again"
        )
    return given[0]


def _renamed(plan: Row, plan_id: str, alias: Alias) -> Row:
    names = names_of(plan)
    if alias.name and plan["plan_id"] == plan_id:
        names = [*(name for name in names if name != alias.name), alias.name]
    elif alias.name in names:
        if not alias.moves:
            raise RefusedError(f"{_taken(plan, alias.name)}; give this plan another --name, or {MOVE}")
        names.remove(alias.name)
    return {**plan, "name": names[0] if names else None, "names": names}


MOVE: Final = "--replace-name, which takes the name from that plan"


def refuse_older(named: Row, name: str, newest: int) -> None:
    """Raise RefusedError if the plan that has the name is on an older snapshot than the newest."""
    if named["snapshot_id"] < newest:
        raise RefusedError(
            f"{_taken(named, name)}, and snapshot {newest} is newer: nothing was planned. Give another --name; or "
            f"--snapshot {named['snapshot_id']} for the same plan again; or {MOVE}, to plan on snapshot {newest}",
        )


def refuse_refresh(named: Row, name: str) -> NoReturn:
    """Raise RefusedError: a snapshot that is still to be taken is newer than that of any plan."""
    raise RefusedError(
        f"{_taken(named, name)}, and --refresh would plan on a newer one: no snapshot was taken, nothing was planned. "
        f"Give another --name, or {MOVE}",
    )


def refuse_other_question(
    named: Row, name: str, kind: PlanKind, parameters: dict[str, Any], snapshot_id: int | None
) -> None:
    """Raise RefusedError unless the plan that has the name was asked for in the same words, on that snapshot if any."""
    same = (named["kind"], named["parameters"]) == (kind.value, written(parameters))
    if not same or snapshot_id not in {None, named["snapshot_id"]}:
        raise RefusedError(
            f"{_taken(named, name)}, asked for with {_question(named)}; ask for the same, give this plan another "
            f"--name, or {MOVE}",
        )


def _taken(plan: Row, name: str) -> str:
    return f"the name {name!r} is taken by plan {plan['plan_id']}: {plan['kind']} on snapshot {plan['snapshot_id']}"


def _question(plan: Row) -> str:
    """What was asked, without what came of it."""
    return written({key: value for key, value in json.loads(plan["parameters"]).items() if key != "figures"})


def written(parameters: dict[str, Any]) -> str:
    """Write what was asked as the table has it."""
    return json.dumps(parameters, sort_keys=True)
