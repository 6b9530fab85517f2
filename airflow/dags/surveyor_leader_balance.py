"""
### Leaders back where they belong

After each snapshot: what would give preferred replicas their leaders back is planned, carried out and verified. Most
runs end after the plan, because brokers lead what they should: then the rest is skipped. So it is where the plan's
premises are gone by the time it is carried out (exit code 21): the next snapshot is planned anew.
"""

from datetime import timedelta

from airflow.sdk import DAG, task
from surveyor_dags import DEFAULTS, PLAN, SNAPSHOT, SNAPSHOT_ID, START, has_changes
from surveyor_operators import CommitOperator, PlanComplete, PlanOperator, SnapshotOfRun

with DAG(
    "surveyor_leader_balance",
    description="Give preferred replicas their leaders back, after each snapshot",
    schedule=[SNAPSHOT],
    start_date=START,
    catchup=False,
    max_active_runs=1,
    default_args=DEFAULTS,
    doc_md=__doc__,
    tags=["kafka", "surveyor"],
):
    snapshot = SnapshotOfRun(task_id="snapshot", plan=PLAN)
    plan = PlanOperator(task_id="plan", question=["elect", "--preferred"], snapshot=SNAPSHOT_ID, plan=PLAN)
    due = task.short_circuit(task_id="due")(has_changes)(plan.output)
    commit = CommitOperator(task_id="commit", plan=PLAN, stale="skip")
    verify = PlanComplete(task_id="verify", plan=PLAN, poke_interval=5.0, timeout=timedelta(minutes=10).total_seconds())

    snapshot >> plan
    due >> commit >> verify
