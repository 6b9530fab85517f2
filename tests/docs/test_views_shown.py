"""The views that docs/tables.md names run in the database that it shows how to open, and hold what the pages show."""

from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import as_rows
from jobs.repositories.snapshots import find_snapshot
from jobs.sql_views.database import Summaries
from jobs.sql_views.views import VIEWS
from tests.docs.generated import path_of
from tests.docs.markdown import code_blocks
from tests.jobs.support.rows.page_rows import lived_in

PAGE = path_of("tables.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    warehouse = Warehouse(str(tmp_path_factory.mktemp("shown") / "warehouse"), "default")
    lived_in(warehouse)
    return warehouse


def _scripts(warehouse: Warehouse) -> list[str]:
    blocks = [block for block in code_blocks(PAGE) if '/data/surveyor"' in block]
    return [block.replace("/data/surveyor", str(Path(warehouse.uri))) for block in blocks]


def test_every_view_runs(warehouse: Warehouse) -> None:
    names: dict[str, Any] = {}
    exec(_scripts(warehouse)[0], names)  # noqa: S102 - the page's own script
    database = names["database"]
    database.execute("SET TimeZone = 'UTC'")
    at = Summaries(warehouse, find_snapshot(warehouse))
    shown = {name: as_rows(database.sql(f"FROM {name}").to_arrow_table()) for name in VIEWS}
    expected = {name: at.rows(name) for name in VIEWS}
    for views in (shown, expected):
        for name in ("partition_health", "staying"):  # others are made of the first, and they have no order
            views[name].sort(key=itemgetter("topic", "partition"))
    assert shown == expected


def test_the_views_in_python(warehouse: Warehouse) -> None:
    names: dict[str, Any] = {}
    exec(_scripts(warehouse)[1], names)  # noqa: S102 - as above
    assert [row["broker_id"] for row in names["at"].rows("leadership")] == [0, 1, 2, 3]
