"""
### Partitions that nobody leads

After each snapshot that shows newly offline partitions, or by hand. Leaders that lose nothing are given at once, in
whatever mode it takes: this commit is not in the pool, for a repair must not wait for a move of hours.

For partitions of which no member of the ISR is alive an election may lose records. It is planned, by the evidence of
earlier snapshots, and shown with that evidence in the log of `show`; nothing happens until somebody approves it.
**Before you approve: a broker that can be started again loses nothing.** Rejected or not answered within a day, nothing
is written, and the partitions stay offline.
"""

from airflow.sdk import task
from surveyor_dags import (
    PLAN,
    SNAPSHOT_ID,
    has_changes,
    needs_unclean,
    offline_asset,
    surveyor_dag,
)
from surveyor_operators import (
    CommitOperator,
    PlanApproval,
    PlanComplete,
    PlanOperator,
    SnapshotOfRun,
    SurveyorOperator,
)
from surveyor_settings import REPAIR_POOL, clusters

UNCLEAN = f"{PLAN}.unclean"


def recover(cluster: str | None) -> None:
    """Define the DAG of a cluster."""
    with surveyor_dag(
        "recover",
        cluster,
        description="Leaders for offline partitions; unclean ones once they are approved",
        schedule=[offline_asset(cluster)],
        max_active_runs=16,  # those that wait for an approval must not hold up other partitions
        doc_md=__doc__,
    ):
        snapshot = SnapshotOfRun(task_id="snapshot", plan=PLAN)
        plan = PlanOperator(task_id="plan", question=["recover"], snapshot=SNAPSHOT_ID, plan=PLAN)
        due = task.short_circuit(task_id="due")(has_changes)(plan.output)
        commit = CommitOperator(task_id="commit", plan=PLAN, pool=REPAIR_POOL, stale="skip")
        verify = PlanComplete(task_id="verify", plan=PLAN, poke_interval=5.0, timeout=600.0)

        rejections = SurveyorOperator(task_id="rejections", command=["show", "rejections", PLAN])
        unclean_due = task.short_circuit(task_id="unclean_due")(needs_unclean)(rejections.output)
        plan_unclean = PlanOperator(
            task_id="plan_unclean", question=["recover", "--allow-unclean"], snapshot=SNAPSHOT_ID, plan=UNCLEAN
        )
        show = SurveyorOperator(task_id="show", command=["show", "plan", UNCLEAN], shown=True)
        approve = PlanApproval(
            task_id="approve",
            asked="elections that may lose records",
            plan_task="plan_unclean",
        )
        commit_unclean = CommitOperator(task_id="commit_unclean", plan=UNCLEAN, pool=REPAIR_POOL)
        verify_unclean = PlanComplete(task_id="verify_unclean", plan=UNCLEAN, poke_interval=5.0, timeout=600.0)

        snapshot >> plan >> rejections
        due >> commit >> verify
        unclean_due >> plan_unclean >> show >> approve >> commit_unclean >> verify_unclean


for each in clusters():
    recover(each)
