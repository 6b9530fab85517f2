"""
### Move replicas

Start it manually with the kind of reassignment, its value and its limits. The plan is shown in the log of `show` and
waits for approval. Then it is committed wave by wave until it is complete.

- **If it is rejected**, or without a response within a day, nothing is written to the cluster. The plan stays in the
  tables; start a new run for other parameters.
- **If a task failed or its worker died**, clear it. The commit continues where it stopped and submits nothing twice.
- **If the commit failed permanently**, the task `clear_throttle` still runs. If a throttle is left, replicas are still
  moving with it. Then the plan is cancelled, which also cancels the moves and removes the throttle.
"""

from typing import Any

from airflow.sdk import Param, task
from surveyor_dags import PLAN, commit_after_approval, commit_options, optional, options, plan_on_snapshot, surveyor_dag
from surveyor_operators import ClearThrottleOperator
from surveyor_settings import clusters

FLAGS = ("rebalance", "fix-racks")
WITH_VALUES = (
    "add-brokers",
    "remove-brokers",
    "onto",
    "replace",
    "replication-factor",
    "to-snapshot",
    "reassignment-json-file",
    "topics-to-move-json-file",
)
LIMITS = ("broker-list", "topics", "exclude", "max-moves", "max-moves-per-broker")
SWITCHES = ("one-replica-at-a-time", "by-size", "reorder-leaders", "disable-rack-aware")

PARAMS = {
    "question": Param("rebalance", enum=[*FLAGS, *WITH_VALUES], description="Option of `surveyor plan reassign`."),
    "value": optional("Value of the option, as 4,5 or 7=107 or the path of a file."),
    **{limit: optional(f"--{limit}, if any.") for limit in LIMITS},
    **{switch: Param(default=False, type="boolean", description=f"--{switch}") for switch in SWITCHES},
    "throttle": optional("Copy rate of each broker, as 50MB/s."),
}


@task
def question(*, params: dict[str, Any]) -> list[str]:
    """Convert the parameters of the run to options of `surveyor plan reassign`."""
    asked = params["question"]
    valued = options({**params, asked: params["value"]}, asked, *LIMITS)
    flags = [f"--{name}" for name in SWITCHES if params[name]]
    return ["reassign", *([f"--{asked}"] if asked in FLAGS else []), *valued, *flags]


for cluster in clusters():
    with surveyor_dag(
        "reassign",
        cluster,
        description="Move replicas between brokers: plan, approve, commit, verify",
        schedule=None,
        params=PARAMS,
        doc_md=__doc__,
    ):
        verify = commit_after_approval(plan_on_snapshot(question()), "move replicas", commit_options())
        verify >> ClearThrottleOperator(task_id="clear_throttle", plan=PLAN, retries=10).as_teardown()
