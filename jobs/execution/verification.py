"""Verification of a plan: how far it has come, change by change and byte by byte, as the cluster shows it now.

A plan that is found complete is recorded as complete. So verification writes to the warehouse, but never to the
cluster.
"""

from jobs.adapters.sinks.interface import Sink
from jobs.console_output.verification import Verification
from jobs.core.errors import SurveyorError
from jobs.execution.copy_progress import measure
from jobs.execution.rolled_back import close_rolled_back
from jobs.preconditions.verification import current_evenness, verify_plan
from jobs.repositories.figures import Figures, figures_in
from jobs.repositories.plans.commit_log import note_verified
from jobs.repositories.plans.repository import Plan, read_plan
from jobs.repositories.warehouse_status import throttled_plans
from jobs.runtime.settings import Settings


def verify_stored(settings: Settings, name: str, interval: float, *, in_full: bool) -> Verification:
    """Read how far a stored plan has come, and record it as complete if it is.

    `in_full` also measures what is being copied, in two readings `interval` seconds apart, and how evenly brokers are
    used.
    """
    plan = read_plan(settings.warehouse, name)
    with settings.sink as sink:
        with sink.reading() as reader:
            reader.sync()
            current, operations = reader.read_current(plan.changes), reader.read_operations(plan.tasks)
            verification = Verification(plan, verify_plan(plan, current, operations), current.partitions)
            if verification.is_complete:
                note_verified(settings.warehouse, plan)
                if unmarked := close_rolled_back(reader, settings, plan):
                    verification.warnings.append(unmarked)
        verification.throttled = plan.plan_id in throttled_plans(settings.warehouse)
        if in_full:
            try:
                verification.copying = measure(sink, settings, verification.moving, interval)
            except SurveyorError as error:
                verification.warnings.append(f"how much is copied is unknown: {error}")
            verification.evenness = _evenness_now(settings, sink, plan)
    return verification


def _evenness_now(settings: Settings, sink: Sink, plan: Plan) -> Figures | None:
    if "brokers_counted" not in figures_in(plan.row):
        return None
    with sink.reading() as reader:
        reader.sync()
        current = reader.read_partitions([change.key for change in plan.changes])
    return current_evenness(settings.warehouse, plan, current)
