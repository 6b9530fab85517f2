"""Commits in batch mode, after which a broker becomes the controller, or none does."""

import pytest


@pytest.fixture
def successor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker that is the controller after a commit; -1 is none."""
    monkeypatch.setattr("jobs.execution.batch.batch_commit.current_controller", lambda _: request.param)
