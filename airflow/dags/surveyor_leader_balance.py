"""
### Preferred leader elections

After each snapshot, elections of preferred replicas are planned, committed and verified. Most runs end after the plan,
because leadership is balanced, and skip the other tasks. They are also skipped if the preconditions of the plan no
longer hold when it is committed (exit code 21); the next snapshot triggers a new plan.

`settle` excludes brokers that joined recently, and `stable_for` replicas that were not in the ISR all the time. The
defaults are the settings `surveyor_settle` and `surveyor_stable_for`.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import task
from surveyor_dags import PLAN, has_changes, optional, options, plan_on_snapshot, snapshot_asset, surveyor_dag
from surveyor_operators import CommitOperator, PlanCompleteSensor
from surveyor_settings import clusters, settings

PARAMS = {
    "settle": optional("Skip brokers that joined less than this before the snapshot, as 10m, 2h."),
    "stable_for": optional("Require the replica to be in the ISR in this many snapshots.", "integer", minimum=1),
    "imbalance_threshold": optional(
        "Elect for brokers whose imbalance ratio is strictly above this.", "number", minimum=0
    ),
    "max_elections": optional(
        "Plan at most this many elections, for the most imbalanced brokers first.", "integer", minimum=1
    ),
}


def leader_balance(cluster: str | None) -> None:
    """Define the DAG of a cluster."""
    with surveyor_dag(
        "leader_balance",
        cluster,
        description="Elect preferred leaders after each snapshot",
        schedule=[snapshot_asset(cluster)],
        params=PARAMS,
        doc_md=__doc__,
    ):

        @task
        def question(*, params: dict[str, Any]) -> list[str]:
            """Convert the parameters, with settings as defaults, to options of `plan elect`."""
            ours = settings(cluster)
            usual = {"settle": ours.settle, "stable_for": ours.stable_for}
            given = {name: usual.get(name) if params[name] is None else params[name] for name in PARAMS}
            named = {name.replace("_", "-"): value for name, value in given.items()}
            return ["elect", "--preferred", *options(named, *named)]

        due = task.short_circuit(task_id="due")(has_changes)(plan_on_snapshot(question()))
        commit = CommitOperator(task_id="commit", plan=PLAN, stale="skip")
        verify = PlanCompleteSensor(
            task_id="verify", plan=PLAN, poke_interval=5.0, timeout=timedelta(minutes=10).total_seconds()
        )
        due >> commit >> verify


for name in clusters():
    leader_balance(name)
