"""The invariants of the rounds in KRaft find what they look for."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.delta.warehouse_lease import WarehouseLease
from jobs.repositories.actor import this_process
from schemas.enums import OperationKind, PlanStatus
from schemas.lease_holder import LeaseHolder
from schemas.rows import Operation, Row
from tests.jobs.torture.kraft_invariants import (
    LeaseSpan,
    Plans,
    executed_twice,
    lease_version,
    leases,
    moved_back,
    outside_lease,
    untrue_outcomes,
)
from tests.jobs.torture.metadata_log import MetadataHistory, PartitionState, Retargeted

HOLDER = LeaseHolder("ann", "ops1", 7, "commit", "p", "2026-11-27T06:00:00+00:00")
MOVE = {"plan_id": "p", "wave": 0, "topic": "t", "partition": 0, "replicas_before": [1, 2], "replicas_after": [3, 2]}
CANCELLATION = {**MOVE, "plan_id": "c", "replicas_before": [3, 2, 1], "adding_before": [3], "replicas_after": [1, 2]}
ORDER = {**MOVE, "plan_id": "c", "wave": 1, "replicas_before": [2, 1], "replicas_after": [1, 2]}


@dataclass(frozen=True)
class OnePlan(Plans):
    """A plan of one move, with the last outcome in `commits`."""

    outcome: str = "applied"
    status: str = PlanStatus.COMMITTED
    parameters: str = "{}"
    is_turned_back: bool = False
    """Whether another plan cancels it."""

    def requested(self) -> dict[tuple[str, int | None, str, int | None], list[Row]]:
        rows: list[Row] = [MOVE, CANCELLATION, ORDER]
        return {
            (row["plan_id"], row["wave"], "t", 0): [{"outcome": "pending"}, {"outcome": self.outcome}] for row in rows
        }

    def moves(self) -> list[Row]:
        return [MOVE, *([ORDER] if self.is_turned_back else [])]

    def cancellations(self) -> list[Row]:
        return [CANCELLATION] if self.is_turned_back else []

    def plans(self) -> dict[str, Row]:
        row = {"plan_id": "p", "status": self.status, "created_at": datetime(2026, 11, 27, tzinfo=UTC)}
        return {"p": row | {"parameters": self.parameters}}

    def operations(self, kind: OperationKind) -> list[Operation]:
        del kind
        return []


def plan(folder: Path, **columns: Any) -> OnePlan:  # noqa: ANN401 - fields of different types
    return OnePlan(Warehouse(str(folder), "default"), **columns)


def moved(at: float = 5.0, target: tuple[int, ...] = (3, 2)) -> Retargeted:
    return Retargeted(at, "t", 0, [1, 2], [*target])


def test_a_plan_explains_one_request(tmp_path: Path) -> None:
    once, twice = MetadataHistory(retargeted=[moved()]), MetadataHistory(retargeted=[moved(), moved()])
    assert executed_twice(once, plan(tmp_path), [], []) == []
    assert executed_twice(twice, plan(tmp_path), [], []) == ["('t', 0, (3, 2)) was requested 1 times too often"]
    assert executed_twice(twice, plan(tmp_path), [("t", 0, (3, 2))], []) == []


def test_a_cancellation_explains_the_reversal(tmp_path: Path) -> None:
    back = MetadataHistory(retargeted=[moved(), moved(target=(2, 1)), moved(target=(1, 2))])
    assert len(executed_twice(back, plan(tmp_path), [], [])) == 2
    assert executed_twice(back, plan(tmp_path, is_turned_back=True), [], []) == []


def test_a_topic_is_created_once_by_each_plan(tmp_path: Path) -> None:
    history = MetadataHistory()
    history.created.update(["t", "t"])
    assert executed_twice(history, plan(tmp_path), [], ["t"]) == ["t was created 1 times too often"]


def test_a_request_without_a_lease_is_found() -> None:
    held = [LeaseSpan("a", HOLDER, 4.0, 6.0)]
    assert outside_lease(MetadataHistory(retargeted=[moved(5.0)]), held, []) == []
    wrong, evidence = outside_lease(MetadataHistory(retargeted=[moved(7.0)]), held, [])
    assert wrong.endswith("was requested while no command had the lease")
    assert str(held) in evidence
    assert outside_lease(MetadataHistory(retargeted=[moved(7.0)]), held, [("t", 0, (3, 2))]) == []


@pytest.mark.parametrize(
    ("outcome", "replicas", "found"),
    [("applied", [3, 2], 0), ("applied", [1, 2], 1), ("stale", [1, 2], 0), ("pending", [3, 2], 1)],
)
def test_an_outcome_agrees_with_the_cluster(tmp_path: Path, outcome: str, replicas: list[int], found: int) -> None:
    history = MetadataHistory(partitions={("t", 0): PartitionState(replicas, replicas, replicas[0], 0)})
    assert len(untrue_outcomes(history, plan(tmp_path, outcome=outcome))) == found


@pytest.mark.parametrize(
    ("columns", "found"),
    [({}, 1), ({"outcome": "stale"}, 0), ({"parameters": "{}"}, 0), ({"parameters": '{"rollback_of": "other"}'}, 0)],
)
def test_moves_of_a_rollback_are_counted(tmp_path: Path, columns: dict[str, str], found: int) -> None:
    rollback = plan(tmp_path, **({"parameters": '{"rollback_of": "undone"}'} | columns))
    assert moved_back(MetadataHistory(retargeted=[moved()]), rollback, ["undone"]) == found
    assert moved_back(MetadataHistory(), rollback, ["undone"]) == 0


def test_leases_are_read_from_the_versions_of_the_table(tmp_path: Path) -> None:
    """Two that follow each other, and one that was taken while another one lasted."""
    warehouse = Warehouse(str(tmp_path), "default")
    warehouse.ensure_tables()
    for _ in range(2):
        lease = WarehouseLease(warehouse, this_process("commit", "p"), print)
        lease.acquire(0.0)
        lease.renew()
        lease.release()
    held, wrong = leases(warehouse)
    assert (len(held), wrong) == (2, [])
    assert held[0].taken <= held[0].end <= held[1].taken <= held[1].end

    lease.acquire(0.0)
    (row,) = warehouse.rows("leases")
    warehouse.replace("leases", [{**row, "token": "another", "deadline": row["deadline"] + timedelta(seconds=1)}])
    held, wrong = leases(warehouse)
    assert (len(held), len(wrong)) == (4, 1)


def test_an_earlier_round_is_not_judged_again(tmp_path: Path) -> None:
    """Its clock may have been set, so that its leases do not cover its moves, and last for days."""
    warehouse = Warehouse(str(tmp_path), "default")
    warehouse.ensure_tables()
    lease = WarehouseLease(warehouse, this_process("commit", "p"), print)
    lease.acquire(0.0)
    (row,) = warehouse.rows("leases")
    warehouse.replace("leases", [{**row, "deadline": row["deadline"] + timedelta(days=2)}])
    before = lease_version(warehouse)
    lease.release()
    lease.acquire(0.0)
    lease.release()
    held, wrong = leases(warehouse, before)
    assert (len(held), wrong) == (1, [])
    history = MetadataHistory(retargeted=[moved(1.0), moved(held[0].taken)])
    assert outside_lease(history, held, [], since=2.0) == []
    assert len(outside_lease(history, held, [])) == 2
