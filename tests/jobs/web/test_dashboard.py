"""`surveyor dashboard`: what its pages say and hide, run without a server; and how it is started, or is not."""

import json
import re
import socket
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.ports import free_port
from jobs.web.dashboard import cache
from jobs.web.dashboard.components import plain_text
from schemas.enums import PlanKind
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.outside.dashboard import dashboard
from tests.jobs.support.rows.page_rows import HOSTILE, SECRET, config_operation, lived_in, stored_plan, very_many
from tests.jobs.support.rows.warehouse_rows import Cluster


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    warehouse = Warehouse(str(tmp_path_factory.mktemp("dashboard") / "warehouse"), "default")
    lived_in(warehouse)
    stored_plan(warehouse, [], "altered", [config_operation()], kind=PlanKind.CONFIG)
    return warehouse


def _opened(warehouse: Warehouse, *options: str) -> AppTest:
    return _calm(dashboard(warehouse.uri, warehouse.cluster, *options))


def _calm(app: AppTest) -> AppTest:
    assert [element.message for element in app.exception] == []
    assert [element.value for element in app.error] == []
    return app


def _turned(app: AppTest, page: str) -> AppTest:
    return _calm(app.radio(key="page").set_value(page).run())


def _cards(app: AppTest) -> dict[str, str]:
    """The numbers of the cards, by what they count."""
    card = r'<div class="[a-z]*"><strong>([^<]*)</strong>([^<]*)</div>'
    return {name: value for html in app.get("html") for value, name in re.findall(card, html.proto.body)}


def _cells(app: AppTest, number: int = 0) -> list[list[Any]]:
    rows: list[list[Any]] = app.dataframe[number].value.to_numpy().tolist()
    return rows


def test_the_slider_goes_through_history(warehouse: Warehouse) -> None:
    app = _opened(warehouse)
    assert "snapshot 3 (id id) taken 2026-11-21 12:00:00 UTC" in app.text[0].value
    assert [element.value for element in app.markdown] == []  # as docstrings of names in the script would be
    assert (_cards(app)["partitions offline"], len(_cells(app))) == ("1", 2)
    earlier = _calm(app.slider(key="snapshot").set_value(1).run())
    assert "snapshot 1 (id id) taken 2026-11-21 10:00:00 UTC" in earlier.text[0].value
    assert (_cards(earlier)["partitions offline"], len(earlier.dataframe)) == ("0", 0)
    typed = _calm(app.number_input(key="snapshot number").set_value(2).run())
    assert (typed.slider(key="snapshot").value, typed.text[0].value[:10]) == (2, "snapshot 2")


def test_the_slider_stays_on_the_newest_until_a_user_moves_it(tmp_path: Path) -> None:
    """An open page follows the newest snapshot, and does not keep the number of another cluster."""
    warehouse = Warehouse(str(tmp_path / "warehouse"), "default")
    cluster, other = lived_in(warehouse), Cluster(Warehouse(warehouse.uri, "other"))
    for _ in range(4):
        other.snapshot()
    app = _opened(warehouse)
    cache.snapshots.clear()
    cluster.snapshot()
    app = _calm(app.run())
    assert app.slider(key="snapshot").value == 4
    app = _calm(app.slider(key="snapshot").set_value(2).run())
    cache.snapshots.clear()
    cluster.snapshot()
    app = _calm(app.run())
    assert app.slider(key="snapshot").value == 2
    app = _calm(app.selectbox(key="cluster").set_value("other").run())
    assert app.slider(key="snapshot").value == 4


def test_a_browser_receives_no_list_of_snapshots(tmp_path: Path) -> None:
    """A year of them would be sent at each click; a number that no snapshot has selects the last one before it."""
    warehouse = Warehouse(str(tmp_path / "warehouse"), "default")
    lived_in(warehouse)
    snapshots = warehouse.read("snapshots").sort_by("snapshot_id")
    numbers = pa.array([1, 2, 100_000], snapshots.schema.field("snapshot_id").type)
    place = snapshots.schema.get_field_index("snapshot_id")
    warehouse.replace_by("snapshots", snapshots.set_column(place, snapshots.schema.field(place), numbers))
    app = _opened(warehouse)
    assert "snapshot 100000 " in app.text[0].value
    assert app.slider(key="snapshot").proto.ByteSize() < 1_000
    app = _calm(app.slider(key="snapshot").set_value(99_999).run())
    assert "snapshot 2 " in app.text[0].value


def test_charts_are_those_of_the_report(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.web.cluster_page.BROKERS_DRAWN", 3)
    cache.sections.clear()
    app = _opened(warehouse)

    brokers, imbalance = app.get("iframe")
    drawn = [element.value for element in app.caption if element.value.startswith("The charts")]
    assert drawn == ["The charts show the 3 brokers that lead most."]
    assert "broker 2 (gone)" in brokers.proto.srcdoc
    assert imbalance.proto.srcdoc.count("<polyline ") == 3
    history = _turned(app, "Leader history").get("iframe")[0]
    cache.sections.clear()
    assert history.proto.srcdoc.count('<rect class="gone"') == 1


def test_from_a_broker_to_its_partitions(warehouse: Warehouse) -> None:
    app = _turned(_opened(warehouse), "Brokers")
    assert [row[:3] for row in _cells(app)] == [[f"{HOSTILE}-0", "leads", "Online"], ["orders-0", "in sync", "Online"]]
    gone = _calm(app.selectbox(key="broker").set_value(2).run())
    assert "gone" in gone.text[1].value
    assert _cards(gone)["leaders"] == "0"
    assert [row[0] for row in _cells(gone)] == ["orders-0", "orders-1"]
    searched = _calm(gone.text_input(key="search-broker-2").set_value("OFFLINE orders").run())
    assert [row[0] for row in _cells(searched)] == ["orders-1"]


def test_page_of_load(warehouse: Warehouse) -> None:
    app = _turned(_opened(warehouse), "Load")
    assert "Hour from 2026-11-21 11:00 to 12:00 UTC" in app.text[1].value
    assert (_cards(app)["limits exceeded"], _cards(app)["bytes in"]) == ("2", "37.2 MiB/s")
    assert [element.value.split()[0] for element in app.warning] == [
        "the",
        "broker",
        "broker",
        "leaders",
        plain_text(f"{HOSTILE}-0"),
    ]
    assert [cell[0] for cell in _cells(app)] == ["0", "1", "3"]
    assert [cell[0] for cell in _cells(app, 1)] == [f"{HOSTILE}-0", "orders-0"]
    assert [frame.proto.srcdoc.count("<figure>") for frame in app.get("iframe")] == [1, 1]
    earlier = _calm(app.slider(key="snapshot").set_value(1).run())
    assert "Hour from 2026-11-21 10:00 to 11:00 UTC" in earlier.text[1].value


def test_capacities_of_the_configuration_file(warehouse: Warehouse) -> None:
    """They are those of the cluster that the dashboard was started for."""
    app = _turned(_opened(warehouse, "--capacity", '{"out": "100MB/s"}'), "Load")
    rows = app.dataframe[0].value
    assert rows["% of network out"].to_list() == [51, 42, 24]


def test_a_cluster_without_load(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path / "warehouse"), "default")
    Cluster(warehouse).snapshot()
    app = _turned(_opened(warehouse), "Load")
    assert [element.value.partition(".")[0] for element in app.info] == ["No load is known before this time"]


def test_page_of_leader_history(warehouse: Warehouse) -> None:
    app = _turned(_opened(warehouse), "Leader history")

    assert [row[:3] for row in _cells(app)][:2] == [["orders-1", "none", "2"], ["orders-0", "1", "2"]]


def test_page_of_plans(warehouse: Warehouse) -> None:
    app = _turned(_opened(warehouse), "Plans")
    assert sorted(row[1] for row in _cells(app)) == ["altered", "grow"]

    grow = next(row[0] for row in _cells(app) if row[1] == "grow")
    app = _calm(app.selectbox(key="plan").set_value(grow).run())

    assert [row[0] for row in _cells(app, 2)] == [f"{HOSTILE}-0", "orders-0"]
    assert "planned at" in app.dataframe[0].value.columns


def test_page_of_commits(warehouse: Warehouse) -> None:
    app = _turned(_opened(warehouse), "Commits")

    assert [row[1] for row in _cells(app)] == [2, 1]
    assert [row[4] for row in _cells(app, 1)] == ["pending"]


def test_what_is_secret_is_on_no_page(warehouse: Warehouse) -> None:
    app = _turned(_opened(warehouse), "Plans")
    altered = next(row[0] for row in _cells(app) if row[1] == "altered")
    shown = [app.selectbox(key="plan").set_value(altered).run(), _turned(app, "Commits")]
    texts = [str([element.value for element in (*page.code, *page.text)]) + _all_cells(page) for page in shown]
    assert [SECRET in text for text in texts] == [False, False]
    assert all("(hidden)" in text for text in texts)


def _all_cells(app: AppTest) -> str:
    return str([_cells(app, number) for number in range(len(app.dataframe))])


def test_a_thousand_of_very_many_rows_are_sent(tmp_path: Path) -> None:
    many = Warehouse(str(tmp_path / "warehouse"), "default")
    very_many(many, 3_000)
    app = _opened(many)
    assert app.caption[0].value == "2,000 of 2,000 unhealthy partitions; the first 1,000 are shown"
    assert len(_cells(app)) == 1_000
    searched = _calm(app.text_input(key="search-trouble").set_value("topic-007-").run())
    assert searched.caption[0].value == "4 of 2,000 unhealthy partitions"


def test_a_cluster_called_like_a_picture() -> None:
    """Which Markdown would fetch from elsewhere."""
    assert plain_text("![x](https://example.org/x.png)") == r"\!\[x\]\(https\:\/\/example\.org\/x\.png\)"


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Command lines that the process would have become."""
    calls: list[list[str]] = []

    def become(arguments: list[str]) -> NoReturn:
        calls.append(arguments)
        raise SystemExit(0)

    monkeypatch.setattr("jobs.dashboard._become", become)
    return calls


def test_it_listens_on_the_loopback_by_default(warehouse: Warehouse, executed: list[list[str]]) -> None:
    port = free_port()
    done = Surveyor(warehouse).run("dashboard", "--port", str(port), "--json")
    assert json.loads(done.stdout) == {"url": f"http://127.0.0.1:{port}", "cluster": "default"}
    (arguments,) = executed
    assert arguments[arguments.index("--address") + 1] == "127.0.0.1"


def test_without_streamlit_it_says_what_to_install(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.dashboard.find_spec", lambda _: None)
    done = Surveyor(warehouse).run("dashboard")
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (24, "", 1)
    assert "pip install 'kafka-surveyor[dashboard]'" in done.stderr


def test_a_port_that_is_taken(warehouse: Warehouse, executed: list[list[str]]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = Surveyor(warehouse).run("dashboard", "--port", str(port))
    assert (done.exit_code, executed) == (2, [])
    assert f"--port {port}: cannot listen there (Address already in use)" in done.stderr


def test_a_warehouse_that_is_not_there(tmp_path: Path, executed: list[list[str]]) -> None:
    done = Surveyor(Warehouse(str(tmp_path / "none"), "default")).run("dashboard")
    assert (done.exit_code, executed, "no warehouse at" in done.stderr) == (22, [], True)
