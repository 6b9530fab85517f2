"""Common parts of the DAGs: default arguments, names, assets, and the tasks from a plan to its verification.

Each DAG file defines a DAG per cluster, with its name as `cluster`. With a single cluster, `cluster` is None.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Asset, Param, chain, task
from surveyor_operators import (
    CommitOperator,
    PlanApprovalOperator,
    PlanCompleteSensor,
    PlanOperator,
    RunSnapshotOperator,
    SurveyorOperator,
)
from surveyor_settings import of_cluster

START = datetime(2026, 1, 1, tzinfo=UTC)

PLAN = "{{ dag.dag_id }}.{{ run_id }}"
"""Name of a run's plan, by which retried tasks and cleared runs find it."""

TAGS = ["kafka", "surveyor"]

DEFAULTS: dict[str, Any] = {
    "owner": "surveyor",
    "retries": 3,
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=10),
}

UNCLEAN_NOT_ALLOWED = "UNCLEAN_NOT_ALLOWED"
"""Code of a rejection of partitions for which only an unclean election could find a leader."""

SNAPSHOT_ID = "{{ ti.xcom_pull(task_ids='snapshot')['snapshot_id'] }}"
"""The snapshot id returned by the task `snapshot` of the run."""


def snapshot_asset(cluster: str | None) -> Asset:
    """Return the asset of new snapshots; the extra of its events has the `snapshot_id`."""
    return _asset("snapshot", cluster)


def offline_asset(cluster: str | None) -> Asset:
    """Return the asset of partitions newly offline since the last snapshot event; the extra has the `snapshot_id`."""
    return _asset("offline", cluster)


def _asset(noun: str, cluster: str | None) -> Asset:
    path = noun if cluster is None else f"{cluster}/{noun}"
    return Asset(of_cluster(f"surveyor_{noun}", cluster), uri=f"surveyor://{path}", group="surveyor")


def surveyor_dag(
    name: str, cluster: str | None, *, schedule: Any, defaults: dict[str, Any] | None = None, **given: Any
) -> DAG:
    """Return a DAG for a cluster; with several clusters, its id and tags contain the cluster's name.

    It has at most one active run, unless `given` overrides this.
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
    """Return an optional parameter of a run."""
    return Param(None, type=["null", kind], description=description, **given)


def options(params: dict[str, Any], *names: str) -> list[str]:
    """Convert the given parameters to options of the same names."""
    given = {name: params[name] for name in names if params[name] is not None}
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


@task
def commit_options(*, params: dict[str, Any]) -> list[str]:
    """Return options to wait for the last wave, with the throttle if given."""
    return ["--wait", *options(params, "throttle")]


def plan_on_snapshot(question: Any, after: Any = None) -> Any:
    """Define the tasks `snapshot` and `plan`, the first after another task, if any; return the result of the plan."""
    snapshot = RunSnapshotOperator(task_id="snapshot", plan=PLAN)
    if after is not None:
        after >> snapshot
    plan = PlanOperator(task_id="plan", question=question, snapshot=SNAPSHOT_ID, plan=PLAN)
    snapshot >> plan
    return plan.output


def commit_after_approval(plan: Any, asked: str, options: Any = ()) -> PlanCompleteSensor:
    """Define the tasks that show a plan with changes, wait for its approval and commit it; return the task `verify`.

    `asked` describes what the plan does.
    """
    due = task.short_circuit(task_id="due", ignore_downstream_trigger_rules=False)(has_changes)(plan)
    return _shown_and_committed(due, asked, options)


def commit_within(is_within: Callable[..., bool], beyond_rails: Any, asked: str, options: Any) -> PlanCompleteSensor:
    """Define the tasks that let a plan be approved if `beyond_rails` is, and commit it when `is_within` returns true.

    `asked` describes what the plan does. Return the task `verify`.
    """
    window = task.sensor(
        task_id="window", mode="reschedule", poke_interval=60.0, timeout=24 * 3600.0, trigger_rule="none_failed"
    )(is_within)()
    return _shown_and_committed(beyond_rails, asked, options, window)


def _shown_and_committed(due: Any, asked: str, options: Any, *before_commit: Any) -> PlanCompleteSensor:
    show = SurveyorOperator(task_id="show", command=["show", "plan", PLAN], shown=True)
    approve = PlanApprovalOperator(task_id="approve", asked=asked)
    commit = CommitOperator(task_id="commit", plan=PLAN, options=options, retries=5)
    verify = PlanCompleteSensor(task_id="verify", plan=PLAN)
    chain(due, show, approve, *before_commit, commit, verify)
    return verify


def has_changes(plan: dict[str, Any]) -> bool:
    """Whether a plan's result has anything to commit; rejections do not count."""
    return bool(plan["changes"] or plan.get("operations") or plan.get("marked_brokers"))


def needs_unclean(rejections: dict[str, Any]) -> bool:
    """Whether an unclean election, which may lose records, could find a leader for a rejected partition."""
    return any(row["code"] == UNCLEAN_NOT_ALLOWED for row in rejections["rows"])
