"""The pages of several clusters, in the report and in the dashboard: the worst first, each with a link to its own."""

import json
import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
from streamlit.testing.v1 import AppTest

from jobs.adapters.delta.warehouse import Warehouse
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.outside.dashboard import dashboard
from tests.jobs.support.rows.page_rows import HOSTILE, lived_in
from tests.jobs.support.rows.warehouse_rows import Cluster, broker, partition, topic


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """East is well, west has offline and under-replicated partitions; the third has a name that must be escaped."""
    folder = tmp_path_factory.mktemp("fleet") / "warehouse"
    lived_in(Warehouse(str(folder), "west"))
    for name in ("east", HOSTILE):
        cluster = Cluster(Warehouse(str(folder), name))
        cluster.controller |= {"cluster_id": "id", "quarantined": 0}
        cluster.brokers = [broker(number, 10 + number) for number in range(2)]
        cluster.topics = [topic("orders")]
        cluster.partitions = {("orders", 0): partition([0, 1], understood=True)}
        cluster.snapshot()
    return folder


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """Name the clusters of the warehouse, and one without a snapshot."""
    path = tmp_path / "surveyor.toml"
    path.write_text("".join(f"[clusters.{json.dumps(name)}]\n" for name in ("east", "unseen", "west", HOSTILE)))
    return path


def _rows(page: str) -> list[list[str]]:
    """The texts of the table, row by row."""
    (body,) = re.findall(r"<tbody>(.*?)</tbody>", page, re.DOTALL)
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in body.split("</tr>")[:-1]]
    return [[unescape(re.sub(r"<[^>]*>", "", cell)).strip() for cell in row] for row in rows]


def test_a_report_of_all_links_to_the_report_of_each(folder: Path, conf: Path, tmp_path: Path) -> None:
    warehouse = Warehouse(str(folder), "default")
    done = Surveyor(warehouse).run(
        "report", "--all-clusters", "--conf", str(conf), "--out", str(tmp_path / "pages"), "--json"
    )
    result = json.loads(done.stdout)
    assert (done.exit_code, result["failed"], result["path"]) == (22, 1, str(tmp_path / "pages" / "index.html"))
    index = Path(result["path"]).read_text(encoding="utf-8")
    assert HOSTILE not in index
    rows = _rows(index)
    assert [row[0] for row in rows] == ["unseen", "west", HOSTILE, "east"]
    assert rows[0][1].startswith("no snapshot of cluster 'unseen'")
    assert rows[1][1:4] == ["1", "0", "2"]
    links = dict(re.findall(r'<a href="([^"]*)"[^>]*>(.*?)</a>', index))
    named = {unescape(name): index for index, name in links.items()}
    assert named.keys() == {"west", "east", HOSTILE}
    for name, href in named.items():
        page = (tmp_path / "pages" / unquote(href)).read_text(encoding="utf-8")
        assert f"<h1>Cluster {name}</h1>" in unescape(page)


def test_a_folder_that_cannot_be_made_is_refused(folder: Path, conf: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    warehouse = Warehouse(str(folder), "default")
    done = Surveyor(warehouse).run("report", "--all-clusters", "--conf", str(conf), "--out", str(tmp_path / "file"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"surveyor: --out {tmp_path / 'file'} cannot be the folder of the pages")


@pytest.mark.parametrize("option", [["--plan", "p"], ["--snapshot", "1"]])
def test_a_plan_or_a_snapshot_is_of_one_cluster(folder: Path, conf: Path, option: list[str]) -> None:
    done = Surveyor(Warehouse(str(folder), "default")).run("report", "--all-clusters", "--conf", str(conf), *option)
    assert (done.exit_code, f"{option[0]} is for one cluster" in done.stderr) == (2, True)


def _dashboard(folder: Path, **linked: str) -> AppTest:
    app = dashboard(str(folder), "east", **linked)
    assert [element.message for element in app.exception] == []
    return app


def test_the_dashboard_lists_the_clusters_and_follows_a_link(folder: Path) -> None:
    app = _dashboard(folder)
    assert app.title[0].value == "Cluster east"
    app.radio(key="page").set_value("Fleet").run()
    assert app.title[0].value == "Fleet"
    page = "".join(html.proto.body for html in app.get("html"))
    assert HOSTILE not in page
    assert [row[0] for row in _rows(page)] == ["west", HOSTILE, "east"]
    assert 'href="?cluster=west"' in page
    assert _dashboard(folder, cluster="west").title[0].value == "Cluster west"


def test_a_link_to_an_unknown_cluster_leads_to_the_first(folder: Path) -> None:
    assert _dashboard(folder, cluster="none").title[0].value == "Cluster east"


def test_a_warehouse_of_one_cluster_has_no_fleet(tmp_path: Path) -> None:
    lived_in(Warehouse(str(tmp_path / "warehouse"), "east"))
    assert "Fleet" not in _dashboard(tmp_path / "warehouse").radio(key="page").options
