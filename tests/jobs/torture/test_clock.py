"""Clocks that are set: what the rounds do to Surveyor's processes, and which modules read the wall clock."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.jobs.torture.clock import COMPILER, Clock

ROOT = Path(__file__).parents[3]

WALL_CLOCK = re.compile(r"\b(?:(?:time|clock|self)\.time(?:_ns)?|time_ns|datetime\.(?:now|utcnow|today)|date\.today)\(")

SHOWN = {
    "jobs/adapters/brokers/responses.py": "answers.at",
    "jobs/adapters/brokers/log_dirs.py": "sizes.taken_at",
    "jobs/adapters/zookeeper/controllership.py": "the timestamp in /controller, which no process reads",
    "jobs/controller/term.py": "snapshots.taken_at of a snapshot that does not exist, which no table has",
    "jobs/controller/write_behind.py": "plans.created_at",
    "jobs/repositories/actor.py": "start time of the holder, shown to processes that wait",
    "jobs/execution/admin/throttles.py": "throttles.set_at",
    "jobs/core/units.py": "ages",
    "jobs/web/dashboard/pages.py": "ages",
    "jobs/web/report.py": "ages",
    "jobs/web/load_replay_page.py": "when the page was made",
    "jobs/repositories/drained_brokers.py": "drained.since",
    "jobs/repositories/plans/plans_writer.py": "plans.verified_at",
    "jobs/repositories/plans/commit_rows.py": "commits.committed_at",
    "jobs/repositories/plans/plan_rows.py": "plans.created_at",
    "jobs/snapshots/snapshot.py": "snapshots.taken_at",
    "jobs/console_output/metrics.py": "ages",
    "jobs/console_output/cluster_tables.py": "when `show ... --now` read ZooKeeper",
    "jobs/checks/cluster_status.py": "ages",
    "jobs/show.py": "the moment of `show events --since`",
    "jobs/console_output/status.py": "ages",
    "jobs/console_output/stored_tables.py": "ages",
    "jobs/web/dashboard/cache.py": "ages",
    "jobs/measurement/imports.py": "broker_capacity.valid_from, and the newest hour that Prometheus is asked for",
    "jobs/measurement/profiles.py": "load_profiles.created_at",
    "jobs/measurement/rollup.py": "the moment of --since",
}
JUDGED = {
    "jobs/adapters/brokers/admin_client.py": "age of a call, by both clocks; a set clock can only prevent a request",
    "jobs/adapters/brokers/oauth_tokens.py": "expiry of tokens, a time of day; a wrong clock loses a connection only",
    "jobs/adapters/delta/warehouse_lease.py": "leases.deadline; its holder checks the row before each write",
    "jobs/checks/kraft_checks.py": "doctor compares it with that of the quorum's leader",
    "jobs/execution/admin/admin_commit.py": "the hour whose load a throttle follows",
    "jobs/execution/admin/controller_client.py": "a long check of the lease is done again",
    "jobs/checks/doctor.py": "doctor compares it with ZooKeeper's and the time of the last snapshot",
    "jobs/execution/preflight.py": "--max-plan-age; a plan from the future is refused, too",
    "jobs/repositories/snapshot_tables.py": "whether a snapshot is read at once or lazily; the rows are the same",
    "jobs/adapters/brokers/group_offsets.py": "sampled_at; with clocks that differ, loads of neighbours cancel out",
    "jobs/adapters/brokers/partition_offsets.py": "sampled_at, likewise",
    "jobs/measurement/partition_samples.py": "sampled_at of disks",
    "jobs/measurement/sampling.py": "stored_at; a rollup computes an hour more than it says is new",
    "jobs/snapshots/vacuum.py": "vacuum; touches no cluster, and keeps the newest snapshot",
}


def test_only_listed_modules_read_the_wall_clock() -> None:
    """Waiting, holding and giving up use a clock that cannot be set (time.monotonic), or ZooKeeper's judgement."""
    files = (path for room in ("jobs", "planner", "schemas") for path in (ROOT / room).rglob("*.py"))
    readers = {str(path.relative_to(ROOT)) for path in files if WALL_CLOCK.search(path.read_text())}

    assert readers == SHOWN.keys() | JUDGED.keys()


@pytest.mark.skipif(COMPILER is None, reason="no C compiler, which the rounds need to set clocks")
def test_a_process_goes_by_the_clock_that_is_set(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    program = "import time\nwhile input(): print(time.time(), time.monotonic(), flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=clock.environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for seconds in (0, 7200, -7200):
            clock.set(seconds)
            process.stdin.write("?\n")
            process.stdin.flush()
            wall, monotonic = map(float, process.stdout.readline().split())
            assert (wall - time.time(), monotonic) == pytest.approx((seconds, time.monotonic()), abs=5)
        process.communicate("\n")
