"""What the tests of pages share: a warehouse to look at, and a browser for a module."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from jobs.adapters.delta.warehouse import Warehouse
from tests.jobs.support.outside.browser import started
from tests.jobs.support.rows.page_rows import lived_in, very_many

MANY = 100_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, shared by a module's tests; each opens windows of its own."""
    with started() as running:
        yield running


@pytest.fixture(scope="session")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A warehouse of two clusters: `default` has lived through something, `large` has very many partitions."""
    warehouse = str(tmp_path_factory.mktemp("looked-at") / "warehouse")
    lived_in(Warehouse(warehouse, "default"))
    very_many(Warehouse(warehouse, "large"), MANY)
    return warehouse
