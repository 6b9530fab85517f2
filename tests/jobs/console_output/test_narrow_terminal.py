"""Eighty columns, and no colours without a terminal: every table, with names and numbers as in large clusters."""

import re
from typing import Any, Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.cli import run
from jobs.console_output.losses import SCENARIO_COLUMNS
from jobs.runtime.console import table
from jobs.runtime.output import show
from schemas.columns import TABLE_COLUMNS
from schemas.rows import Row
from tests.jobs.support.rows.empty_tables import lay_tables
from tests.jobs.support.rows.page_rows import change, stored_plan
from tests.jobs.support.rows.warehouse_rows import NOW

TOPIC: Final = "eu-central-1.payments.settled.v2"
REPLICAS: Final = [1001, 1002, 1003]
PLAN: Final = "settled"
VALUES: Final[dict[str, Any]] = {
    "string": TOPIC,
    "integer": 1001,
    "long": 12_345_678,
    "double": 0.125,
    "boolean": True,
    "timestamp": NOW,
}
"""What a column of each type holds."""

NAMED: Final[dict[str, Any]] = {
    "partition": 127,
    "snapshot_id": 2,
    "names": None,
    "plan_seconds": 1.5,
    "leader": 1001,
    "port": 9092,
    "rack": "eu-west-1a",
    "partition_state": "Offline",
    "code": "UNCLEAN_NOT_ALLOWED",
    "log_dir": "/data/kafka-1",
    "brokers": 300,
    "topics": 30_000,
    "partitions": 1_000_000,
    "quarantined": 12,
    "kind": "BrokerRegistered",
}
"""Some columns have values of their own."""

SHOWN: Final = (
    *("brokers", "configs", "drained", "events", "imbalance", "partitions", "plans", "quarantine", "requests"),
    *(
        "sizes",
        "snapshots",
        "throttles",
        "topics",
        f"history --topic {TOPIC}",
        f"sizes --topic {TOPIC}",
        "diff 1 2",
        "commits",
    ),
    *(f"{subject} {PLAN}" for subject in ("commits", "evidence", "rejections")),
)


def row_of(name: str, **own: Any) -> Row:  # noqa: ANN401
    """A row of a table, every column filled."""
    columns = {field["name"]: field["type"] for field in TABLE_COLUMNS[name].json["fields"]}
    filled = {column: NAMED.get(column, _value(kind)) for column, kind in columns.items() if column != "cluster"}
    return {**filled, **{column: value for column, value in own.items() if column in columns}}


def _value(kind: Any) -> Any:  # noqa: ANN401 - JSON of Spark's
    if not isinstance(kind, dict):
        return VALUES.get(kind)
    if kind["type"] == "map" and kind["valueType"] == "double":
        return {"eu-west-1a": 0.125}
    if kind["type"] == "map":
        return {"retention.ms": "604800000", "min.insync.replicas": "2"}
    return REPLICAS if kind["elementType"] == "integer" else ["127:1001"] if kind["elementType"] == "string" else None


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Two snapshots of a cluster, and what belongs to the second."""
    warehouse = Warehouse(str(tmp_path_factory.mktemp("narrow") / "warehouse"), "default")
    lay_tables(warehouse)
    known = stored_plan(warehouse, [change(TOPIC, n, REPLICAS, [1004, *REPLICAS[:2]]) for n in (0, 127)], PLAN)
    for name in TABLE_COLUMNS.keys() - {"snapshots", "plans", "changes", "operations"}:
        warehouse.append(name, [row_of(name, plan_id=known.plan_id)])
    for number in (1, 2):
        versions = {name: warehouse.version(name) for name in TABLE_COLUMNS}
        warehouse.append("snapshots", [row_of("snapshots", snapshot_id=number, versions=versions)])
        warehouse.append("topics", [row_of("topics", topic=f"{TOPIC}-{number}")])
    warehouse.append("partition_history", [row_of("partition_history", snapshot_id=1, leader=1002)])
    return warehouse


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")


def widest(text: str) -> int:
    return max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()))


@pytest.mark.parametrize("subject", SHOWN)
def test_tables_fit_eighty_columns(
    large: Warehouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], subject: str
) -> None:
    on_a_terminal(monkeypatch)

    assert run(["show", *subject.split(), "--warehouse", large.uri]) == 0
    drawn = [line for line in capsys.readouterr().out.splitlines() if re.search("[┃│━]", line)]
    assert drawn
    assert widest("\n".join(drawn)) <= 80


def test_what_vacuum_frees_fits_eighty_columns(
    large: Warehouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_a_terminal(monkeypatch)
    assert run(["vacuum", "--dry-run", "--warehouse", large.uri]) == 0
    drawn = [line for line in capsys.readouterr().out.splitlines() if re.search("[┃│━]", line)]
    assert drawn
    assert widest("\n".join(drawn)) <= 80


def test_losses_fit_eighty_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    on_a_terminal(monkeypatch)
    show(table("default, snapshot 1, losing pairs", SCENARIO_COLUMNS, [row_of("whatif", scenario="brokers 1001+1002")]))
    assert widest(capsys.readouterr().out) <= 80


@pytest.mark.parametrize("wish", [{}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, {"FORCE_COLOR": "1"}], ids=str)
def test_only_a_terminal_that_supports_escapes_gets_them(
    large: Warehouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wish: dict[str, str]
) -> None:
    for name, value in wish.items():
        monkeypatch.setenv(name, value)
    run(["show", "plans", "--warehouse", large.uri])
    assert ("\x1b" in capsys.readouterr().out) == (wish == {"FORCE_COLOR": "1"})
