"""
### Balance by load, within rails

Every hour, the load of brokers in the last `hours` hours is read. If the most loaded broker has more than `skew` times
the mean of a resource, a plan by load is made. Most runs end before that.

- **Rails.** A plan that copies at most `max_bytes`, and at most `bound_ratio` times the bytes that any plan with the
  same bands copies, needs no approval. Any other plan waits for one, as in `surveyor_reassign`.
- **Window.** The commit begins between `window_start` and `window_end`, hours in UTC; at any time if both are the same.
  A commit that has begun continues until it is complete, so choose a `budget` that fits the window.
- **If a task failed or its worker died**, clear it, as in `surveyor_reassign`.

Samples and rollups must be running, as by `surveyor_load_sample`.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Param, task
from surveyor_dags import (
    PLAN,
    commit_options,
    commit_within,
    has_changes,
    optional,
    options,
    plan_on_snapshot,
    surveyor_dag,
)
from surveyor_operators import ClearThrottleOperator, SurveyorOperator, figures_of
from surveyor_settings import clusters, settings

LIMITS = ("within", "budget", "topics", "exclude", "resources", "profile")

PARAMS = {
    "skew": Param(1.25, type="number", minimum=1, description="Plan if a broker has more than this times the mean."),
    "hours": Param(3, type="integer", minimum=1, description="The mean of so many hours counts, all of them measured."),
    "max_bytes": Param(10**11, type="integer", minimum=0, description="Bytes copied without an approval."),
    "bound_ratio": Param(
        1.3, type="number", minimum=1, description="Bytes copied without an approval, by the least possible bytes."
    ),
    "window_start": Param(0, type="integer", minimum=0, maximum=23, description="Hour from which commits begin, UTC."),
    "window_end": Param(0, type="integer", minimum=0, maximum=23, description="Hour from which none begins, UTC."),
    **{limit: optional(f"--{limit} of the plan, if any.") for limit in LIMITS},
    "throttle": optional("Copy rate of each broker, as 50MB/s, or auto."),
}


@task
def question(*, params: dict[str, Any]) -> list[str]:
    """Convert the parameters of the run to options of `surveyor plan reassign`."""
    return ["reassign", "--rebalance", "--by-load", *options(params, *LIMITS)]


def is_skewed(load: dict[str, Any], *, params: dict[str, Any]) -> bool:
    """Whether all hours were measured, and a broker is above the limit in their mean."""
    most = max((one["ratio"] for one in load["unevenness"]), default=0.0)
    return len(load["hours"]) >= params["hours"] and most > params["skew"]


def exceeds_rails(figures: dict[str, Any], *, params: dict[str, Any]) -> bool:
    """Whether a plan must be approved; one that improves nothing by its own figures must, too."""
    copied, bound = figures["bytes"], figures["bytes_bound"] or 0
    worst = figures["worst_before"], figures["worst_after"]
    return (
        copied > params["max_bytes"]
        or copied > params["bound_ratio"] * bound
        or None in worst
        or figures["worst_after"] >= figures["worst_before"]
    )


def is_within(*, params: dict[str, Any]) -> bool:
    """Whether commits may begin now."""
    start, end = params["window_start"], params["window_end"]
    return start == end or (datetime.now(UTC).hour - start) % 24 < (end - start) % 24


def load_balance(cluster: str | None) -> None:
    """Define the DAG of a cluster."""
    with surveyor_dag(
        "load_balance",
        cluster,
        description="Balance brokers by measured load: plan, approve beyond rails, commit in a window, verify",
        schedule=timedelta(hours=1),
        params=PARAMS,
        doc_md=__doc__,
    ):
        load = SurveyorOperator(
            task_id="load", command=["show", "load", "--by", "broker", "--window", "{{ params.hours }}h"]
        )
        skewed = task.short_circuit(task_id="skewed")(is_skewed)(load.output)
        due = task.short_circuit(task_id="due")(has_changes)(plan_on_snapshot(question(), after=skewed))

        @task
        def figures(name: str) -> dict[str, Any]:
            """Return the figures of the run's plan."""
            return figures_of(settings(cluster), name)

        known = figures(PLAN)
        beyond = task.short_circuit(task_id="beyond_rails", ignore_downstream_trigger_rules=False)(exceeds_rails)(known)
        due >> known
        verify = commit_within(is_within, beyond, "balance brokers by load", commit_options())
        verify >> ClearThrottleOperator(task_id="clear_throttle", plan=PLAN, retries=10).as_teardown()


for name in clusters():
    load_balance(name)
