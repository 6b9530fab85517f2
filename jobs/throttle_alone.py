"""A closed plan's throttle: its replicas may still move, for a cancellation lets go on what it must not turn back.

Nothing is asked for any more; the rate can be changed, and what stood before comes back once nothing moves.
"""

from jobs.adapters.cluster import read_cluster
from jobs.adapters.zookeeper import connected
from jobs.commit_admin import end_throttle
from jobs.leasing import UnderLease, lease_for
from jobs.limits import refuse_other_cluster
from jobs.modes import admin_of
from jobs.moving import moving_of
from jobs.plans import Plan
from jobs.settings import Settings
from jobs.throttles import set_throttle, throttle_rows


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
