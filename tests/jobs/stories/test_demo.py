"""The demo is the main job: it must end well, with its last line, and leave no process behind.

It is run as `make demo` runs it, for a user who has never run anything of Surveyor.
"""

import re
import sys
from pathlib import Path

import pytest

from tests.jobs.support.commands.bare import bare, home

pytestmark = [pytest.mark.brokers, pytest.mark.spark]


def test_demo_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    user = home(tmp_path / "home")
    done = bare(f"{Path(sys.executable).parent}/surveyor demo", tmp_path, user, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    last = re.fullmatch(r"records acked=(\d+) read=(\d+) lost=0", done.stdout.splitlines()[-1])
    assert last is not None
    assert last[1] == last[2] != "0"
    assert "changed state znodes carry our controller epoch" in done.stderr
    assert "the plan is complete" in done.stdout
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("surveyor")] == []
