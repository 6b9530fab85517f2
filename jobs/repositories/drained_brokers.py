"""Drained brokers: marked when the commit of a drain starts, unmarked when the commit of an undrain is complete.

In between, a drained broker is elected only if no other replica is in sync. After a crash a broker may stay marked for
too long, but never for too short a time; committing the plan again corrects it. A drain in resident mode also ends when
the broker registers again or another controller takes over, because both start the stopped replicas
(`KafkaController.onBrokerStartup`, `onControllerFailover`).
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from jobs.adapters.delta.warehouse import Warehouse, quote_literal
from schemas.enums import DrainMode
from schemas.rows import Broker, DrainedBroker, PlanRecord
from schemas.text import join_ids

NOT_REGISTERED: Final = -1
"""Broker epoch of a mark if the broker was not registered."""


def drained_brokers(warehouse: Warehouse) -> set[int]:
    """Return the ids of drained brokers; they keep their replicas and receive no new ones."""
    return {row.broker_id for row in warehouse.typed_rows(DrainedBroker)}


def able_brokers(live: Iterable[Broker], excluded: Collection[int]) -> set[int]:
    """Return the brokers that share the load, as in plans by load: live, understood, and not excluded.

    Drained brokers are to be excluded. If all live brokers are, these are returned.
    """
    understood = {row.broker_id for row in live if row.understood}
    return understood.difference(excluded) or understood


def add(
    warehouse: Warehouse,
    plan: PlanRecord,
    controller_epoch: int | None = None,
    broker_epochs: Mapping[int, int | None] | None = None,
) -> bool:
    """Mark the brokers of a drain plan as drained, with their epochs; return whether the plan is a drain.

    `broker_epochs` are the epochs of the brokers registered when the commit starts.
    """
    if not plan.traits.drains:
        return False
    parameters, epochs = plan.options, broker_epochs or {}
    common = {
        "mode": parameters["mode"],
        "plan_id": plan.plan_id,
        "since": datetime.now(UTC),
        "controller_epoch": controller_epoch,
    }
    brokers = parameters["brokers"]
    rows = [{"broker_id": b, **common, "broker_epoch": epochs.get(b, NOT_REGISTERED)} for b in brokers]
    warehouse.ensure_columns("drained")
    warehouse.replace("drained", rows, _broker_condition(brokers))
    return True


def brokers_to_mark(warehouse: Warehouse, plan: PlanRecord) -> list[int]:
    """Return the brokers that a commit of the plan would mark as drained, or of which it would delete the mark."""
    if not plan.traits.changes_drained:
        return []
    brokers, mode = set(plan.options["brokers"]), plan.options.get("mode")
    marked = {row.broker_id for row in warehouse.typed_rows(DrainedBroker) if mode in {None, row.mode}}
    return sorted(brokers - marked if plan.traits.drains else brokers & marked)


def remove(warehouse: Warehouse, plan: PlanRecord) -> bool:
    """Delete the marks of the brokers of an undrain plan; return whether the plan is an undrain."""
    if not plan.traits.undrains:
        return False
    warehouse.delete("drained", _broker_condition(plan.options["brokers"]))
    return True


def has_registered_again(mark: DrainedBroker, registered: Mapping[int, int | None]) -> bool:
    """Return whether a resident drain has ended because the broker registered again with a later broker epoch.

    `registered` maps brokers to their epochs. The rule is the same as in `planner.columns.broker_sets.with_drained`. A
    mark of an older version has no epoch and does not end.
    """
    epoch, now = mark.broker_epoch, registered.get(mark.broker_id)
    return mark.mode == DrainMode.RESIDENT and epoch is not None and now is not None and epoch < now


def remove_expired(
    warehouse: Warehouse, controller_epoch: int | None, registered: Mapping[int, int | None]
) -> dict[int, str]:
    """Delete the marks of resident drains that have ended; return the reason by broker.

    `controller_epoch` is the current controller's epoch, and `registered` maps brokers to their epochs. A mark without
    a controller epoch was written by a commit that released the controllership at once.
    """
    ended = {}
    for row in warehouse.typed_rows(DrainedBroker) if warehouse.has("drained") else ():
        if has_registered_again(row, registered):
            ended[row.broker_id] = "the broker registered again"
        elif row.mode == DrainMode.RESIDENT and (row.controller_epoch or 0) < (controller_epoch or 0):
            ended[row.broker_id] = "another controller took over"
    if ended:
        warehouse.delete("drained", _broker_condition(sorted(ended)))
    return dict(sorted(ended.items()))


def delete_marks(warehouse: Warehouse, marks: Iterable[DrainedBroker]) -> None:
    """Delete these marks, but not marks of a later drain of the same brokers."""
    conditions = [f"(broker_id = {row.broker_id} AND broker_epoch = {row.broker_epoch})" for row in marks]
    if conditions:
        warehouse.delete("drained", " OR ".join(conditions))


def expired_drain_lines(ended: Mapping[int, str]) -> list[str]:
    """Return a log line for each resident drain that has ended, with the reason."""
    return [
        f"surveyor: broker {broker} is no longer drained: {reason}. Its replicas start again"
        for broker, reason in ended.items()
    ]


def carry_over(warehouse: Warehouse, before: int, now: int) -> None:
    """Move the marks of resident drains to the controller's new epoch, so that they do not expire."""
    resident_marks = f"mode = {quote_literal(DrainMode.RESIDENT.value)} AND controller_epoch = {before}"
    if warehouse.typed_rows(DrainedBroker, ("controller_epoch", "=", before)):
        warehouse.update("drained", resident_marks, controller_epoch=str(now))


def _broker_condition(broker_ids: list[int]) -> str:
    return f"broker_id IN ({join_ids(broker_ids)})"
