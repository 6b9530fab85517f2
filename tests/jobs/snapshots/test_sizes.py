"""`surveyor sizes` and `show sizes` without brokers: what is kept, what is refused, how it is added up."""

from typing import Any

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from jobs.adapters.brokers.log_dirs import LOG_COLUMNS
from jobs.adapters.delta.warehouse import Warehouse
from jobs.snapshots.sizes import store_sizes
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.warehouse_rows import NOW
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

Log = tuple[int, str, int, str, int, bool]


def _logs(*logs: Log) -> pa.Table:
    """Rows of SIZES: broker, topic, partition, log dir, bytes, future."""
    rows = [(*log[:5], 0, log[5], NOW) for log in logs]
    return pa.Table.from_pylist([dict(zip(LOG_COLUMNS.names, row, strict=True)) for row in rows], schema=LOG_COLUMNS)


def _stored(warehouse: Warehouse) -> set[tuple[Any, ...]]:
    return {(row["broker_id"], row["topic"], row["partition"], row["bytes"]) for row in warehouse.rows("sizes")}


@pytest.fixture
def filled(warehouse: Warehouse) -> Warehouse:
    logs = _logs(
        (0, "orders", 0, "/a", 1000, False), (0, "orders", 0, "/b", 400, True), (1, "bills", 0, "/a", 7, False)
    )
    store_sizes(warehouse, [0, 1, 2], logs)
    return warehouse


def test_sizes_of_brokers_that_answered_are_replaced(filled: Warehouse) -> None:
    other = Warehouse(filled.uri, "other")
    store_sizes(other, [0, 1], _logs((1, "theirs", 0, "/a", 1, False)))
    for _ in range(2):
        store_sizes(filled, [0, 3], _logs((0, "orders", 1, "/a", 2000, False), (3, "orders", 0, "/a", 9, False)))
    assert _stored(filled) == {(0, "orders", 1, 2000), (1, "bills", 0, 7), (3, "orders", 0, 9)}
    assert _stored(other) == {(1, "theirs", 0, 1)}
    store_sizes(filled, [0], _logs())
    assert _stored(filled) == {(1, "bills", 0, 7), (3, "orders", 0, 9)}


def test_no_size_is_negative(warehouse: Warehouse) -> None:
    with pytest.raises(DeltaError, match="1 rows failed validation check"):
        store_sizes(warehouse, [0], _logs((0, "orders", 0, "/a", -1, False)))


def test_brokers_that_do_not_answer_cost_nothing_that_was_known(
    surveyor: Surveyor, filled: Warehouse, tree: KafkaTree
) -> None:
    before = _stored(filled)
    ran = surveyor.run("sizes", "--zookeeper", tree.hosts)
    assert (ran.exit_code, ran.stdout, _stored(filled)) == (22, "", before)
    assert "none of 3 brokers reported its log dirs" in ran.stderr
    assert ran.stderr.count("IncompatibleBrokerVersion") == 1
    assert "brokers 0, 1, 2: " in ran.stderr


def test_no_broker_is_registered(surveyor: Surveyor, bare_tree: KafkaTree) -> None:
    bare_tree.lay_out(brokers=())
    ran = surveyor.run("sizes", "--zookeeper", bare_tree.hosts)
    assert (ran.exit_code, "no broker is registered" in ran.stderr) == (22, True)


def _cells(stdout: str) -> list[list[str]]:
    """The title, then the rows of a table."""
    title, _, _, *rows = stdout.splitlines()
    return [[title.strip()], *([cell.strip() for cell in row.split("│")] for row in rows)]


def test_shown_by_broker(surveyor: Surveyor, filled: Warehouse) -> None:
    del filled
    assert _cells(surveyor.run("show", "sizes").stdout) == [
        ["sizes of default: 1.4 KiB"],
        ["0", "2", "1", "1", "1.4 KiB", "1000 B", "2026-11-21 12:00:00"],
        ["1", "1", "1", "0", "7 B", "7 B", "2026-11-21 12:00:00"],
    ]


def test_shown_by_topic(surveyor: Surveyor, filled: Warehouse) -> None:
    del filled
    assert _cells(surveyor.run("show", "sizes", "--topic", "orders").stdout) == [
        ["sizes of orders: 1.4 KiB in 2 logs"],
        ["orders", "0", "0", "/a", "1000 B", "0", "no"],
        ["orders", "0", "0", "/b", "400 B", "0", "yes"],
    ]


def test_nothing_to_show(surveyor: Surveyor, warehouse: Warehouse) -> None:
    assert surveyor.run("show", "sizes").exit_code == 22
    warehouse.ensure_tables()
    none = surveyor.run("show", "sizes", "--topic", "orders")
    assert (none.exit_code, "run `surveyor sizes --" in none.stderr) == (22, True)
    store_sizes(warehouse, [0], _logs((0, "bills", 0, "/a", 1, False)))
    unknown = surveyor.run("show", "sizes", "--topic", "orders")
    assert (unknown.exit_code, "no broker reported a topic 'orders'" in unknown.stderr) == (2, True)
