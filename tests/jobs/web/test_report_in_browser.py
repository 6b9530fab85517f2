"""Reports as a browser shows them: complete, self-contained, readable in dark and light, usable with 100,000 rows."""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser

from jobs.adapters.delta.warehouse import Warehouse
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.outside.browser import NARROW, WIDE, RenderedPage, rendered
from tests.jobs.support.rows.page_rows import HOSTILE

MOST_DRAWN: Final = 150
"""Rows of a table that may be in the page at once."""

OVERFLOW: Final = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
SCRIPTS: Final = "[...document.scripts].filter((each) => each.type !== 'application/json').length"
LABELS: Final = """
[...document.querySelectorAll("svg.chart text")].map((text) =>
    parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)
"""
"""How large each label of a chart is on the screen, in pixels."""
UNUSED: Final = """
Math.max(...[...document.querySelectorAll("figure")].map((figure) => {
    const charts = figure.parentElement.querySelectorAll(":scope > figure").length;
    const columns = Math.min(charts, Math.max(1, Math.floor(figure.parentElement.clientWidth / 416)));
    return figure.parentElement.clientWidth / columns - figure.querySelector("svg").getBoundingClientRect().width;
}))
"""
"""The most pixels of its share of the page's width that a chart leaves to margins, names and numbers."""
MOST_UNUSED: Final = 230
CONTRASTS: Final = """
(() => {
    const light = (color) => {
        const parts = color.match(/[0-9.]+/g).slice(0, 3).map((part) => part / 255)
            .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
    };
    const ground = light(getComputedStyle(document.body).backgroundColor);
    const texts = "main p, main li, main th button, main td, .facts strong, svg.chart text";
    return [...document.querySelectorAll(texts)].map((each) => {
        const style = getComputedStyle(each);
        const ink = light(each instanceof SVGElement ? style.fill : style.color);
        return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
    });
})()
"""
"""How far the ink of each text is from the ground, as WCAG counts it: 4.5 is readable."""


@dataclass(frozen=True, slots=True)
class Reports:
    """Pages that were written, as addresses."""

    cluster: str
    plan: str
    plan_of_many: str


@pytest.fixture(scope="module")
def reports(looked_at: str, tmp_path_factory: pytest.TempPathFactory) -> Reports:
    folder = tmp_path_factory.mktemp("reports")
    small, large = (Warehouse(looked_at, name) for name in ("default", "large"))
    pages = [
        (small, "cluster", ()),
        (small, "plan", ("--plan", "grow")),
        (large, "plan_of_many", ("--plan", "all")),
    ]
    return Reports(**{name: _written(warehouse, folder / f"{name}.html", *more) for warehouse, name, more in pages})


def _written(warehouse: Warehouse, out: Path, *more: str) -> str:
    done = Surveyor(warehouse).run("report", "--cluster", warehouse.cluster, "--out", str(out), *more)
    assert done.exit_code == 0, done.stderr
    return out.as_uri()


def _rows(rendered_page: RenderedPage, name: str) -> list[str]:
    return rendered_page.texts(f'[data-rows="{name}"] tbody tr[aria-rowindex]')


def _count(rendered_page: RenderedPage, name: str) -> str:
    return rendered_page.texts(f'[data-rows="{name}"] .count')[0]


@pytest.mark.parametrize("page", ["cluster", "plan"])
def test_a_report_is_self_contained_and_escapes_texts(browser: Browser, reports: Reports, page: str) -> None:
    url = getattr(reports, page)
    with rendered(browser, url) as rendered_page:
        assert (rendered_page.faults, rendered_page.elsewhere(url)) == ([], [])
        assert HOSTILE in rendered_page.texts("main")[0]
        assert rendered_page.value(SCRIPTS) == 1


def test_a_report_of_a_cluster_has_charts(browser: Browser, reports: Reports) -> None:
    marks = {
        "svg.chart[role=img]": 6,
        "svg.hours rect": 36,
        "svg.bars rect": 14,
        "svg.lines polyline": 3,
        "svg.shades rect": 8,
    }
    titles = {
        "svg.shades rect.gone title": ["broker 2, #3 2026-11-21 12:00 UTC: gone"],
        "svg.shades rect.not-there title": ["broker 3, #1 2026-11-21 10:00 UTC: not there"],
        "svg.lines .value": ["66.7 %", "100 %", "10 %"],
    }
    with rendered(browser, reports.cluster) as rendered_page:
        counts = {mark: rendered_page.value(f"document.querySelectorAll('{mark}').length") for mark in marks}
        texts = {
            mark: rendered_page.value(f"[...document.querySelectorAll('{mark}')].map((label) => label.textContent)")
            for mark in titles
        }

    assert (counts, texts) == (marks, titles)


def test_a_report_of_a_cluster_has_tables(browser: Browser, reports: Reports) -> None:
    with rendered(browser, reports.cluster) as rendered_page:
        assert "snapshot 3 taken 2026-11-21 12:00:00 UTC" in rendered_page.texts("header")[0]
        assert _rows(rendered_page, "trouble")[0].split("\t")[:3] == ["orders-1", "Offline", "none"]
        assert "orders-0\t1\t2\t2" in "\n".join(_rows(rendered_page, "leaders"))
        assert [row.split("\t")[5:7] for row in _rows(rendered_page, "commits")] == [["0", "0"], ["1", "1"]]
        assert "(unknown)" in rendered_page.value("document.querySelector('main').textContent")
        assert rendered_page.value("shortened('t'.repeat(249) + '-17')").endswith("ttt-17")
        assert "surveyor whatif --cluster default --lose pairs" in rendered_page.texts("#whatif")[0]


@pytest.mark.parametrize("page", ["cluster", "plan"])
def test_a_report_can_be_read_dark_and_light_narrow_and_wide(browser: Browser, reports: Reports, page: str) -> None:
    grounds = set()
    with rendered(browser, getattr(reports, page)) as rendered_page:
        for dark, (width, height) in product((False, True), (WIDE, NARROW)):
            rendered_page.page.set_viewport_size({"width": width, "height": height})
            rendered_page.page.emulate_media(color_scheme="dark" if dark else "light")
            grounds.add((dark, rendered_page.value("getComputedStyle(document.body).backgroundColor")))
            assert rendered_page.value(OVERFLOW) == 0
            assert min(rendered_page.value(LABELS)) >= 8.5
            assert rendered_page.value(UNUSED) <= MOST_UNUSED
            assert min(rendered_page.value(CONTRASTS)) >= 4.5
    assert grounds == {(False, "rgb(255, 255, 255)"), (True, "rgb(20, 23, 28)")}


def test_a_plan_is_approved_from_its_page(browser: Browser, reports: Reports) -> None:
    with rendered(browser, reports.plan) as rendered_page:
        assert rendered_page.texts("main section h2")[0] == "Warnings"
        assert [row.split("\t")[0] for row in _rows(rendered_page, "changes")] == [f"{HOSTILE}-0", "orders-0"]
        assert "[2,1,0] → [1,3,0]" in _rows(rendered_page, "changes")[1]
        assert [row.split("\t")[2:] for row in _rows(rendered_page, "brokers")] == [
            ["1", "0", "2", "2", "-1", "0"],
            ["1", "1", "1", "1", "0", "0"],
            ["0", "0", "2", "1", "0", "-1"],
            ["0", "1", "2", "3", "1", "1"],
        ]
        assert rendered_page.value("document.querySelectorAll('#brokers svg.chart').length") == 4


def test_very_many_changes_are_searched_and_sorted(browser: Browser, reports: Reports) -> None:
    with rendered(browser, reports.plan_of_many) as rendered_page:
        assert _count(rendered_page, "changes") == "100,000 rows"
        changes = rendered_page.page.locator('[data-rows="changes"]')
        assert 20 < len(_rows(rendered_page, "changes")) < MOST_DRAWN
        changes.get_by_label("Search").fill("topic-007-1")
        # partitions 1, 1x and 1xx of it
        assert _count(rendered_page, "changes") == "111 of 100,000 rows"
        changes.get_by_label("Search").fill("topic-007-19 reassign")
        assert _rows(rendered_page, "changes")[0].split("\t")[0] == "topic-007-19"
        changes.get_by_label("Search").fill("")
        changes.get_by_label("Broker").fill("4")
        alone = _rows(rendered_page, "changes")
        assert alone
        assert all("4" in row.replace("[", ",").replace("]", ",").split("\t")[4].split(",") for row in alone)
        changes.get_by_label("Broker").fill("four")
        assert _count(rendered_page, "changes") == "0 of 100,000 rows"
        changes.get_by_label("Broker").fill("")
        button = changes.get_by_role("button", name="partition")
        button.click()
        button.click()
        assert _rows(rendered_page, "changes")[0].split("\t")[0] == "topic-499-199"
        assert rendered_page.value("document.getElementsByTagName('*').length") < 5_000
        assert rendered_page.faults == []


def test_the_last_of_very_many_rows_is_scrolled_to(browser: Browser, reports: Reports) -> None:
    with rendered(browser, reports.plan_of_many) as rendered_page:
        view = rendered_page.page.locator('[data-rows="changes"] .window')
        view.evaluate("(view) => { view.scrollTop = view.scrollHeight; }")
        last = rendered_page.page.locator('[data-rows="changes"] tr[aria-rowindex="100001"]')
        last.wait_for()
        assert last.inner_text().startswith("topic-499-199")
        assert len(_rows(rendered_page, "changes")) < MOST_DRAWN
        rendered_page.page.locator('[data-rows="brokers"]').get_by_label("rack").select_option("b")
        assert _count(rendered_page, "brokers") == "8 of 24 rows"
        assert rendered_page.faults == []
