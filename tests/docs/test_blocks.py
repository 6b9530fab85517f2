"""Every block of code of every page is run by a test, or it is said why not."""

from pathlib import Path

import pytest

from tests.docs.blocks import ELSEWHERE, NOT_RUN, RUN, RUN_LINES, WHOLE
from tests.docs.markdown import ROOT, code_blocks, pages

PAGES = pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_block_is_run(page: Path) -> None:
    begins = (*ELSEWHERE.get(page.name, ()), *(RUN_LINES if page.name in RUN else ()))
    blocks = [] if page.name in WHOLE else code_blocks(page.read_text(encoding="utf-8"))
    first = [block.lstrip("\n").removeprefix("$ ") for block in blocks]

    assert [block.splitlines()[0] for block in first if not block.startswith(begins)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_run_elsewhere_is_shown(page: Path) -> None:
    lines = "\n".join(code_blocks(page.read_text(encoding="utf-8"))).splitlines()

    assert [begin for begin in ELSEWHERE.get(page.name, ()) if not any(line.startswith(begin) for line in lines)] == []


def test_each_runner_exists() -> None:
    files = {
        runner for page in (WHOLE, *ELSEWHERE.values()) for runner in page.values() if not runner.startswith(NOT_RUN)
    }

    assert [file for file in files if not (ROOT / file).is_file()] == []
    assert {page.name for page in PAGES} >= {*ELSEWHERE, *WHOLE, *RUN}
