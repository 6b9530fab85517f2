"""What the DAGs have in common: owner and retries, the name of a run's plan, the assets that link them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Asset

START = datetime(2026, 1, 1, tzinfo=UTC)

PLAN = "{{ dag.dag_id }}.{{ run_id }}"
"""The name of a run's plan: a task that is tried again, and a run that is cleared, find it by that."""

SNAPSHOT = Asset("surveyor_snapshot", uri="surveyor://snapshot", group="surveyor")
"""A snapshot was taken; the event's extra has its `snapshot_id`."""

OFFLINE = Asset("surveyor_offline", uri="surveyor://offline", group="surveyor")
"""Partitions went offline since the last event of SNAPSHOT; the event's extra has the `snapshot_id`."""

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


def has_changes(plan: dict[str, Any]) -> bool:
    """Tell by a plan's result whether there is anything to commit; rejections alone are nothing."""
    return bool(plan["changes"] or plan["operations"])


def needs_unclean(rejections: dict[str, Any]) -> bool:
    """Tell by a plan's rejections whether an election that may lose records would help some partition."""
    return any(row["code"] == UNCLEAN_NOT_ALLOWED for row in rejections["rows"])
