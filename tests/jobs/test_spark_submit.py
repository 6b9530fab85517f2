"""The README's spark-submit commands, as they stand there, from another folder: stdout is what they say alone.

The exit code comes through.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from jobs.adapters.spark.class_archive import JVM_OPTIONS
from jobs.basics.errors import ExitCode
from tests.jobs.support.commands.shown_commands import deployed, said_here, shown
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.spark_archive import JVM

pytestmark = pytest.mark.spark


@pytest.fixture
def elsewhere(tmp_path: Path, distribution: Path) -> Path:
    """A folder that has what the lines name and no more: the environment, what `make dist` makes, and the scripts."""
    return deployed(tmp_path / "elsewhere", distribution)


def _commands(hosts: str, warehouse: Path) -> list[str]:
    """The lines of the README to the letter, but for where ZooKeeper and the warehouse are."""
    here = {"zk1:2181/kafka": hosts, "/data/surveyor": str(warehouse)}
    *before, first, second = (said_here(line, here) for line in shown("README.md", "With spark-submit"))
    assert (hosts in first, str(warehouse) in first, str(warehouse) in second) == (True, True, True)
    return ["\n".join([*before, command]) for command in (first, second)]


def _submitted(command: str, folder: Path, code: int = 0) -> tuple[str, list[str]]:
    """What a command says on stdout, and on stderr without progress and what the JVM says of its modules.

    Nothing of the tests' Spark helps it, but for how its JVM compiles, which costs or saves processor time alone.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    kept |= {JVM_OPTIONS: JVM}
    shell = ["/bin/bash", "-c", command]
    done = subprocess.run(shell, cwd=folder, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    usual = ("  ... ", "WARNING: Using incubator modules")
    return done.stdout, [line for line in done.stderr.splitlines() if not line.startswith(usual)]


def test_commands_of_the_readme(tree: KafkaTree, tmp_path: Path, elsewhere: Path) -> None:
    tree.add_topic("orders", {0: [0, 1]})
    tree.unregister(1)
    snapshot, plan = _commands(tree.hosts, tmp_path / "warehouse")
    result, lines = _submitted(snapshot, elsewhere)
    line, following = result.splitlines()
    assert re.fullmatch(r"snapshot 1 of default: .* 1 topic, 1 partition, .*", line)
    assert (
        following == f"see what is due: surveyor status --zookeeper {tree.hosts} --warehouse {tmp_path / 'warehouse'}"
    )
    assert lines == []
    unset = re.sub("export SPARK_CONF_DIR.*", "", plan)
    result, lines = _submitted(unset, elsewhere)
    assert json.loads(result)["changes"] == 1
    assert len(lines) < 20, lines
    _, lines = _submitted(f"{plan} --snapshot 9", elsewhere, ExitCode.USAGE)
    assert lines[-1].startswith("surveyor: no snapshot 9 of cluster ")
