"""The generated pages say what the command line and the tables are now."""

import pytest

from tests.docs.generated import GENERATED, path_of, renewed


@pytest.mark.parametrize("page", GENERATED)
def test_the_page_is_what_is_generated_now(page: str) -> None:
    assert path_of(page).read_text(encoding="utf-8") == renewed(page), f"docs/{page} is out of date: run `make docs`"
