"""
### Roll back a plan

Start it manually with the plan's id or name. The rollback is a separate plan. It is shown in the log of `show`, waits
for approval, and is committed wave by wave, like every reassignment.

**If it is rejected**, or without a response within a day, nothing is written. **If the commit failed permanently**, the
task `clear_throttle` still runs and cancels the plan if a throttle is left.
"""

from typing import Any

from airflow.sdk import Param, task
from surveyor_dags import PLAN, commit_after_approval, commit_options, optional, options, surveyor_dag
from surveyor_operators import ClearThrottleOperator, SurveyorOperator
from surveyor_settings import clusters

PARAMS = {
    "plan": Param(type="string", minLength=1, description="Id or name of the plan to roll back."),
    "to-snapshot": optional("Restore the replicas of this snapshot; default: the replicas before the plan.", "integer"),
    "throttle": optional("Copy rate of each broker, as 50MB/s."),
}


@task
def command(*, params: dict[str, Any], plan: str) -> list[str]:
    """Return the command `surveyor rollback` of the run, which plans without committing."""
    return ["rollback", params["plan"], "--name", plan, *options(params, "to-snapshot")]


for cluster in clusters():
    with surveyor_dag(
        "rollback",
        cluster,
        description="Roll back a plan: plan, approve, commit, verify",
        schedule=None,
        params=PARAMS,
        doc_md=__doc__,
    ):
        plan = SurveyorOperator(task_id="plan", command=command(plan=PLAN), refused="fail")
        verify = commit_after_approval(plan.output, "undo plan {{ params.plan }}", commit_options())
        verify >> ClearThrottleOperator(task_id="clear_throttle", plan=PLAN, retries=10).as_teardown()
