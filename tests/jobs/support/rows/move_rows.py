"""Reassignments of a plan without Spark, and `surveyor commit` as a process that can be killed."""

import os
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from jobs.adapters.delta.warehouse import Warehouse
from schemas.enums import Action
from schemas.rows import Row
from tests.jobs.support.rows.plan_rows import election
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree


def reassignment(  # noqa: PLR0913 - what a change says
    tree: KafkaTree, topic: str, partition: int, after: list[int], *, wave: int = 0, before: list[int] | None = None
) -> Row:
    """Return a move of one partition, from its state in the tree or after an earlier wave."""
    row = election(tree, topic, partition, leader=after[0])
    replicas = row["replicas_before"] if before is None else before
    columns: dict[str, Any] = {
        "wave": wave,
        "action": Action.REASSIGN.value,
        "replicas_before": replicas,
        "replicas_after": after,
        "adding_after": [broker for broker in after if broker not in replicas],
        "removing_after": [broker for broker in replicas if broker not in after],
        "leader_epoch_after": None,
    }
    return row | columns


class CommitProcess(subprocess.Popen[str]):
    """A commit that is killed if its `with` block fails, as it would wait forever."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, value, traceback)


def commit_process(hosts: str, warehouse: Warehouse, plan_id: str, *more: str, script: str = "") -> CommitProcess:
    """Run `surveyor commit --apply` in admin mode as a process of its own; `script` runs in it first."""
    flags = ("--zookeeper", hosts, "--warehouse", warehouse.uri, "--mode", "admin", "--apply", *more)
    return CommitProcess(
        [sys.executable, "-c", f"{script}\nfrom jobs import cli\ncli.main()", "commit", plan_id, *flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )


def targets(rows: Sequence[Row]) -> dict[tuple[str, int], list[int]]:
    return {(row["topic"], row["partition"]): row["replicas_after"] for row in rows}
