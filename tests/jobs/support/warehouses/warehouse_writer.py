"""A process that writes to a warehouse as the commands do: `warehouse_writer WAREHOUSE CLUSTER WORKER ROUNDS`.

Each round takes a snapshot, stores a plan, and records a commit of a plan that all workers share. Every third round of
a worker whose name ends with 0 vacuums. A line of JSON acknowledges each write after it has returned. A write that the
warehouse refused, after it was retried, is a line with `refused`.
"""

import json
import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from jobs.adapters.delta.lock_files import VACUUM, locked
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.delta.warehouse_lease import SNAPSHOT, leased_snapshot
from jobs.core.errors import SurveyorError
from jobs.repositories.actor import this_process
from jobs.repositories.plans.commit_rows import next_attempt
from jobs.repositories.snapshots import last_snapshot
from jobs.snapshots.vacuum import vacuum_warehouse

SHARED_PLAN = "shared"
ROUNDS_PER_VACUUM = 3


def take_snapshot(warehouse: Warehouse, worker: str) -> int:
    """Write two tables and the row in `snapshots`, in the order of `surveyor snapshot`, under its locks or lease."""
    with ExitStack() as stack:
        stack.enter_context(locked(warehouse.uri, VACUUM, shared=True))
        stack.enter_context(locked(warehouse.uri, f"snapshot of {warehouse.cluster}"))
        lease = stack.enter_context(leased_snapshot(warehouse, this_process(SNAPSHOT), lambda _: None))
        last = last_snapshot(warehouse)
        snapshot_id = 1 if last is None else last.snapshot_id + 1
        broker = {"broker_id": 1, "snapshot_id": snapshot_id, "host": worker}
        event = {"snapshot_id": snapshot_id, "kind": "BrokerJoined", "subject": worker}
        versions = {
            "brokers": warehouse.replace("brokers", [broker]),
            "events": warehouse.replace("events", [event], f"snapshot_id >= {snapshot_id}"),
        }
        row = {"snapshot_id": snapshot_id, "taken_at": datetime.now(UTC), "versions": versions}
        if lease is not None:
            lease.refuse_lost()
        assert warehouse.insert("snapshots", row, ("snapshot_id", "=", snapshot_id)) is None
        return snapshot_id


def store_plan(warehouse: Warehouse, plan_id: str) -> str:
    warehouse.append("changes", [{"plan_id": plan_id, "wave": 0, "topic": "t", "partition": 0}])
    warehouse.insert("plans", {"plan_id": plan_id, "status": "planned", "changes": 1}, ("plan_id", "=", plan_id))
    return plan_id


def record_commit(warehouse: Warehouse) -> int:
    attempt = next_attempt(warehouse, SHARED_PLAN)
    warehouse.append("commits", [{"plan_id": SHARED_PLAN, "attempt": attempt, "action": "elect", "outcome": "applied"}])
    return attempt


def vacuum(warehouse: Warehouse) -> int:
    month = timedelta(days=30)
    oldest: int = vacuum_warehouse(warehouse, datetime.now(UTC), month, dry_run=False)["oldest_snapshot"]
    return oldest


def main(folder: str, cluster: str, worker: str, rounds: int) -> None:
    warehouse = Warehouse(folder, cluster)
    for number in range(rounds):
        writes: dict[str, partial[Any]] = {
            "snapshot": partial(take_snapshot, warehouse, worker),
            "plan": partial(store_plan, warehouse, f"{worker}-{number}"),
            "commit": partial(record_commit, warehouse),
        }
        if worker.endswith("0") and number % ROUNDS_PER_VACUUM == 1:
            writes["vacuum"] = partial(vacuum, warehouse)
        for kind, write in writes.items():
            try:
                result = {"kind": kind, "key": write()}
            except SurveyorError as error:
                result = {"kind": kind, "refused": str(error)}
            sys.stdout.write(json.dumps(result) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
