"""Two commits of one plan at once, under two ids: one writes, and whoever loses the controllership writes no more.

More of them:

    RACES=300 .venv/bin/pytest -m torture tests/jobs/execution/killed
"""

import os
import random
import time
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from jobs.adapters.embedded.servers import EmbeddedZooKeeper
from schemas.names import Outcome, PlanStatus
from tests.jobs.execution.killed.lives import KINDS, Dying, dumped, dying, planned, untrue, with_id
from tests.jobs.support.fake_brokers import FakeBrokers
from tests.jobs.support.kafka_tree import in_parallel

pytestmark = pytest.mark.torture

RACES: Final = int(os.environ.get("RACES", "4"))
HEAD_START: Final = 0.3
"""Seconds that one may begin before the other: as long as both take."""

DONE, FENCED, STALE = 0, 20, 21


def late(seconds: float, dying: Dying, arguments: list[str]) -> int:
    time.sleep(seconds)
    return dying.run(arguments)


def test_of_two_at_once_each_state_is_written_by_one(
    zookeeper_server: EmbeddedZooKeeper, fake_brokers: FakeBrokers, tmp_path: Path
) -> None:
    """Where both were fenced, or what one wrote was stale for the other, a third finishes; nothing is there twice."""
    ids = [with_id(tmp_path, controller_id) for controller_id in (2147483645, 2147483646)]
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with dying(folders[0]) as one, dying(folders[1]) as two:
        with planned(zookeeper_server, fake_brokers, tmp_path, KINDS["elect"]) as here:
            assert one.run(here.commit()) == DONE, one.said
            whole = dumped(here.tree)
        for number in range(RACES):
            with planned(zookeeper_server, fake_brokers, tmp_path, KINDS["elect"]) as here:
                apart = random.uniform(-HEAD_START, HEAD_START)  # noqa: S311 - any will do
                codes = in_parallel(
                    partial(late, max(0.0, apart), one, here.commit(*ids[0])),
                    partial(late, max(0.0, -apart), two, here.commit(*ids[1])),
                )
                said = f"race {number}, {apart:.3f} s apart: {codes}\n{one.said}{two.said}"
                lies = untrue(here)
                third = one.run(here.commit())
                applied = [row for row in here.lake.rows("commits") if row["outcome"] == Outcome.APPLIED]
                changes = {(row["topic"], row["partition"]) for row in applied if row["topic"] is not None}
                found = (lies, third, here.status, dumped(here.tree), len(changes))
            assert set(codes) <= {DONE, FENCED, STALE}, said
            assert found == ([], DONE, PlanStatus.COMMITTED, whole, len(here.plan.changes)), said
