"""
### What a plan moved goes back

Started by hand with the plan's id or name. The way back is a plan of its own: it is shown in the log of `show`, waits
for approval, and is carried out wave by wave, as every move of replicas is.

**Rejected**, or not answered within a day: nothing is written. **The commit failed for good**: `clear_throttle` runs
whatever happened, and cancels a plan of which a throttle was left.
"""

from typing import Any

from airflow.sdk import Param, task
from surveyor_dags import PLAN, carried_out_once_approved, optional, options, surveyor_dag
from surveyor_operators import SurveyorOperator, ThrottleCleared
from surveyor_settings import clusters

PARAMS = {
    "plan": Param(type="string", minLength=1, description="Id or name of the plan to undo."),
    "to-snapshot": optional("Back to what this snapshot shows; else to where the plan found it.", "integer"),
    "throttle": optional("Bytes a second to copy replicas with, as 50MB/s."),
}


@task
def command(*, params: dict[str, Any], plan: str) -> list[str]:
    """Write the parameters of the run as `surveyor rollback`, which plans and commits nothing."""
    return ["rollback", params["plan"], "--name", plan, *options(params, "to-snapshot")]


@task
def commit_options(*, params: dict[str, Any]) -> list[str]:
    """Wait for the last wave, too; throttled, if that is asked for."""
    return ["--wait", *options(params, "throttle")]


def rollback(cluster: str | None) -> None:
    """Define the DAG of a cluster."""
    with surveyor_dag(
        "rollback",
        cluster,
        description="Move back what a plan moved: plan, approve, carry out, verify",
        schedule=None,
        params=PARAMS,
        doc_md=__doc__,
    ):
        plan = SurveyorOperator(task_id="plan", command=command(plan=PLAN), refused="fail")
        verify = carried_out_once_approved(plan.output, "undo plan {{ params.plan }}", commit_options())
        verify >> ThrottleCleared(task_id="clear_throttle", plan=PLAN, retries=10).as_teardown()


for each in clusters():
    rollback(each)
