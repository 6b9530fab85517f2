"""What docs/tables.md shows for notebooks, as a script: it reads the tables, and the interpreter ends as it should."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from jobs.adapters.delta.lake import Lake
from tests.jobs.support.lake_rows import partition

pytestmark = pytest.mark.torture

ROOT: Final = Path(__file__).parents[2]
TIMES: Final = 25
"""deltalake's own file system aborted 5 of 25 scripts at their end."""


def _script(warehouse: str) -> str:
    section = (ROOT / "docs" / "tables.md").read_text().split("## In a notebook")[1]
    (block, *_) = re.findall(r"(?:^    .*\n)+", section, re.MULTILINE)
    *lines, shown = re.sub("^    ", "", block, flags=re.MULTILINE).strip().splitlines()
    return "\n".join([*lines, f"print(len({shown}))"]).replace("/data/surveyor", warehouse)


def _ended(script: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_reader_shown_ends_as_it_should(lake: Lake) -> None:
    lake.ensure_tables()
    for number in range(8):
        rows = [{**partition([0, 1, 2]), "topic": f"t{number}", "partition": p, "snapshot_id": 1} for p in range(1000)]
        lake.append("partitions", rows)
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(_ended, [_script(lake.warehouse)] * TIMES))
    assert found == {(0, "8000\n", "")}
