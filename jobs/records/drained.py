"""Which brokers are drained: recorded when the commit of a drain begins, struck out when that of an undrain is done.

In between they are never elected, by no plan. A crash leaves a broker drained for too long rather than too short a
time; committing the plan again ends it. A drain in resident mode also ends when another controller takes over, which
starts the replicas again (`KafkaController.onControllerFailover`): the next snapshot sees its epoch.
"""

import json
from datetime import UTC, datetime

from jobs.adapters.delta.lake import Lake, Row
from schemas.names import DrainMode, PlanKind


def drained_brokers(lake: Lake) -> set[int]:
    """Brokers drained now: they keep what they hold, and get nothing."""
    return {row["broker_id"] for row in lake.rows("drained")}


def mark(lake: Lake, plan: Row, controller_epoch: int | None = None) -> bool:
    """Record the brokers of a drain, and under which controller epoch; return whether the plan is one."""
    if plan["kind"] != PlanKind.DRAIN:
        return False
    parameters = json.loads(plan["parameters"])
    common = {"mode": parameters["mode"], "plan_id": plan["plan_id"], "since": datetime.now(UTC)}
    rows = [{"broker_id": b, **common, "controller_epoch": controller_epoch} for b in parameters["brokers"]]
    lake.replace("drained", rows, _these(parameters["brokers"]))
    return True


def strike_out(lake: Lake, plan: Row) -> bool:
    """Take the brokers of an undrain out again; return whether the plan is one."""
    if plan["kind"] != PlanKind.UNDRAIN:
        return False
    lake.delete("drained", _these(json.loads(plan["parameters"])["brokers"]))
    return True


def strike_out_ended(lake: Lake, controller_epoch: int | None) -> list[int]:
    """Take out, and return, those whose drain in resident mode a later controller has ended; it has this epoch or less.

    A mark without an epoch is one of a commit that handed back at once.
    """
    if controller_epoch is None:
        return []
    resident = (row for row in lake.rows("drained") if row["mode"] == DrainMode.RESIDENT)
    ended = sorted(row["broker_id"] for row in resident if (row["controller_epoch"] or 0) < controller_epoch)
    if ended:
        lake.delete("drained", _these(ended))
    return ended


def _these(broker_ids: list[int]) -> str:
    return f"broker_id IN ({', '.join(map(str, broker_ids))})"
