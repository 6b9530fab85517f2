"""What the pages show of the project is there: modules that are run or imported, files that are named."""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from tests.docs.markdown import ROOT, code_blocks, code_spans, pages

SHOWN: Final = "\n".join(block for page in pages() for block in code_blocks(page.read_text(encoding="utf-8")))

PATH: Final = re.compile(r"(jobs|planner|schemas|tests|conf|docs)/[\w./-]*")


@pytest.mark.parametrize("module", sorted(set(re.findall(r"python -m ([\w.]+)", SHOWN))))
def test_modules_that_are_run_exist(module: str) -> None:
    assert find_spec(module) is not None


@pytest.mark.parametrize(("module", "name"), re.findall(r"^from ([\w.]+) import (\w+)", SHOWN, re.MULTILINE))
def test_what_is_imported_exists(module: str, name: str) -> None:
    assert hasattr(import_module(module), name)


@pytest.mark.parametrize("file", sorted(set(re.findall(r"(?<=[ /])jobs/\w+\.py\b", SHOWN))))
def test_files_that_are_submitted_exist(file: str) -> None:
    assert (ROOT / file).is_file()


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_paths_in_sentences_exist(page: Path) -> None:
    named = [span for span in code_spans(page.read_text(encoding="utf-8")) if PATH.fullmatch(span)]
    assert [path for path in named if not (ROOT / path).exists()] == []
