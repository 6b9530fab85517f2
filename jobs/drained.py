"""Which brokers are drained: recorded when the commit of a drain begins, struck out when that of an undrain is done.

In between they are never elected, by no plan. A crash leaves a broker drained for too long rather than too short a
time; committing the plan again ends it.
"""

import json
from datetime import UTC, datetime

from jobs.adapters.lake import Lake, Row
from schemas.names import PlanKind


def mark(lake: Lake, plan: Row) -> bool:
    """Record the brokers of a drain; return whether the plan is one."""
    if plan["kind"] != PlanKind.DRAIN:
        return False
    asked = json.loads(plan["parameters"])
    common = {"mode": asked["mode"], "plan_id": plan["plan_id"], "since": datetime.now(UTC)}
    lake.replace("drained", [{"broker_id": b, **common} for b in asked["brokers"]], _these(asked["brokers"]))
    return True


def strike_out(lake: Lake, plan: Row) -> bool:
    """Take the brokers of an undrain out again; return whether the plan is one."""
    if plan["kind"] != PlanKind.UNDRAIN:
        return False
    lake.delete("drained", _these(json.loads(plan["parameters"])["brokers"]))
    return True


def _these(broker_ids: list[int]) -> str:
    return f"broker_id IN ({', '.join(map(str, broker_ids))})"
