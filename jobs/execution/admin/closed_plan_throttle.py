"""A closed plan's throttle: its replicas may still move, for a cancellation lets go on what it must not turn back.

Nothing is asked for any more; the rate can be changed, and what stood before comes back once nothing moves.
"""

from jobs.adapters.zookeeper.cluster import read_cluster
from jobs.adapters.zookeeper.connection import connected
from jobs.assessment.limits import refuse_other_cluster
from jobs.assessment.moving import moving_of
from jobs.execution.admin.commit import end_throttle
from jobs.execution.admin.lease import UnderLease, lease_for
from jobs.execution.admin.throttles import set_throttle, throttle_rows
from jobs.execution.modes import admin_of
from jobs.records.plans import Plan
from jobs.runtime.settings import Settings


def look_after(settings: Settings, plan: Plan, rate: int | None) -> int:
    """Set the rate, if one is given, or put back what stood before; return how many partitions still move."""
    with connected(settings.zookeeper) as client:
        state = read_cluster(client, settings.zookeeper)
    refuse_other_cluster(settings, plan, state)
    with lease_for(settings, plan.plan_id, "commit") as lease, admin_of(settings, state) as admin:
        throttler = UnderLease(admin, lease)
        moving = moving_of(settings, plan)
        if moving and rate is not None:
            set_throttle(settings, throttler, plan.plan_id, moving, rate)
        elif throttle_rows(settings.lake, plan.plan_id):
            end_throttle(settings, plan, throttler)
    return len(moving)
