"""
### Moving replicas

Started by hand, with a question: which one, its value, what limits it. The plan is shown in the log of `show`, and
waits for somebody to approve it. Then it is carried out wave by wave and waited for to the end.

- **Rejected**, or not answered within a day: nothing is written to the cluster. The plan stays in the tables; start a
  new run for another question.
- **A task failed, or its worker died**: clear it. The commit goes on where it was; nothing is asked for twice.
- **The commit failed for good**: `clear_throttle` runs whatever happened. Where a throttle was left, replicas still
  move by it: the plan is cancelled, which calls them back and takes the throttle away.
"""

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, task
from surveyor_dags import DEFAULTS, PLAN, SNAPSHOT_ID, START, has_changes
from surveyor_operators import (
    CommitOperator,
    PlanComplete,
    PlanOperator,
    SnapshotOfRun,
    SurveyorOperator,
    ThrottleCleared,
)

FLAGS = ("rebalance", "fix-racks")
WITH_VALUES = (
    "add-brokers",
    "remove-brokers",
    "replace",
    "replication-factor",
    "to-snapshot",
    "reassignment-json-file",
    "topics-to-move-json-file",
)
LIMITS = ("broker-list", "topics", "exclude", "max-moves", "max-moves-per-broker")
SWITCHES = ("one-replica-at-a-time", "by-size", "reorder-leaders", "disable-rack-aware")

PARAMS = {
    "question": Param("rebalance", enum=[*FLAGS, *WITH_VALUES], description="What `surveyor plan reassign` is asked."),
    "value": Param(None, type=["null", "string"], description="The question's value: 4,5 or 7=107 or a file's path."),
    **{limit: Param(None, type=["null", "string"], description=f"--{limit}, if any.") for limit in LIMITS},
    **{switch: Param(default=False, type="boolean", description=f"--{switch}") for switch in SWITCHES},
    "throttle": Param(None, type=["null", "string"], description="Bytes a second to copy replicas with, as 50MB/s."),
}

with DAG(
    "surveyor_reassign",
    description="Move replicas between brokers: plan, approve, carry out, verify",
    schedule=None,
    start_date=START,
    max_active_runs=1,
    default_args=DEFAULTS,
    params=PARAMS,
    doc_md=__doc__,
    tags=["kafka", "surveyor"],
):

    @task
    def question(*, params: dict[str, Any]) -> list[str]:
        """Write the parameters of the run as the options of `surveyor plan reassign`."""
        flag = params["question"]
        valued = {flag: params["value"], **{limit: params[limit] for limit in LIMITS}}
        options = [word for name, value in valued.items() if value is not None for word in (f"--{name}", value)]
        flags = [f"--{name}" for name in SWITCHES if params[name]]
        return ["reassign", *([f"--{flag}"] if flag in FLAGS else []), *options, *flags]

    @task
    def commit_options(*, params: dict[str, Any]) -> list[str]:
        """Wait for the last wave, too; throttled, if that is asked for."""
        return ["--wait", *(["--throttle", params["throttle"]] if params["throttle"] else [])]

    snapshot = SnapshotOfRun(task_id="snapshot", plan=PLAN)
    plan = PlanOperator(task_id="plan", question=question(), snapshot=SNAPSHOT_ID, plan=PLAN)
    due = task.short_circuit(task_id="due", ignore_downstream_trigger_rules=False)(has_changes)(plan.output)
    show = SurveyorOperator(task_id="show", command=["show", "plan", PLAN], shown=True)
    approve = ApprovalOperator(
        task_id="approve",
        subject="Surveyor: move replicas by plan {{ ti.xcom_pull(task_ids='plan')['plan_id'] }}?",
        body="```\n{{ ti.xcom_pull(task_ids='show') }}\n```",
        response_timeout=timedelta(hours=24),
        defaults=ApprovalOperator.REJECT,
    )
    commit = CommitOperator(task_id="commit", plan=PLAN, options=commit_options(), retries=5)
    verify = PlanComplete(task_id="verify", plan=PLAN)
    clear_throttle = ThrottleCleared(task_id="clear_throttle", plan=PLAN, retries=10).as_teardown()

    snapshot >> plan
    due >> show >> approve >> commit >> verify >> clear_throttle
