"""The README's spark-submit commands, as they stand there, from another folder: stdout is what they say alone."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from jobs.adapters.spark.session import JVM_OPTIONS
from tests.jobs.support.kafka_tree import KafkaTree
from tests.spark_archive import JVM

pytestmark = pytest.mark.spark

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture
def elsewhere(tmp_path: Path, distribution: Path) -> Path:
    """A folder that has what the lines name and no more: the environment, what `make dist` makes, and the scripts."""
    folder = tmp_path / "elsewhere"
    (folder / "dist").mkdir(parents=True)
    shutil.copy(distribution, folder / "dist")
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "jobs").mkdir()
    for script in ("snapshot.py", "plan.py"):
        shutil.copy(ROOT / "jobs" / script, folder / "jobs")
    return folder


def _commands(hosts: str, warehouse: Path) -> list[str]:
    """The lines of the README to the letter, but for where ZooKeeper and the warehouse are."""
    section = (ROOT / "README.md").read_text().split("### With spark-submit")[1].split("##")[0]
    lines = "\n".join(re.findall(r"^    (.*)$", section, re.MULTILINE)).replace("\\\n", "")
    for said, here in {"zk1:2181/kafka": hosts, "/data/surveyor": str(warehouse)}.items():
        assert said in lines
        lines = lines.replace(said, here)
    *before, first, second = lines.splitlines()
    told = re.sub(r" jobs/.*", "", first)
    return ["\n".join([*before, command]) for command in (first, second.replace("spark-submit …", told))]


def _submitted(command: str, folder: Path) -> tuple[str, list[str]]:
    """What a command says on stdout, and on stderr without progress and what the JVM says of its modules.

    Nothing of the tests' Spark helps it, but for how its JVM compiles, which costs or saves processor time alone.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    kept |= {JVM_OPTIONS: JVM}
    shell = ["/bin/bash", "-c", command]
    done = subprocess.run(shell, cwd=folder, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    usual = ("  ... ", "WARNING: Using incubator modules")
    return done.stdout, [line for line in done.stderr.splitlines() if not line.startswith(usual)]


def test_commands_of_the_readme(tree: KafkaTree, tmp_path: Path, elsewhere: Path) -> None:
    tree.add_topic("orders", {0: [0, 1]})
    tree.unregister(1)
    snapshot, plan = _commands(tree.hosts, tmp_path / "warehouse")
    result, said = _submitted(snapshot, elsewhere)
    line, following = result.splitlines()
    assert re.fullmatch(r"snapshot 1 of default: .* 1 topics, 1 partitions, .*", line)
    assert (
        following == f"see what is due: surveyor status --zookeeper {tree.hosts} --warehouse {tmp_path / 'warehouse'}"
    )
    assert said == []
    unset = re.sub("export SPARK_CONF_DIR.*", "", plan)
    result, said = _submitted(unset, elsewhere)
    assert json.loads(result)["changes"] == 1
    assert len(said) < 20, said
