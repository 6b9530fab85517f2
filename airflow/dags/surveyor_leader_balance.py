"""
### Leaders back where they belong

After each snapshot: what would give preferred replicas their leaders back is planned, carried out and verified. Most
runs end after the plan, because brokers lead what they should: then the rest is skipped. So it is where the plan's
premises are gone by the time it is carried out (exit code 21): the next snapshot is planned again.

`settle` leaves out brokers that joined a short time ago, `stable_for` replicas that were not in the ISR all along. What
a run is not given, the settings `surveyor_settle` and `surveyor_stable_for` say.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import task
from surveyor_dags import PLAN, has_changes, optional, options, planned, snapshot_asset, surveyor_dag
from surveyor_operators import CommitOperator, PlanComplete
from surveyor_settings import clusters, settings

PARAMS = {
    "settle": optional("Not onto brokers that joined less than this before the snapshot: 10m, 2h."),
    "stable_for": optional("Only replicas that were in the ISR in so many snapshots.", "integer", minimum=1),
    "imbalance_threshold": optional("For brokers whose ratio is strictly above.", "number", minimum=0),
    "max_elections": optional("So many at most, those for the worst brokers first.", "integer", minimum=1),
}


def leader_balance(cluster: str | None) -> None:
    """Define the DAG of a cluster."""
    with surveyor_dag(
        "leader_balance",
        cluster,
        description="Give preferred replicas their leaders back, after each snapshot",
        schedule=[snapshot_asset(cluster)],
        params=PARAMS,
        doc_md=__doc__,
    ):

        @task
        def question(*, params: dict[str, Any]) -> list[str]:
            """Write the parameters, and the settings for those that a run does not have, as options of `plan elect`."""
            ours = settings(cluster)
            usual = {"settle": ours.settle, "stable_for": ours.stable_for}
            given = {name: usual.get(name) if params[name] is None else params[name] for name in PARAMS}
            named = {name.replace("_", "-"): value for name, value in given.items()}
            return ["elect", "--preferred", *options(named, *named)]

        due = task.short_circuit(task_id="due")(has_changes)(planned(question()))
        commit = CommitOperator(task_id="commit", plan=PLAN, stale="skip")
        verify = PlanComplete(
            task_id="verify", plan=PLAN, poke_interval=5.0, timeout=timedelta(minutes=10).total_seconds()
        )
        due >> commit >> verify


for each in clusters():
    leader_balance(each)
