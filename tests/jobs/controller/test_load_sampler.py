"""The process that takes samples for a controller: started again when it ends, and ended with the controller."""

import sys
import time
from pathlib import Path

import pytest

from jobs.controller.load_sampler import repeated_process, running_sampler
from jobs.runtime.settings import ClusterConf, Settings
from jobs.runtime.suggestions import command_options

RUN = "import os, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()}\\n'); time.sleep(float(sys.argv[2]))"


def _process_ids(file: Path, count: int) -> list[int]:
    """Return the ids of so many processes, once they have begun."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        ids = [int(line) for line in file.read_text().splitlines()] if file.exists() else []
        if len(ids) >= count:
            return ids
        time.sleep(0.02)
    raise AssertionError(f"{count} processes were not started")


def _is_running(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


@pytest.mark.parametrize(("seconds", "count"), [("0", 3), ("60", 1)])
def test_a_process_runs_until_the_end(tmp_path: Path, seconds: str, count: int) -> None:
    file = tmp_path / "ids"
    with repeated_process([sys.executable, "-c", RUN, str(file), seconds], restart_seconds=0.01):
        ids = _process_ids(file, count)
    assert len(set(ids)) == len(ids)
    ended = file.read_text()
    assert not any(map(_is_running, map(int, ended.split())))


def test_no_process_without_a_period() -> None:
    with running_sampler(Settings("default", "w", ClusterConf()), None):
        pass


def test_it_gets_the_options_that_were_typed() -> None:
    given = {
        "zookeeper": ("--zookeeper", "zk1"),
        "log_format": ("--log-format", "json"),
        "listen": ("--listen", ":9093"),
        "sample": ("--sample", "5m"),
    }
    settings = Settings("default", "w", ClusterConf(zookeeper="zk1"), given_options=given)
    options = command_options(settings, "load", "sample", "--every", "5m")
    assert options == ["--zookeeper", "zk1", "--log-format", "json"]
