"""The process that runs commands and kills them."""

from collections.abc import Iterator

import pytest

from tests.jobs.execution.killed.crash_runner import CrashRunner, crash_runner


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashRunner]:
    with crash_runner(tmp_path_factory.mktemp("runner")) as running:
        yield running
