"""`surveyor show plan`: what a reviewer sees of many changes, all of them, or those of a topic, a broker, an action."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pytest

from jobs.adapters.delta.table_schemas import schema_of
from jobs.adapters.delta.warehouse import Warehouse
from jobs.console_output.plan_review import PlanSelection, RowFilter, with_warnings
from jobs.console_output.plan_text import change_line, warnings
from jobs.core.status_line import colored
from jobs.repositories.plans.plans_reader import find_plan
from schemas.enums import Action, PlanKind, RejectionCode
from schemas.operation_data import (
    AlteredConfig,
    CreatedTopic,
    DeletedReplicas,
    DeletedTopic,
    ExpandedTopic,
    OperationData,
    WithdrawnDeletion,
)
from schemas.rows import ChangeSummary, Row
from schemas.tables import CHANGES
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.plan_rows import plan_record
from tests.typed_rows import typed

MANY: Final = 120
ID: Final = "5f5f5f5f5f5f5f5f"

MEASURED: Final = """
import re, sys
from pathlib import Path
from jobs.cli import run
from datetime import UTC, datetime
run(["show", "plan", "many", "--warehouse", sys.argv[1], *sys.argv[2:]])
kilobytes = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
print(int(kilobytes) // 1024, file=sys.stderr)
"""
"""The peak of this program alone: ru_maxrss counts the process that started it, too."""


def _change(topic: str, partition: int, before: list[int], after: list[int], **columns: Any) -> Row:  # noqa: ANN401
    """A change of replicas, led by the first of them, all in sync."""
    change = {
        "wave": 0,
        "topic": topic,
        "partition": partition,
        "action": Action.REASSIGN.value,
        "replicas_before": before,
        "replicas_after": after,
        "leader_before": before[0],
        "leader_after": after[0],
        "isr_before": before,
        "isr_after": after,
        "requires_live": after,
        "requires_dead": [],
        "reason": "evens out",
    }
    return {**dict.fromkeys(CHANGES.names), **change, **columns}


def _rejection(partition: int) -> Row:
    code = RejectionCode.NO_ELIGIBLE_LEADER.value
    return {"topic": "quiet", "partition": partition, "action": "elect", "code": code, "reason": "no replica is live"}


def _many() -> list[Row]:
    """Most move from broker 1 to 4; the election of the last gives broker 2 the lead."""
    moves = [
        _change("busy" if number % 3 else "quiet", number, [1, 2, 3], [4, 2, 3], reason=f"to broker {4 + number % 2}")
        for number in range(MANY - 1)
    ]
    elected = {"action": Action.ELECT.value, "leader_after": 2, "isr_after": [2, 3], "reason": "broker 1 is not live"}
    return [*moves, _change("quiet", MANY, [1, 2, 3], [1, 2, 3], **elected)]


@pytest.fixture
def planned(warehouse: Warehouse) -> Callable[..., Surveyor]:
    """Store a plan of these changes."""

    def plan(changes: list[Row], rejections: list[Row], operations: list[Row], **columns: Any) -> Surveyor:  # noqa: ANN401
        counts = {"changes": len(changes), "rejected": len(rejections), "moves": len(changes)}
        warehouse.ensure_tables()
        warehouse.append("plans", [plan_record(ID, **{"names": ["grow"], "name": "grow", **counts, **columns})])
        for table, rows in (("changes", changes), ("rejections", rejections), ("operations", operations)):
            warehouse.append(table, [{**row, "plan_id": ID} for row in rows])
        return Surveyor(warehouse)

    return plan


@pytest.fixture
def surveyor(planned: Callable[..., Surveyor]) -> Surveyor:
    return planned(_many(), [_rejection(number) for number in range(60)], [])


def _lines(surveyor: Surveyor, *arguments: str) -> list[str]:
    done = surveyor.run("show", "plan", "grow", *arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout.splitlines()


def _changes(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines if "leader " in line]


def test_first_sums_by_action_and_topic(surveyor: Surveyor) -> None:
    lines = _lines(surveyor)
    assert lines[1:3] == ["  by action: 119 reassign, 1 elect", "  by topic: busy 79, quiet 41"]
    assert "  rejected: 60 NO_ELIGIBLE_LEADER" in lines


def test_then_sums_by_broker_and_kind_of_reason(surveyor: Surveyor) -> None:
    assert _lines(surveyor)[3:8] == [
        "  leaders by broker: 1: -120, 2: +1, 4: +119",
        "  replicas by broker: 1: -119, 4: +119",
        "  in sync by broker: 1: -120, 4: +119",
        "  119 times: to broker *",
        "  1 time: broker 1 is not live",
    ]


def test_many_rows_are_summed_up_with_the_command_that_lists_them(surveyor: Surveyor) -> None:
    lines, whole = _lines(surveyor), f"surveyor show plan grow --all --warehouse {surveyor.warehouse.uri}"
    assert (len(lines) <= 25, _changes(lines)) == (True, [])
    assert f"  the 120 changes: {whole}" in lines
    assert f"  the 60 rejections: {whole}" in lines


def test_few_changes_are_listed_and_not_summed_up(planned: Callable[..., Surveyor]) -> None:
    lines = _lines(planned(_many()[:10], [], []))
    assert (len(_changes(lines)), [line for line in lines if " by " in line or " times: " in line]) == (10, [])


def test_all_rows_are_shown_on_request(surveyor: Surveyor) -> None:
    every = _lines(surveyor, "--all")
    assert len(_changes(every)) == MANY
    assert sum(line.startswith("  rejected quiet-") for line in every) == 60
    assert not any("--all" in line for line in every)


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (("--topic", "busy"), 79),
        (("--action", "elect"), 1),
        (("--broker", "1"), 120),
        (("--broker", "4"), 119),
        (("--broker", "2"), 1),
        (("--broker", "2", "--topic", "busy"), 0),
        (("--broker", "3"), 0),
    ],
)
def test_only_some_changes(surveyor: Surveyor, arguments: tuple[str, ...], count: int) -> None:
    assert len(_changes(_lines(surveyor, *arguments, "--all"))) == count
    rows = json.loads(surveyor.run("show", "plan", "grow", *arguments, "--json").stdout)["rows"]
    assert len(rows) == count


def test_more_of_a_topic_is_shown_by_the_same_filters(surveyor: Surveyor) -> None:
    lines = _lines(surveyor, "--topic", "busy")
    assert "  --topic busy: 79 changes, 0 rejected" in lines
    assert f"  the 79 changes: surveyor show plan grow --topic busy --all --warehouse {surveyor.warehouse.uri}" in lines


def test_a_new_first_replica_means_something_for_both(planned: Callable[..., Surveyor]) -> None:
    """The leader stays until an election."""
    surveyor = planned([_change("t", 0, [1, 2, 3], [2, 1, 3], leader_after=1)], [], [])
    counts = {broker: len(_changes(_lines(surveyor, "--broker", str(broker)))) for broker in (1, 2, 3)}
    shown = {broker: any(" t-0 " in line for line in _lines(surveyor, "--broker", str(broker))) for broker in (1, 2, 3)}
    assert (counts, shown) == ({1: 0, 2: 0, 3: 0}, {1: True, 2: True, 3: False})


def test_programs_get_every_row(surveyor: Surveyor, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    done = surveyor.run("show", "plan", "grow", "--json", "--result-file", str(file))
    answer = json.loads(done.stdout)
    assert file.read_text() == done.stdout
    assert (len(answer["rows"]), len(answer["rejection_rows"])) == (MANY, 60)
    assert (answer["plan_id"], answer["changes"], answer["rejected"]) == (ID, MANY, 60)
    assert answer["summary"]["actions"] == [{"action": "reassign", "rows": 119}, {"action": "elect", "rows": 1}]


def test_rows_for_programs_have_all_columns_in_order(surveyor: Surveyor) -> None:
    rows = json.loads(surveyor.run("show", "plan", "grow", "--json").stdout)["rows"]
    order = [(row["topic"], row["partition"]) for row in rows]
    assert order == sorted(order)
    assert set(rows[0]) == set(CHANGES.names)


def test_rejections_beyond_those_shown(planned: Callable[..., Surveyor]) -> None:
    surveyor = planned([], [_rejection(number) for number in range(210)], [])
    shown = surveyor.run("show", "rejections", "grow").stdout
    more = f"surveyor show rejections grow --all --warehouse {surveyor.warehouse.uri}"
    assert f"... and 10 more: `{more}` shows them" in shown
    assert surveyor.run("show", "rejections", "grow", "--all").stdout.count("NO_ELIGIBLE_LEADER") == 210
    assert len(json.loads(surveyor.run("show", "rejections", "grow", "--json").stdout)["rows"]) == 210


def test_an_operation_is_not_no_change(planned: Callable[..., Surveyor]) -> None:
    """Neither of one plan nor in the list of plans."""
    operation = AlteredConfig(topic_id=None, before={}, after={}).operation("busy").columns()
    surveyor = planned([], [], [operation], kind=PlanKind.CONFIG.value)
    assert _lines(surveyor)[0].endswith("config, planned; 1 operation, 0 replica moves, 0 rejected")
    surveyor.warehouse.append("snapshots", [{"snapshot_id": 1, "taken_at": datetime.now(UTC), "versions": {}}])
    (row,) = json.loads(surveyor.run("show", "plans", "--json").stdout)["rows"]
    assert row["operations"] == 1


def _warned_of() -> list[Row]:
    """Changes of every kind that causes warnings, and others."""
    lasting = _change("t", 0, [1, 2], [1, 9], requires_live=[1])
    let_go = [_change("t", 1, [1, 2], [1, 9], requires_live=[1]), _change("t", 1, [1, 9], [1, 3], wave=1)]
    offline = _change("t", 2, [1, 2], [1, 2], action=Action.TAKE_OFFLINE.value, leader_after=-1)
    unclean = _change("t", 3, [1, 2], [1, 2], action=Action.ELECT.value, isr_before=[1], isr_after=[2], leader_after=2)
    clean = _change("t", 4, [1, 2], [1, 2], action=Action.ELECT.value, isr_after=[2], leader_after=2)
    return [lasting, *let_go, offline, unclean, clean]


@pytest.mark.parametrize("kind", [PlanKind.REASSIGN, PlanKind.RECONCILE])
def test_no_warning_is_lost_among_many(planned: Callable[..., Surveyor], kind: PlanKind) -> None:
    surveyor = planned(_warned_of(), [], [], kind=kind.value)
    row = find_plan(surveyor.warehouse, ID)
    review = PlanSelection(surveyor.warehouse, row, RowFilter())
    changes = review.changes(whole=False)
    moves = row.traits.moves_replicas
    every = list(warnings(msgspec.convert(list(changes), list[ChangeSummary]), [], [], [], moves_replicas=moves))
    assert list(review.warnings(changes)) == every
    assert len(every) == (3 if kind is PlanKind.REASSIGN else 2)
    assert with_warnings(changes, moves_replicas=moves)[[0, 4]].tolist() == [kind is PlanKind.REASSIGN, False]


def test_settings_are_held_against_the_replication_factor_of_all_changes(planned: Callable[..., Surveyor]) -> None:
    """The last partition has fewer replicas than all before it."""
    data = json.dumps({"topic_id": "x", "config": {"min.insync.replicas": "2"}})
    operation = {"sequence": 0, "kind": "create_topic", "topic": "new", "data": data}
    create = {"action": Action.CREATE.value, "replicas_before": None, "leader_before": None, "isr_before": None}
    changes = [_change("new", number, [1, 2], [1, 2, 3], **create) for number in range(MANY)]
    surveyor = planned([*changes, _change("new", MANY, [1], [1], **create)], [], [operation], kind=PlanKind.ASSIGN)
    assert "  warning: topic new: min.insync.replicas=2 with 1 replica: acks=all writes will all fail" in _lines(
        surveyor
    )


def test_many_changes_are_shown_without_an_object_for_each(planned: Callable[..., Surveyor]) -> None:
    """As Python objects 100,000 of them would be half a gigabyte more than the program itself."""
    surveyor = planned([], [], [], names=["many"])
    rows = [{**row, "plan_id": ID, "cluster": "default"} for row in _many()[:100]]
    block = pa.Table.from_pylist(rows, schema=schema_of("changes"))
    surveyor.warehouse.replace_by("changes", pa.concat_tables([block] * 1_000).combine_chunks())
    command = [sys.executable, "-c", MEASURED, surveyor.warehouse.uri]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "the 100000 changes: " in done.stdout
    assert int(done.stderr.splitlines()[-1]) < 450


def test_a_change_in_a_line() -> None:
    change = typed(
        topic="orders",
        partition=7,
        action=Action.ELECT.value,
        replicas_before=[2, 5],
        replicas_after=[2, 5],
        leader_before=2,
        leader_after=5,
        isr_before=[2, 5],
        isr_after=[5],
        reason="broker 2 is not live",
    )

    assert change_line(change) == "~ orders-7  leader 2→5  isr [2,5]→[5]  broker 2 is not live"


OPERATIONS: Final = [
    (CreatedTopic(topic_id="x", config={}), "+ create_topic t"),
    (CreatedTopic(topic_id="x", config={"a": "1"}, unknown=["a"]), "+ create_topic t  config a=1"),
    (ExpandedTopic(topic_id="x", existing=1, partitions=3), "+ expand_topic t  existing 1  partitions 3"),
    (DeletedTopic(topic_id="x"), "- delete_topic t"),
    (DeletedReplicas(topic_id="x", replicas={0: [1, 2]}), "- delete_replicas t  replicas 0=[1,2]"),
    (AlteredConfig(topic_id="x", before={"a": None}, after={"a": "1"}, losses=["b"]), "~ alter_config t  a not set→1"),
    (WithdrawnDeletion(reason="no such topic", exists=False), "~ withdraw_deletion t  reason no such topic"),
]


@pytest.mark.parametrize(("data", "line"), OPERATIONS)
def test_an_operation_in_a_line(data: OperationData, line: str) -> None:
    assert change_line(data.operation("t")) == line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("line", "painted_line"),
    [
        ("  + a-0  replicas [1]", "  \x1b[32m+\x1b[0m a-0  replicas [1]"),
        ("  would be written: - a  delete_topic", "  would be written: \x1b[31m-\x1b[0m a  delete_topic"),
        ("  ~ a-0  leader 0→1 - why", "  \x1b[33m~\x1b[0m a-0  leader 0→1 - why"),
        ("  moves 3 - 1", "  moves 3 - 1"),
    ],
)
def test_signs_have_colours_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch, line: str, painted_line: str) -> None:
    terminal, pipe = Terminal(), io.StringIO()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    assert (colored(line, terminal), colored(line, pipe)) == (painted_line, line)
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert colored(line, terminal) == line
