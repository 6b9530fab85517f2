"""What the DAGs have in common: owner and retries, names, assets that link them, and the way from a plan to its end.

Where there are several clusters, each file makes a DAG for each of them, and `cluster` says which; else it is None.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Asset, Param, task
from surveyor_operators import CommitOperator, PlanApproval, PlanComplete, PlanOperator, SnapshotOfRun, SurveyorOperator
from surveyor_settings import of_cluster

START = datetime(2026, 1, 1, tzinfo=UTC)

PLAN = "{{ dag.dag_id }}.{{ run_id }}"
"""The name of a run's plan: a task that is tried again, and a run that is cleared, find it by that."""

TAGS = ["kafka", "surveyor"]

DEFAULTS: dict[str, Any] = {
    "owner": "surveyor",
    "retries": 3,
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=10),
}

UNCLEAN_NOT_ALLOWED = "UNCLEAN_NOT_ALLOWED"
"""Code of a rejection: only an election that may lose records would find a leader."""

SNAPSHOT_ID = "{{ ti.xcom_pull(task_ids='snapshot')['snapshot_id'] }}"
"""What the task `snapshot` of the run found."""


def snapshot_asset(cluster: str | None) -> Asset:
    """A snapshot was taken; the event's extra has its `snapshot_id`."""
    return _asset("snapshot", cluster)


def offline_asset(cluster: str | None) -> Asset:
    """Partitions went offline since the last event of the snapshots' asset; the extra has the `snapshot_id`."""
    return _asset("offline", cluster)


def _asset(what: str, cluster: str | None) -> Asset:
    path = what if cluster is None else f"{cluster}/{what}"
    return Asset(of_cluster(f"surveyor_{what}", cluster), uri=f"surveyor://{path}", group="surveyor")


def surveyor_dag(
    name: str, cluster: str | None, *, schedule: Any, defaults: dict[str, Any] | None = None, **given: Any
) -> DAG:
    """Return a DAG whose tasks are for a cluster; of several, its id and tags name it.

    One run at a time, unless `given` says otherwise.
    """
    of_several = {} if cluster is None else {"cluster": cluster}
    return DAG(
        of_cluster(f"surveyor_{name}", cluster),
        schedule=schedule,
        **{
            "start_date": START,
            "catchup": False,
            "max_active_runs": 1,
            "default_args": {**DEFAULTS, **of_several, **(defaults or {})},
            "tags": [*TAGS, *of_several.values()],
            **given,
        },
    )


def optional(description: str, kind: str = "string", **given: Any) -> Param:
    """Return a parameter of a run that may be left out."""
    return Param(None, type=["null", kind], description=description, **given)


def options(params: dict[str, Any], *names: str) -> list[str]:
    """Write parameters as the options that are called as they are; those that are not given are left out."""
    given = {name: params[name] for name in names if params[name] is not None}
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


def planned(question: Any) -> Any:
    """Take the run's snapshot and ask a question of it; return the plan's result."""
    snapshot = SnapshotOfRun(task_id="snapshot", plan=PLAN)
    plan = PlanOperator(task_id="plan", question=question, snapshot=SNAPSHOT_ID, plan=PLAN)
    snapshot >> plan
    return plan.output


def carried_out_once_approved(plan: Any, asked: str, commit_options: Any = ()) -> PlanComplete:
    """Show a plan that changes something, wait until it is approved, carry it out; return the task that verifies it.

    `asked` says what the plan is to do.
    """
    due = task.short_circuit(task_id="due", ignore_downstream_trigger_rules=False)(has_changes)(plan)
    show = SurveyorOperator(task_id="show", command=["show", "plan", PLAN], shown=True)
    approve = PlanApproval(task_id="approve", asked=asked)
    commit = CommitOperator(task_id="commit", plan=PLAN, options=commit_options, retries=5)
    verify = PlanComplete(task_id="verify", plan=PLAN)
    due >> show >> approve >> commit >> verify
    return verify


def has_changes(plan: dict[str, Any]) -> bool:
    """Tell by a plan's result whether there is anything to commit; rejections alone are nothing."""
    return bool(plan["changes"] or plan.get("operations"))


def needs_unclean(rejections: dict[str, Any]) -> bool:
    """Tell by a plan's rejections whether an election that may lose records would help some partition."""
    return any(row["code"] == UNCLEAN_NOT_ALLOWED for row in rejections["rows"])
