"""Which brokers are drained: recorded when the commit of a drain begins, struck out when that of an undrain is done.

In between they are elected only where no other replica is in sync. A crash leaves a broker drained for too long rather
than too short a time; committing the plan again ends it. A drain in resident mode also ends when the broker registers
again or another controller takes over: both start the replicas that it stopped (`KafkaController.onBrokerStartup`,
`onControllerFailover`).
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from jobs.adapters.delta.warehouse import Row, Warehouse, quoted
from schemas.enums import DrainMode, PlanKind

NOT_REGISTERED: Final = -1
"""Broker epoch of a mark whose broker had no registration."""


def drained_brokers(lake: Warehouse) -> set[int]:
    """Brokers drained now: they keep what they hold, and get nothing."""
    return {row["broker_id"] for row in lake.rows("drained")}


def add(
    lake: Warehouse, plan: Row, controller_epoch: int | None = None, broker_epochs: Mapping[int, int] | None = None
) -> bool:
    """Record the brokers of a drain, and under which epochs; return whether the plan is one.

    `broker_epochs` are those of the brokers that are registered as the commit begins.
    """
    if plan["kind"] != PlanKind.DRAIN:
        return False
    parameters, epochs = json.loads(plan["parameters"]), broker_epochs or {}
    common = {
        "mode": parameters["mode"],
        "plan_id": plan["plan_id"],
        "since": datetime.now(UTC),
        "controller_epoch": controller_epoch,
    }
    brokers = parameters["brokers"]
    rows = [{"broker_id": b, **common, "broker_epoch": epochs.get(b, NOT_REGISTERED)} for b in brokers]
    lake.ensure_columns("drained")
    lake.replace("drained", rows, _these(brokers))
    return True


def remove(lake: Warehouse, plan: Row) -> bool:
    """Take the brokers of an undrain out again; return whether the plan is one."""
    if plan["kind"] != PlanKind.UNDRAIN:
        return False
    lake.delete("drained", _these(json.loads(plan["parameters"])["brokers"]))
    return True


def has_registered_again(mark: Row, registered: Mapping[int, int]) -> bool:
    """Whether a resident drain has ended because its broker has a later broker epoch; `registered`: epochs by broker.

    The same rule as `planner.columns.broker_sets.with_drained`. A mark of an older version has no epoch and stays.
    """
    epoch, now = mark.get("broker_epoch"), registered.get(mark["broker_id"])
    return mark["mode"] == DrainMode.RESIDENT and epoch is not None and now is not None and epoch < now


def remove_expired(lake: Warehouse, controller_epoch: int | None, registered: Mapping[int, int]) -> dict[int, str]:
    """Delete the marks of resident drains that have ended; return why, by broker.

    `controller_epoch`: that of the present controller; `registered`: broker epochs. A mark without a controller epoch
    is one of a commit that handed back at once.
    """
    ended = {}
    for row in lake.rows("drained") if lake.has("drained") else ():
        if has_registered_again(row, registered):
            ended[row["broker_id"]] = "the broker registered again"
        elif row["mode"] == DrainMode.RESIDENT and (row["controller_epoch"] or 0) < (controller_epoch or 0):
            ended[row["broker_id"]] = "another controller took over"
    if ended:
        lake.delete("drained", _these(sorted(ended)))
    return dict(sorted(ended.items()))


def delete_marks(lake: Warehouse, marks: Iterable[Row]) -> None:
    """Delete these marks, and none that a later drain of the same broker made."""
    each = [f"(broker_id = {row['broker_id']} AND broker_epoch = {row['broker_epoch']})" for row in marks]
    if each:
        lake.delete("drained", " OR ".join(each))


def lines_of_ended(ended: Mapping[int, str]) -> list[str]:
    """Say which resident drains have ended, and why."""
    return [
        f"surveyor: broker {broker} is drained no more: {why}, and its replicas start" for broker, why in ended.items()
    ]


def carry_over(lake: Warehouse, before: int, now: int) -> None:
    """Let drains in resident mode go on under the epoch that their controller has now."""
    mine = f"mode = {quoted(DrainMode.RESIDENT.value)} AND controller_epoch = {before}"
    if lake.rows("drained", ("controller_epoch", "=", before)):
        lake.update("drained", mine, controller_epoch=str(now))


def _these(broker_ids: list[int]) -> str:
    return f"broker_id IN ({', '.join(map(str, broker_ids))})"
