"""The demo is the main job: it must end well, with its last line, and leave no process behind.

It is run as `make demo` runs it, for a user who has never run anything of Surveyor. The demo of a migration is the test
of one that is completed; see test_migration_brokers.py for one that is rolled back. The demo of load fails unless the
load after its plan is the predicted one.
"""

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jobs.adapters.delta.warehouse import Warehouse
from jobs.cli import app
from jobs.core.errors import ExitCode
from tests.jobs.support.commands.user_shell import bare, home

pytestmark = [pytest.mark.brokers, pytest.mark.spark]

SHOWN = {
    "demo": ["changed state znodes carry our controller epoch", "the plan is complete"],
    "demo --kraft": [
        "rejected cache-0  NO_ELIGIBLE_LEADER",
        "1 partition may lose data by an unclean election: cache-0",
        "(accept-loss): 1 complete; the plan is complete",
        "is safe: 0 offline, 0 under min ISR",
    ],
    "demo --load": [
        "leaders and replicas are even and load is not",
        "nothing is due",
        "worst broker before: measured 2.",
        "worst broker after: measured 1.",
    ],
    "demo --migration --pause": [
        "export SURVEYOR_ZOOKEEPER=127.0.0.1:",
        "nothing prevents the migration; 1 warning",
        "/migration names KRaft controller 3000",
        "topic config orders: retention.ms 3600000 -> 7200000",
        "topic created during: topic_id none -> ",
        "export SURVEYOR_BOOTSTRAP_SERVERS=127.0.0.1:",
        "has all that snapshot 1 had",
        "proof.html",
    ],
}


@pytest.mark.parametrize(
    "command",
    ["demo", "demo --load", "demo --migration --pause", pytest.param("demo --kraft", marks=pytest.mark.repeat)],
)
def test_demo_loses_nothing_and_leaves_nothing(tmp_path: Path, command: str) -> None:
    user = home(tmp_path / "home")
    surveyor = f"{Path(sys.executable).parent}/surveyor {command}"
    done = bare(f"yes '' | {surveyor}", tmp_path, user, TMPDIR=str(tmp_path))  # Enter, for a demo that pauses
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    last = re.fullmatch(r"records acked=(\d+) read=(\d+) lost=0", done.stdout.splitlines()[-1])
    assert last is not None
    assert last[1] == last[2] != "0"
    assert [text for text in SHOWN[command] if text not in done.stdout + done.stderr] == []
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("surveyor")] == []


@pytest.mark.parametrize("name", ["demo", "warehouse"])
def test_a_warehouse_of_another_cluster_is_refused_before_servers_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Also one that is named as the default of other commands."""
    monkeypatch.chdir(tmp_path)
    warehouse = Warehouse(name, "default")
    warehouse.ensure_tables()
    warehouse.append("snapshots", [{"snapshot_id": 1, "taken_at": datetime.now(UTC), "versions": {}}])

    done = CliRunner().invoke(app, ["demo", "--warehouse", name])

    assert done.exit_code == ExitCode.REFUSED
    assert done.stderr.endswith(
        f"{name} has snapshots of cluster 'default', and the demo starts a new cluster; give another folder with "
        "--warehouse, or another name with --cluster\n"
    )
