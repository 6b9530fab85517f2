"""
### Recover offline partitions

Runs after each snapshot with newly offline partitions, or manually. Clean elections are committed at once in any mode.
This commit has a separate pool, because a repair must not wait for a reassignment that takes hours.

If no ISR member of a partition is live, an election may lose records. Such elections are planned by the evidence of
earlier snapshots and shown with it in the log of `show`. They are not committed without approval.
**Before you approve, consider that no record is lost if a broker can be started again.** If the plan is rejected, or
without a response within a day, nothing is written, and the partitions stay offline.
"""

from airflow.sdk import task
from surveyor_dags import PLAN, SNAPSHOT_ID, has_changes, needs_unclean, offline_asset, surveyor_dag
from surveyor_operators import (
    CommitOperator,
    PlanApprovalOperator,
    PlanCompleteSensor,
    PlanOperator,
    RunSnapshotOperator,
    SurveyorOperator,
)
from surveyor_settings import REPAIR_POOL, clusters

UNCLEAN = f"{PLAN}.unclean"


for cluster in clusters():
    with surveyor_dag(
        "recover",
        cluster,
        description="Elect leaders of offline partitions; unclean elections need an approval",
        schedule=[offline_asset(cluster)],
        max_active_runs=16,  # runs that wait for an approval must not delay other partitions
        doc_md=__doc__,
    ):
        snapshot = RunSnapshotOperator(task_id="snapshot", plan=PLAN)
        plan = PlanOperator(task_id="plan", question=["recover"], snapshot=SNAPSHOT_ID, plan=PLAN)
        due = task.short_circuit(task_id="due")(has_changes)(plan.output)
        commit = CommitOperator(task_id="commit", plan=PLAN, pool=REPAIR_POOL, stale="skip")
        verify = PlanCompleteSensor(task_id="verify", plan=PLAN, poke_interval=5.0, timeout=600.0)

        rejections = SurveyorOperator(task_id="rejections", command=["show", "rejections", PLAN])
        unclean_due = task.short_circuit(task_id="unclean_due")(needs_unclean)(rejections.output)
        plan_unclean = PlanOperator(
            task_id="plan_unclean", question=["recover", "--allow-unclean"], snapshot=SNAPSHOT_ID, plan=UNCLEAN
        )
        show = SurveyorOperator(task_id="show", command=["show", "plan", UNCLEAN], shown=True)
        approve = PlanApprovalOperator(
            task_id="approve",
            asked="elections that may lose records",
            plan_task="plan_unclean",
        )
        commit_unclean = CommitOperator(task_id="commit_unclean", plan=UNCLEAN, pool=REPAIR_POOL)
        verify_unclean = PlanCompleteSensor(task_id="verify_unclean", plan=UNCLEAN, poke_interval=5.0, timeout=600.0)

        snapshot >> plan >> rejections
        due >> commit >> verify
        unclean_due >> plan_unclean >> show >> approve >> commit_unclean >> verify_unclean
