"""Lock files of tables: exclusive or shared, released with their process, and no Spark commit overwrites another."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from time import sleep
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.adapters.delta import lock_files
from jobs.adapters.delta.lock_files import holder, locked
from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import SurveyorError
from jobs.repositories.actor import this_actor

KILLED = """
import os, sys
from jobs.adapters.delta.lock_files import locked
with locked(sys.argv[1], "t"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_one_holds_it_alone_or_several_share_it(tmp_path: Path) -> None:
    place, soon = str(tmp_path), 0.1

    with locked(place, "a b/c", shared=True) as waited, locked(place, "a b/c", shared=True), locked(place, "other"):
        assert not waited
        with pytest.raises(SurveyorError, match="has held the lock"), locked(place, "a b/c", timeout_seconds=soon):
            pass
    signed = f"{this_actor().user}, process"
    with (
        locked(place, "a b/c"),
        pytest.raises(SurveyorError, match=signed),
        locked(place, "a b/c", shared=True, timeout_seconds=soon),
    ):
        pass


def test_a_lock_ends_with_its_process_and_the_waiting_one_continues(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    assert holder(str(tmp_path), "t") == f"{this_actor().user}, process {process.pid}"

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(_waited, str(tmp_path))
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        process.kill()
        assert waiting.result(10)
    process.communicate()


def _waited(place: str) -> bool:
    with locked(place, "t") as waited:
        return waited


def test_object_stores_have_none(tmp_path: Path) -> None:
    with locked("s3://bucket/warehouse", "t") as waited, locked("s3://bucket/warehouse", "t"):
        assert not waited
    assert not [*tmp_path.iterdir()]


def test_threads_take_turns_on_object_stores() -> None:
    """Else the clusters of a fleet would use up each other's attempts at a commit. Appends share, as elsewhere."""
    running, most, lock = 0, 0, Lock()

    def commit(_: int) -> None:
        nonlocal running, most
        with locked("s3://bucket/turns", "t"):
            with lock:
                running += 1
                most = max(most, running)
            sleep(0.01)
            with lock:
                running -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(commit, range(12)))
    assert most == 1
    with locked("s3://bucket/turns", "t", shared=True), ThreadPoolExecutor(1) as pool:
        assert pool.submit(commit, 0).result(60) is None


def test_a_thread_waits_for_a_limited_time_on_object_stores() -> None:
    """A store that does not answer may hold up one thread, and with it every other one, such as a lease's renewal."""

    def wait() -> None:
        with locked("s3://bucket/limits", "t", timeout_seconds=0.1):
            pass

    with ThreadPoolExecutor(1) as pool, locked("s3://bucket/limits", "t"):
        refused = pool.submit(wait).exception(60)
    assert isinstance(refused, SurveyorError)
    assert str(refused).startswith("another thread of this process has held the lock t of s3://bucket/limits for 0 s")


def _topic(topic: str, snapshot: int) -> dict[str, Any]:
    return {"topic": topic, "snapshot_id": snapshot, "config": {}, "understood": True}


def test_concurrent_commits_of_spark_and_deltalake_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    """Delta's log store for folders renames a commit over one that was made after its look."""
    ours, theirs = (Warehouse(str(tmp_path), name) for name in ("by-spark", "by-deltalake"))
    ours.ensure_tables()
    tables = SparkWarehouse(spark, ours)

    def by_spark(number: int) -> None:
        tables.replace("topics", tables.frame("topics", [_topic(f"t{number}", number)]), f"snapshot_id = {number}")

    def by_deltalake(number: int) -> None:
        theirs.append("topics", [_topic(f"t{number}", number)])
        theirs.replace("topics", [_topic(f"r{number}", 100 + number)], f"snapshot_id = {100 + number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda work: work[0](work[1]), [(f, n) for n in range(8) for f in (by_spark, by_deltalake)]))

    assert {row["topic"] for row in ours.rows("topics")} == {f"t{number}" for number in range(8)}
    assert {row["topic"] for row in theirs.rows("topics")} == {
        f"{kind}{number}" for number in range(8) for kind in "tr"
    }


def test_concurrent_inserts_of_one_key_leave_one_row(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path), "default")
    warehouse.ensure_tables()

    def insert(number: int) -> bool:
        row = _topic("t", number)
        return warehouse.insert("topics", row, ("topic", "=", "t")) is None

    with ThreadPoolExecutor(8) as pool:
        inserted = list(pool.map(insert, range(8)))

    (row,) = warehouse.rows("topics")
    assert inserted.count(True) == 1
    assert row["snapshot_id"] == inserted.index(True)


def test_without_locks_a_row_that_comes_in_between_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an object store: Delta finds that a row was added which the insertion has not seen."""
    between = [_topic("t", 1)]

    class Late(Warehouse):
        def _own_rows(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - those of the original
            rows = super()._own_rows(*arguments, **named)
            while between:
                Warehouse(str(tmp_path), "default").append("topics", [between.pop()])
            return rows

    warehouse = Late(str(tmp_path), "default")
    warehouse.ensure_tables()
    monkeypatch.setattr(lock_files, "is_local", lambda _: False)

    found = warehouse.insert("topics", _topic("t", 2), ("topic", "=", "t"))

    assert found is not None
    assert [row["snapshot_id"] for row in warehouse.rows("topics")] == [found["snapshot_id"]] == [1]
