"""The queries that docs/pages.md shows run in the database that it shows how to open, and say what the pages say."""

import re
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

PAGE = path_of("pages.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    warehouse = Warehouse(str(tmp_path_factory.mktemp("shown") / "warehouse"), "default")
    lived_in(warehouse)
    return warehouse


def _queries() -> dict[str, str]:
    return dict(re.findall(r"^### (\w+)\n.*?```sql\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))


def _scripts(warehouse: Warehouse) -> list[str]:
    blocks = [block for block in code_blocks(PAGE) if "import" in block]
    return [block.replace("/data/surveyor", str(Path(warehouse.uri))) for block in blocks]


def test_every_view_is_shown_and_runs(warehouse: Warehouse) -> None:
    names: dict[str, Any] = {}
    exec(_scripts(warehouse)[0], names)  # noqa: S102 - the page's own script
    database, queries = names["database"], _queries()
    database.execute("SET TimeZone = 'UTC'")
    assert list(queries) == list(VIEWS)
    for name, query in queries.items():
        database.execute(f"CREATE VIEW {name} AS {query}")
    at = Summaries(warehouse, find_snapshot(warehouse))
    shown = {name: as_rows(database.sql(f"FROM {name}").to_arrow_table()) for name in queries}
    expected = {name: at.rows(name) for name in queries}
    for views in (shown, expected):
        for name in ("partition_health", "staying"):  # others are made of the first, and they have no order
            views[name].sort(key=itemgetter("topic", "partition"))
    assert shown == expected


def test_the_views_in_python(warehouse: Warehouse) -> None:
    names: dict[str, Any] = {}
    exec(_scripts(warehouse)[1], names)  # noqa: S102 - as above
    assert [row["broker_id"] for row in names["at"].rows("leadership")] == [0, 1, 2, 3]
