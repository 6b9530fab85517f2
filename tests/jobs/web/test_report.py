"""`surveyor report`: what a page says, what it hides, and what is said where none can be made. No browser."""

import json
import re
from datetime import UTC, datetime, timedelta
from html import escape, unescape
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.runtime.settings import ClusterConf, Settings
from jobs.web.plan_page import PlanTables, before_and_after, plan_page
from schemas.enums import OperationKind, PlanKind
from schemas.rows import PlanRecord, Row
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.rows.load_rows import partition_row
from tests.jobs.support.rows.page_rows import HOSTILE, SECRET, change, config_operation, lived_in, stored_plan
from tests.jobs.support.rows.warehouse_rows import Cluster, broker, partition, topic

ISLAND: Final = r'<script type="application/json" id="rows-{}">(.*?)</script>'


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return lived_in(Warehouse(str(tmp_path_factory.mktemp("template") / "warehouse"), "default"))


@pytest.fixture
def small(template: Cluster, warehouse: Warehouse) -> Warehouse:
    """The small cluster, in a warehouse of the test's own."""
    template.copied_to(warehouse)
    return warehouse


def _page(warehouse: Warehouse, out: Path, *arguments: str) -> str:
    done = Surveyor(warehouse).run("report", "--out", str(out), *arguments)
    assert done.exit_code == 0, done.stderr
    return out.read_text(encoding="utf-8")


def _cells(page: str, island: str) -> list[list[Any]]:
    """The rows of an island, cell by cell."""
    embedded = re.search(ISLAND.format(island), page)
    assert embedded is not None
    known = json.loads(embedded[1])
    columns = [
        [column["values"][code] for code in column["codes"]] if "codes" in column else column["values"]
        for column in known["columns"]
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def _plain_cells(page: str, table: str) -> list[list[str]]:
    """The cells of a table that the page has without a script, row by row, as they are escaped."""
    found = re.search(rf'<table class="plain" id="{table}">.*?<tbody>(.*?)</tbody>', page, re.DOTALL)
    assert found is not None
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in found[1].split("</tr>")[:-1]]


def _plan_page(warehouse: Warehouse, plan: PlanRecord, now: datetime | None = None) -> str:
    settings = Settings(warehouse.cluster, warehouse.uri, ClusterConf())
    return plan_page(settings, PlanTables.read(warehouse, plan.plan_id), now or datetime.now(UTC))


def _warnings(page: str) -> list[str]:
    return re.findall(r'<li class="bad">(.*?)</li>', page)


def test_nothing_that_is_secret_is_in_any_page(small: Warehouse, tmp_path: Path) -> None:
    stored_plan(small, [], "altered", [config_operation()], kind=PlanKind.CONFIG)
    pages = [_page(small, tmp_path / f"{name}.html", *more) for name, more in _EVERY.items()]
    assert [SECRET in page for page in pages] == [False, False, False]
    assert all("(hidden)" in page for page in pages)
    assert _cells(pages[2], "operations")[0][3].count("(hidden)") == 2
    for form in ("wide", "json", "yaml"):
        shown = Surveyor(small).run("show", "commits", "grow", "-o", form).stdout
        assert (SECRET in shown, "sasl.jaas.config is now (hidden)" in shown) == (False, True)


_EVERY: Final = {"cluster": (), "plan": ("--plan", "grow"), "altered": ("--plan", "altered")}


def test_what_could_be_markup_is_in_no_page_as_such(small: Warehouse, tmp_path: Path) -> None:
    for name, more in list(_EVERY.items())[:2]:
        page = _page(small, tmp_path / f"{name}.html", *more)
        assert HOSTILE not in page
        assert page.count("<script") == 1 + page.count('<script type="application/json"')
        assert "&lt;script&gt;" in page


def test_a_page_is_self_contained(small: Warehouse, tmp_path: Path) -> None:
    page = _page(small, tmp_path / "page.html")
    assert "default-src 'none'" in page
    assert re.findall(r"""(?:src|href)=["'](?!data:,|#)""", page) == []
    assert "://" not in page


def test_a_report_as_of_an_older_snapshot(small: Warehouse, tmp_path: Path) -> None:
    page = _page(small, tmp_path / "page.html", "--snapshot", "1")
    assert "snapshot 1 taken" in page
    assert page.count("has not been simulated yet") == 3
    assert [row[:2] for row in _cells(page, "leaders")][-1] == ["orders-1", "2"]


def test_a_report_has_the_newest_simulation_of_each_loss(small: Warehouse, tmp_path: Path) -> None:
    """Of losing a broker that is the one of snapshot 3, of losing a rack that of snapshot 2."""
    loss = {"lose": "racks=1", "lost": [1], "offline": 0, "newly_offline": 0}
    small.append("whatif", [{**loss, "snapshot_id": number, "scenario": f"rack of {number}"} for number in (1, 2)])
    page = _page(small, tmp_path / "page.html")
    assert [row[0] for row in _cells(page, "whatif-racks")] == ["rack of 2"]
    assert "Losing racks=1: the worst 1 of 1, on snapshot 2" in page
    assert "Losing brokers=1: the worst 2 of 2<" in page


def test_a_report_has_the_load_of_the_last_hour(small: Warehouse, tmp_path: Path) -> None:
    page = unescape(_page(small, tmp_path / "page.html"))
    section = page[page.index('<section id="load">') : page.index('<section id="leaders">')]
    assert "Hour from 2026-11-21 11:00 to 12:00 UTC, which ended" in section
    facts = re.findall(r"<li class=\"(\w*)\"><strong>(.*?)</strong>(.*?)</li>", section)
    assert facts == [
        ("", "37.2 MiB/s", "bytes in"),
        ("", "37.2 MiB/s", "bytes out to consumers"),
        ("", "1.00 of its share", "broker 0, most disk"),
        ("warn", "1.31 of its share", "broker 0, most network in"),
        ("warn", "1.31 of its share", "broker 0, most network out"),
        ("", "1.00 of its share", "broker 0, most CPU"),
        ("bad", "2", "limits exceeded"),
        ("bad", "3", "disks full within 7 days"),
    ]
    notes = section[section.index('<ul class="notes">') :].partition("</ul>")[0]
    age, *others = (note.partition(";")[0] for note in re.findall("<li>(.*?)</li>", notes))
    assert re.fullmatch(r"the newest load is \d+ days old, and was imported", age)
    assert others == [
        "broker 0: its disk is full on Saturday, 2026-11-21 16:00 UTC",
        "broker 0 uses 127% of its network in, and its limit is 80%",
        "leaders and replicas are even and load is not: broker 0 has 1.31 times its share of bytes in",
        (
            f"{HOSTILE}-0 alone is 55% of the bytes out of broker 0: no move makes it smaller, only more partitions or "
            "other keys"
        ),
    ]


def test_tables_of_load(small: Warehouse, tmp_path: Path) -> None:
    page = _page(small, tmp_path / "page.html")
    assert [row[:3] for row in _cells(page, "load-brokers")] == [
        ["0", 60, 127.5],
        ["1", 60, 105],
        ["3", 60, 60],
    ]
    busiest = [row[-4:-2] for row in _cells(page, "load-brokers")]
    assert busiest[0] == ["Sat 2026-11-21 11:00 UTC", 97.275]
    assert _cells(page, "load-partitions") == [
        [f"{HOSTILE}-0", "0", 54.902, "bytes out", 13.351, 13.351, 13.351, 1, "mean_size", "compacted"],
        ["orders-0", "1", 21.429, "bytes out", 2.861, 2.861, 5.722, 0.5, "delta_size", ""],
    ]


def test_load_as_of_an_older_snapshot(small: Warehouse, tmp_path: Path) -> None:
    """That of the last hour that began before the next snapshot, of which an hour has no load."""
    page = _page(small, tmp_path / "page.html", "--snapshot", "1")
    assert "Hour from 2026-11-21 10:00 to 11:00 UTC" in page
    assert [row[0] for row in _cells(page, "load-partitions")] == ["orders-0"]


def test_a_cluster_whose_load_was_not_measured(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path / "warehouse"), "default")
    Cluster(warehouse).snapshot()
    page = _page(warehouse, tmp_path / "page.html")
    assert "No load is known; run:" in page
    assert "surveyor load sample --every 5m" in page
    assert "svg.hours" in page
    assert 'class="chart hours"' not in page


def test_imported_load_of_every_hour_has_no_map(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path / "warehouse"), "default")
    cluster = Cluster(warehouse)
    cluster.brokers, cluster.topics = [broker(0, 10), broker(1, 11)], [topic("orders")]
    cluster.partitions = {("orders", 0): partition([0, 1])}
    cluster.snapshot()
    row = partition_row(None, "orders", 0, 2.0**20, leader=None, method="imported", size_bytes=None)
    warehouse.append("partition_load", [row])
    page = _page(warehouse, tmp_path / "page.html")
    assert "Imported loads, for every hour" in page
    assert 'class="chart hours"' not in page
    assert _cells(page, "load-partitions") == [["orders-0", "0", 100, "bytes out", 1, 1, 1, "imported", ""]]


def test_report_lists_no_plan_or_commit_after_its_snapshot(small: Warehouse, tmp_path: Path) -> None:
    """The plan is on snapshot 3, and its commits came after it."""
    pages = [_page(small, tmp_path / f"{number}.html", "--snapshot", str(number)) for number in (2, 3)]

    assert [f'id="rows-{island}"' in pages[0] for island in ("plans", "commits")] == [False, False]
    assert [len(_cells(pages[1], island)) for island in ("plans", "commits")] == [1, 2]
    assert [row[1:4] for row in _cells(pages[1], "commits")] == [
        [2, "commit of reassign", "pending"],
        [1, "commit of reassign", "stale"],
    ]


def test_an_approver_sees_the_command_as_it_was_typed(small: Warehouse) -> None:
    typed = "surveyor plan reassign --rebalance --by-size --exclude 'test-.*'"
    plan = stored_plan(small, [change("orders", 0, [2, 1, 0], [1, 3, 0])], command=typed)

    assert f"<pre>{typed}</pre>" in unescape(_plan_page(small, plan))
    assert Surveyor(small).run("show", "plan", plan.plan_id).stdout.splitlines()[1] == f"  command: {typed}"


def test_planned_id_of_a_new_topic_is_not_shown(small: Warehouse) -> None:
    """Kafka's controller makes its own; batch mode alone uses it."""
    data = {"topic_id": "planned-id", "config": {"retention.ms": "1"}}
    new = {"sequence": 0, "kind": OperationKind.CREATE_TOPIC.value, "topic": "new", "data": json.dumps(data)}
    asked: Row = {"topic": "new", "partitions": 1} | data
    plan = stored_plan(small, [], "fresh", [new], kind=PlanKind.ASSIGN, parameters=asked)
    page, shown = _plan_page(small, plan), Surveyor(small).run("show", "plan", "fresh").stdout

    assert ["retention.ms" in text for text in (page, shown)] == [True, True]
    assert ["planned-id" in text for text in (page, shown)] == [False, False]


def test_the_result_has_the_path_of_the_page(small: Warehouse, tmp_path: Path) -> None:
    out = tmp_path / "plan.html"
    done = Surveyor(small).run("report", "--plan", "grow", "--out", str(out), "--json")
    result = json.loads(done.stdout)
    assert (result["path"], result["bytes"], result["snapshot_id"]) == (str(out), out.stat().st_size, 3)
    assert list(tmp_path.glob(".plan*")) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--plan", "nosuch"), 2, "no plan 'nosuch'"),
        (("--snapshot", "9"), 2, "no snapshot 9"),
        (("--plan", "grow", "--snapshot", "1"), 2, "a plan has its own"),
        (("--out", "/nosuch/page.html"), 2, "--out /nosuch/page.html cannot be written"),
        (("--cluster", "other"), 22, "no snapshot of cluster 'other'"),
    ],
)
def test_a_page_that_cannot_be_made(small: Warehouse, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = Surveyor(small).run("report", *arguments)
    assert (done.exit_code, message in done.stderr, done.stdout) == (code, True, "")
    assert len(done.stderr.splitlines()) == 1


def test_no_page_of_a_plan_that_was_edited(small: Warehouse, tmp_path: Path) -> None:
    small.update("changes", "topic = 'orders'", leader_after="0")
    done = Surveyor(small).run("report", "--plan", "grow", "--out", str(tmp_path / "page.html"))
    assert (done.exit_code, "its stored rows were changed or deleted" in done.stderr) == (23, True)
    assert list(tmp_path.glob("*.html")) == []


def test_what_a_plan_is_warned_of_comes_first(small: Warehouse) -> None:
    dead = change("orders", 1, [2, 3], [3, 2], requires_live=[3])
    offline = change("orders", 0, [2, 1, 0], [2, 1, 0], action="take_offline", leader_after=-1)
    plan = stored_plan(small, [dead, offline], snapshot_id=2)
    warned = _warnings(_plan_page(small, plan, plan.created_at + timedelta(hours=25)))
    assert [text.partition(":")[0].partition(" of plan ")[0] for text in warned] == [
        "this plan is 25 h 0 min old, and a commit refuses plans older than 24 h; plan again",
        "this plan is on snapshot 2, and the newest is 3",
        "1 partition keeps a replica on a broker that is not live",
        "1 partition goes offline",
        "broker 2 is not live",
        "snapshot 2 is older than the commit",
    ]


def test_which_broker_to_start_is_a_warning_of_a_recovery(small: Warehouse) -> None:
    """Orders-1 is offline, and broker 2 alone was in sync: the page to approve from says so."""
    plan = stored_plan(small, [], kind=PlanKind.RECOVER, parameters={"allow_unclean": False})

    assert (
        "1 partition offline, and Surveyor cannot elect a leader: start broker 2 first (last in sync of it)"
    ) in _warnings(_plan_page(small, plan))


def test_what_goes_with_a_topic_is_warned_of(small: Warehouse) -> None:
    delete = {"sequence": 0, "kind": OperationKind.DELETE_TOPIC.value, "topic": "orders", "data": "{}"}
    warned = _warnings(_plan_page(small, stored_plan(small, [], operations=[delete], kind=PlanKind.DELETE)))
    assert warned[-1].startswith("snapshot 3 is older than the commit of plan ")
    assert warned[-2] == "a deletion cannot be undone"
    assert warned[-3].startswith("topic orders would be deleted with")


@pytest.mark.parametrize(("status", "is_shown"), [("planned", True), ("cancelled", False), ("refused", False)])
def test_only_what_a_commit_carries_out_is_approved(small: Warehouse, status: str, *, is_shown: bool) -> None:
    plan = stored_plan(small, [change("orders", 0, [2, 1, 0], [1, 2, 0])])
    small.update("plans", f"plan_id = '{plan.plan_id}'", status=f"'{status}'")
    assert (f"surveyor commit {plan.plan_id}" in _plan_page(small, plan)) == is_shown


@pytest.mark.parametrize(("status", "warning"), [("cancelled", "cannot be committed"), ("partial", "already started")])
def test_a_plan_that_is_planned_no_more(small: Warehouse, status: str, warning: str) -> None:
    plan = stored_plan(small, [change("orders", 0, [2, 1, 0], [1, 2, 0])])
    small.update("plans", f"plan_id = '{plan.plan_id}'", status=f"'{status}'")
    assert warning in _warnings(_plan_page(small, plan))[0]


def _counts(warehouse: Warehouse, plan: PlanRecord) -> dict[int, tuple[int, ...]]:
    """Leaders before and after, replicas before and after, by broker."""
    rows = before_and_after(PlanTables.read(warehouse, plan.plan_id))
    return {row.broker_id: (*row.leaders, *row.replicas) for row in rows}


def test_waves_are_summed_up_from_the_first_to_the_last(small: Warehouse) -> None:
    waves = [change("orders", 0, [2, 1, 0], [1, 0, 3]), change("orders", 0, [1, 0, 3], [3, 0, 1], wave=1)]
    counts = _counts(small, stored_plan(small, waves))
    assert counts == {0: (1, 1, 2, 2), 1: (1, 0, 1, 1), 2: (0, 0, 2, 1), 3: (0, 1, 2, 3)}


def test_new_partitions_and_deleted_topics_count(small: Warehouse) -> None:
    new = {"replicas_before": None, "leader_before": None, "isr_before": None, "is_new": True, "action": "create"}
    delete = {"sequence": 0, "kind": OperationKind.DELETE_TOPIC.value, "topic": "orders", "data": "{}"}
    plan = stored_plan(small, [change("new", 0, [3], [3, 4], **new)], operations=[delete])
    assert _counts(small, plan) == {0: (1, 1, 2, 1), 1: (1, 0, 1, 0), 2: (0, 0, 2, 0), 3: (0, 1, 2, 2), 4: (0, 0, 0, 1)}


def test_a_plan_whose_snapshot_was_dropped(small: Warehouse) -> None:
    plan = stored_plan(small, [change("orders", 0, [2, 1, 0], [1, 3, 0])], snapshot_id=1)
    small.delete("snapshots", "snapshot_id = 1")
    page = _plan_page(small, plan)
    assert "snapshot 1, which was deleted by" in page
    assert "only partitions that change are counted" in page
    assert _counts(small, plan) == {0: (0, 0, 1, 1), 1: (0, 1, 1, 1), 2: (1, 0, 1, 0), 3: (0, 0, 0, 1)}


def test_reasons_are_read_of_the_newest_plans_alone(
    small: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_plan(small, [change("orders", 0, [2, 1, 0], [1, 0, 2], reason="newer")])
    monkeypatch.setattr("jobs.web.snapshot_views.MAX_CHANGES_READ", 2)
    page = _page(small, tmp_path / "page.html")
    assert [row[-1] for row in _cells(page, "plans")] == ["newer", ""]
    assert "rows-commits" not in page


def test_what_an_optimised_plan_copies(small: Warehouse) -> None:
    figures = {
        "lower_bound": 1,
        "bound": "1 replica has to be copied",
        "left": 0,
        "held": 0,
        "replicas_per_broker": [[1, 2], [1, 2]],
        "leaders_per_broker": [[0, 1], [0, 1]],
        "replicas_per_rack": {HOSTILE: [1, 2]},
        "moves_bytes": 2048,
        "bytes_per_broker": [[0, 4096], [2048, 2048]],
        "bytes_by_broker": {"0": [4096, 2048], "1": [0, 2048]},
        "sizes": {"source": "table", "digest": "9f", "known": 3, "assumed": 1},
    }
    parameters = {"rebalance": True, "figures": figures}
    page = _plan_page(small, stored_plan(small, [change("orders", 0, [2, 1, 0], [1, 2, 0])], parameters=parameters))
    assert "broker 0: before 4.0 KiB" in page
    assert "<li>moves 2.0 KiB</li>" in page
    assert _plain_cells(page, "spans") == [
        ["replicas per broker", "1..2", "1..2"],
        ["preferred leaders per broker", "0..1", "0..1"],
        ["bytes per broker", "0 B..4.0 KiB", "2.0 KiB..2.0 KiB"],
        [f"replicas in rack {escape(HOSTILE)}", "1", "2"],
    ]
    assert "<pre>{&#34;rebalance&#34;: true}</pre>" in page
    assert HOSTILE not in page


def test_the_waves_of_a_plan_are_a_table(small: Warehouse) -> None:
    waves = {"count": 2, "fewest": 1, "moves": [1, 1], "most_in": [1, 1], "most_out": [0, 1]}
    figures = {"lower_bound": 2, "bound": "b", "left": 0, "held": 0, "replicas_per_rack": {}, "waves": waves}
    changes = [
        change("orders", 0, [2, 1, 0], [2, 1, 3], wave=0),
        change("orders", 1, [2, 3], [2, 0], wave=1),
    ]
    page = _plan_page(small, stored_plan(small, changes, parameters={"figures": figures}))
    assert "<li>waves 2 (at least 1)</li>" in page
    assert _plain_cells(page, "waves") == [["0", "1", "1", "0"], ["1", "1", "1", "1"]]
    assert re.findall("<th>(.*?)</th>", page)[-4:] == [
        "wave",
        "replicas copied",
        "most into a broker",
        "most out of one",
    ]


def test_evidence_for_a_recovery(small: Warehouse) -> None:
    plan = stored_plan(small, [], kind=PlanKind.RECOVER)
    known = {"last_in_isr_snapshot": 2, "last_in_isr_at": datetime(2026, 11, 21, tzinfo=UTC), "epochs_since": 3}
    row = {"plan_id": plan.plan_id, "topic": "orders", "partition": 1, "broker_id": 3, "rank": 1, **known}
    small.append("evidence", [row])
    page = _plan_page(small, plan)
    assert _cells(page, "evidence") == [["orders-1", 1, "3", 2, "2026-11-21 00:00:00", 3, None]]
