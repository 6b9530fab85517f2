"""Tables written in the background: rows that a full disk refuses are written later, once."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.controller.write_behind import AuditEntry, CycleRecord, WriteBehindLog
from schemas.enums import Step
from tests.jobs.support.kafka.real_cluster import eventually
from tests.jobs.support.rows.empty_tables import lay_tables


class Disk(Warehouse):
    """Has no space for rows of `commits` until something is deleted."""

    is_full = True

    def append(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        if table == "commits" and Disk.is_full:
            raise OSError("No space left on device")
        super().append(table, rows)


CYCLE = CycleRecord(
    snapshot_id=1, cluster_id="c", broker_epochs={0: 7}, controller_epoch=8, changes=[], rejections=[], verdicts=[]
)


@pytest.fixture
def log_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteBehindLog:
    for name in ("FLUSH_INTERVAL_SECONDS", "RETRY_SECONDS"):
        monkeypatch.setattr(f"jobs.controller.write_behind.{name}", 0.01)
    disk = Disk(str(tmp_path / "warehouse"), "default")
    lay_tables(disk)
    Disk.is_full = True
    return WriteBehindLog(disk)


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


def test_too_many_buffered_rows_are_dropped(
    log_writer: WriteBehindLog, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The controller must not run out of memory."""
    monkeypatch.setattr("jobs.controller.write_behind.MAX_BUFFERED_ROWS", 1)
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
    assert "actions since the failed write will not be recorded" in capsys.readouterr().err
