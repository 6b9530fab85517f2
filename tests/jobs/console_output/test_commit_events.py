"""Services of a commit give typed events to a reporter, which logs their lines."""

from pathlib import Path
from typing import Final

import pytest

from jobs.console_output import commit_events as events
from jobs.console_output.commit_events import CommitEvent, log_event

ROOT: Final = Path(__file__).parents[3]
FAULT_LOGGERS: Final = {
    "admin/cancellation_requests.py",
    "admin/connections.py",
    "admin/running_waves.py",
    "ended_plans.py",
    "partition_cancellation.py",
}
"""Services that log a fault, or let the lease do so."""


def test_every_event_is_reported() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "jobs/execution").rglob("*.py"))

    assert [kind.__name__ for kind in CommitEvent.__subclasses__() if f"{kind.__name__}(" not in source] == []


def test_services_log_faults_alone() -> None:
    folder = ROOT / "jobs/execution"
    importing = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        for line in path.read_text().splitlines()
        if line.startswith("from jobs.runtime.console import") and "log" in line.split()[3:]
    }
    assert {name for name in importing if name not in FAULT_LOGGERS} == set()


def test_lines_of_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    log_event(events.StatesVerified(states=2, epoch=8, found=1))
    log_event(events.BrokersNotified(["LeaderAndIsr"], [], is_partial=False, silent=[3], errors=["broker 3: what?"]))

    assert capsys.readouterr().err.splitlines() == [
        "  2 of 2 changed state znodes carry our controller epoch 8, or a later one",
        "  1 more had the planned state already",
        "  LeaderAndIsr accepted by no broker",
        "surveyor: no answer from brokers 3: Kafka's next controller sends them the changes",
        "surveyor: broker 3: what?",
    ]


def test_fields_of_an_event_in_json() -> None:
    assert events.TakenOver(controller_epoch=8, broker_id=7).fields == {"controller_epoch": 8, "broker_id": 7}
