"""Tables written in the background: rows that a full disk refuses are written later, once; bad ones hold back none."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from msgspec.structs import replace as with_values

from jobs.adapters.delta.warehouse import Warehouse
from jobs.controller.write_behind import MAX_FAILURES, CycleRecord, WriteBehindLog, _write_by_halves
from jobs.core.errors import UnreadableError
from jobs.repositories.plans.commit_rows import AuditEntry
from jobs.repositories.plans.plan_rows import plan_row
from jobs.repositories.plans.plans_writer import apply_transition
from schemas.enums import Action, Outcome, Step
from schemas.rows import Change
from schemas.stored_plan import RowOutcome, Transition
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.typed_rows import typed


class Disk(Warehouse):
    """Has no space for rows of `commits` until something is deleted."""

    is_full = True

    def append_all(self, table: str, rows: pa.Table) -> None:
        if table == "commits" and Disk.is_full:
            raise OSError("No space left on device")
        super().append_all(table, rows)


CYCLE = CycleRecord(
    snapshot_id=1, cluster_id="c", broker_epochs={0: 7}, controller_epoch=8, changes=[], rejections=[], outcomes=[]
)

CHANGE = typed(
    topic="orders",
    action=Action.ELECT.value,
    replicas_after=[1, 2],
    leader_after=1,
    isr_before=[1, 2],
    isr_after=[1],
    requires_live=[1],
    leader_and_isr_to=[1],
    state_version=4,
    topic_version=2,
)


def cycle_of(*changes: Change) -> CycleRecord:
    return replace(CYCLE, changes=changes, outcomes=None)


@pytest.fixture
def log_writer(tmp_path: Path) -> WriteBehindLog:
    disk = Disk(str(tmp_path / "warehouse"), "default")
    lay_tables(disk)
    Disk.is_full = True
    return WriteBehindLog(disk, flush_interval_seconds=0.01, retry_seconds=0.01)


def test_rows_are_written_once_the_disk_has_space(
    log_writer: WriteBehindLog, capsys: pytest.CaptureFixture[str]
) -> None:
    log_writer.start()
    log_writer.record(CYCLE)
    log_writer.record(AuditEntry(Step.TAKE_OVER, "controller epoch 8"))
    assert eventually(lambda: log_writer.failed is not None)
    Disk.is_full = False
    assert eventually(lambda: log_writer.failed is None)
    log_writer.record(AuditEntry(Step.HAND_BACK, "resigned"))
    log_writer.close()

    (plan,) = log_writer.warehouse.rows("plans")
    rows = sorted(
        (row["action"], row["plan_id"], row["controller_epoch"]) for row in log_writer.warehouse.rows("commits")
    )
    assert rows == [("hand_back", plan["plan_id"], 8), ("take_over", plan["plan_id"], 8)]
    stderr = capsys.readouterr().err
    assert stderr.count("cannot write to the warehouse: No space left on device") == 1
    assert stderr.count("writing to the warehouse has resumed") == 1


@pytest.mark.parametrize("changes", [[], [CHANGE]], ids=["no changes", "one change"])
def test_a_cycle_that_ends_while_it_is_converted(
    log_writer: WriteBehindLog, monkeypatch: pytest.MonkeyPatch, changes: list[Change]
) -> None:
    """Its thread sets the outcomes at any time; the plan gets them and a final status in any case."""
    Disk.is_full = False
    record = cycle_of(*changes)

    def finished_meanwhile(*arguments: Any) -> Any:  # noqa: ANN401 - those of the original
        log_writer.finish(record, [RowOutcome(change, Outcome.APPLIED, "") for change in changes])
        return plan_row(*arguments)

    monkeypatch.setattr("jobs.controller.write_behind.plan_row", finished_meanwhile)
    log_writer.record(record)
    log_writer.start()
    assert eventually(lambda: [row["status"] for row in log_writer.warehouse.rows("plans")] == ["committed"])
    log_writer.close()

    outcomes = sorted(row["outcome"] for row in log_writer.warehouse.rows("commits"))
    assert outcomes == ["applied"] * len(changes) + ["pending"] * len(changes)


def test_too_many_buffered_rows_are_dropped(log_writer: WriteBehindLog, capsys: pytest.CaptureFixture[str]) -> None:
    """The controller must not run out of memory."""
    log_writer.max_buffered_rows = 1
    log_writer.record(CYCLE)
    for number in range(3):
        log_writer.record(AuditEntry(Step.TAKE_OVER, str(number)))
    log_writer.start()
    assert eventually(lambda: log_writer.failed is not None)
    Disk.is_full = False
    log_writer.record(AuditEntry(Step.HAND_BACK, "resigned"))
    assert eventually(lambda: log_writer.failed is None)
    log_writer.close()

    assert [row["action"] for row in log_writer.warehouse.rows("commits")] == ["hand_back"]
    assert "discarded all 3 buffered rows, because writes to the warehouse fail" in capsys.readouterr().err


def test_unconvertible_record_is_named_and_the_rest_of_its_batch_written(
    log_writer: WriteBehindLog, capsys: pytest.CaptureFixture[str]
) -> None:
    Disk.is_full = False
    bad, good = cycle_of(CHANGE, with_values(CHANGE, partition=2**40)), cycle_of(CHANGE)
    for record in (bad, good):
        log_writer.record(record)
    log_writer.record(AuditEntry(Step.TAKE_OVER, "x", partition=2**40))
    for record in (bad, good):
        log_writer.finish(record, [RowOutcome(CHANGE, Outcome.APPLIED, "")])
    log_writer.record(AuditEntry(Step.HAND_BACK, "resigned"))
    log_writer.start()
    log_writer.close()

    warehouse = log_writer.warehouse
    written = (
        [(plan["changes"], plan["status"]) for plan in warehouse.rows("plans")],
        [row["partition"] for row in warehouse.rows("changes")],
        sorted((row["action"], row["outcome"]) for row in warehouse.rows("commits")),
    )
    outcomes = [("elect", "applied"), ("elect", "pending"), ("hand_back", "applied")]
    assert written == ([(1, "committed")], [0], outcomes)
    stderr = capsys.readouterr().err
    assert stderr.count("is not recorded") == 2
    assert f"2 changes (orders-0, orders-{2**40}) is not recorded: ArrowInvalid" in stderr
    assert "take_over is not recorded" in stderr


def test_row_that_violates_a_constraint_is_named_and_others_written_once(
    log_writer: WriteBehindLog, capsys: pytest.CaptureFixture[str]
) -> None:
    Disk.is_full = False
    changes = [with_values(CHANGE, partition=partition) for partition in range(5)]
    changes[3] = with_values(changes[3], isr_after=[])
    log_writer.record(cycle_of(*changes))
    log_writer.record(cycle_of(with_values(CHANGE, topic="payments")))
    log_writer.start()
    log_writer.close()

    warehouse = log_writer.warehouse
    names = sorted(f"{row['topic']}-{row['partition']}" for row in warehouse.rows("changes"))
    assert names == ["orders-0", "orders-1", "orders-2", "orders-4", "payments-0"]
    assert (len(warehouse.rows("plans")), len(warehouse.rows("commits"))) == (2, 6)
    stderr = capsys.readouterr().err
    assert stderr.count("violates a constraint of table changes") == 1
    assert "'partition': 3" in stderr
    assert log_writer.failed is None


class PoisonedTable(Warehouse):
    """Cannot write `changes` of some partitions, whose values Arrow rejects."""

    poisoned = frozenset[int]()

    def append_all(self, table: str, rows: pa.Table) -> None:
        if table == "changes" and self.poisoned.intersection(rows["partition"].to_pylist()):
            raise pa.ArrowInvalid("cannot encode a page")
        super().append_all(table, rows)


@pytest.mark.parametrize(
    "poisoned", [{0}, {6}, {3}, {0, 6}, {2, 3}, {0, 1, 2, 3, 4, 5}], ids=lambda partitions: str(sorted(partitions))
)
def test_rows_that_fail_are_named_and_the_rest_of_their_batch_is_written(
    log_writer: WriteBehindLog, capsys: pytest.CaptureFixture[str], poisoned: set[int]
) -> None:
    Disk.is_full = False
    log_writer.warehouse = warehouse = PoisonedTable(log_writer.warehouse.uri, "default")
    object.__setattr__(warehouse, "poisoned", frozenset(poisoned))
    log_writer.record(cycle_of(*(with_values(CHANGE, partition=partition) for partition in range(7))))
    log_writer.start()
    log_writer.close()

    assert {row["partition"] for row in warehouse.rows("changes")} == {*range(7)} - poisoned
    assert len(warehouse.rows("plans")) == 1
    stderr = capsys.readouterr().err
    assert stderr.count("because table changes cannot take it: cannot encode a page") == len(poisoned)


def test_a_row_that_fails_alone_is_kept_until_others_are_written(
    log_writer: WriteBehindLog, capsys: pytest.CaptureFixture[str]
) -> None:
    """As long as nothing is written, the table may be at fault."""
    Disk.is_full = False
    log_writer.warehouse = warehouse = PoisonedTable(log_writer.warehouse.uri, "default")
    object.__setattr__(warehouse, "poisoned", frozenset({0}))
    log_writer.start()
    log_writer.record(cycle_of(CHANGE))
    assert eventually(lambda: log_writer.failed is not None)
    assert "is not recorded" not in capsys.readouterr().err
    log_writer.record(cycle_of(with_values(CHANGE, partition=1)))
    assert eventually(lambda: log_writer.failed is None)
    log_writer.close()

    assert [row["partition"] for row in warehouse.rows("changes")] == [1]
    assert len(warehouse.rows("plans")) == 2
    assert capsys.readouterr().err.count("is not recorded") == 1


def test_a_table_that_fails_for_every_row_keeps_all_after_a_bounded_number_of_attempts() -> None:
    attempts, rows = [], pa.table({"partition": range(100_000)})

    def fail(rows: pa.Table) -> None:
        attempts.append(rows.num_rows)
        raise pa.ArrowInvalid("no such type")

    kept, error = _write_by_halves("changes", [rows], fail)
    assert isinstance(error, pa.ArrowInvalid)
    assert len(attempts) == MAX_FAILURES + 1
    assert sorted(pa.concat_tables(kept)["partition"].to_pylist()) == [*range(100_000)]


@pytest.mark.parametrize(
    "error",
    [
        DeltaError("Failed to parse parquet: External: Generic LocalFileSystem error: Unable to copy data to file"),
        DeltaError("Failed to parse parquet: External: Generic S3 error: Error performing PUT"),
        OSError("No space left on device"),
        UnreadableError("ExpiredToken"),
    ],
    ids=lambda error: f"{type(error).__name__}-{str(error)[-8:]}",
)
def test_a_store_that_fails_in_between_keeps_all_rows_that_it_did_not_take(error: Exception) -> None:
    """A disk has room for some rows, or a store refuses one request of several."""
    written: list[int] = []
    attempts: list[int] = []

    def write(rows: pa.Table) -> None:
        attempts.append(rows.num_rows)
        partitions = rows["partition"].to_pylist()
        if 5 in partitions:
            raise pa.ArrowInvalid("cannot encode a page")
        if written:
            raise error
        written.extend(partitions)

    kept, raised = _write_by_halves("changes", [pa.table({"partition": range(20)})], write)
    assert raised is error
    assert sorted(written + pa.concat_tables(kept)["partition"].to_pylist()) == [*range(20)]
    attempts.clear()
    kept_again, _ = _write_by_halves("changes", [rows for rows in kept if rows["partition"].to_pylist() != [5]], write)
    assert (len(attempts), sum(rows.num_rows for rows in kept_again)) == (1, 20 - len(written) - 1)


def test_a_plan_whose_status_cannot_be_set_holds_back_no_other(
    log_writer: WriteBehindLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    Disk.is_full = False
    records = [cycle_of(with_values(CHANGE, partition=partition)) for partition in range(2)]
    log_writer.start()
    for record in records:
        log_writer.record(record)
    assert eventually(lambda: all(record.plan_id for record in records))
    set_first: list[str] = []
    refused = [records[0].plan_id]

    def refuse_first(warehouse: Warehouse, plan_id: str, transition: Transition) -> None:
        if plan_id in refused:
            raise DeltaError("Generic error")
        set_first.append(plan_id)
        apply_transition(warehouse, plan_id, transition)

    monkeypatch.setattr("jobs.controller.write_behind.apply_transition", refuse_first)
    for record in records:
        log_writer.finish(record, [RowOutcome(record.changes[0], Outcome.APPLIED, "")])
    assert eventually(lambda: set_first == [records[1].plan_id])
    refused.clear()
    log_writer.close()
    assert [plan["status"] for plan in log_writer.warehouse.rows("plans")] == ["committed"] * 2


def test_a_table_that_cannot_be_written_holds_back_no_other(
    log_writer: WriteBehindLog, capsys: pytest.CaptureFixture[str]
) -> None:
    record = cycle_of(CHANGE)
    log_writer.start()
    log_writer.record(record)
    assert eventually(lambda: log_writer.failed is not None)
    log_writer.finish(record, [RowOutcome(CHANGE, Outcome.APPLIED, "")])
    warehouse = log_writer.warehouse
    assert eventually(lambda: [plan["status"] for plan in warehouse.rows("plans")] == ["committed"])
    Disk.is_full = False
    assert eventually(lambda: log_writer.failed is None)
    log_writer.close()

    assert (len(warehouse.rows("changes")), len(warehouse.rows("plans"))) == (1, 1)
    assert sorted(row["outcome"] for row in warehouse.rows("commits")) == ["applied", "pending"]
    assert "could not be written to the warehouse before the end" not in capsys.readouterr().err


def test_rows_that_are_lost_at_the_end_are_counted(
    log_writer: WriteBehindLog, capsys: pytest.CaptureFixture[str]
) -> None:
    log_writer.record(cycle_of(CHANGE, with_values(CHANGE, partition=1)))
    log_writer.start()
    log_writer.close()
    assert "2 rows could not be written to the warehouse before the end" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("outcome", "status"), [(Outcome.STALE, "committed"), (Outcome.SKIPPED, "partial"), (Outcome.FAILED, "partial")]
)
def test_a_cycle_is_committed_if_all_that_stayed_due_was_written(
    log_writer: WriteBehindLog, outcome: Outcome, status: str
) -> None:
    """The next cycle decides again on a partition whose change became stale."""
    Disk.is_full = False
    changes = CHANGE, with_values(CHANGE, partition=1)
    outcomes = [RowOutcome(changes[0], Outcome.APPLIED, ""), RowOutcome(changes[1], outcome, "moved on")]
    log_writer.record(replace(CYCLE, changes=changes, outcomes=outcomes))
    log_writer.start()
    log_writer.close()
    assert [plan["status"] for plan in log_writer.warehouse.rows("plans")] == [status]
