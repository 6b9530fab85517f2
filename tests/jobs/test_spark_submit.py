"""The README's spark-submit commands, as they stand there, from another folder: their stdout is the JSON alone."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.jobs.kafka_tree import KafkaTree

pytestmark = pytest.mark.spark

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` makes."""
    made = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(made), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = made.glob("*.whl")
    return wheel.rename(wheel.with_suffix(".zip"))


def _commands(hosts: str, warehouse: Path, dist: Path) -> list[str]:
    """The lines of the README, with this machine's paths in place of the README's."""
    section = (ROOT / "README.md").read_text().split("### With spark-submit")[1].split("###")[0]
    lines = "\n".join(re.findall(r"^    (.*)$", section, re.MULTILINE)).replace("\\\n", "")
    for said, here in {
        ". .venv/bin/activate": f". {os.environ.get('VIRTUAL_ENV', sys.prefix)}/bin/activate",
        "dist/kafka_surveyor-*.zip": str(dist),
        "zk1:2181/kafka": hosts,
        "/data/surveyor": str(warehouse),
        " jobs/": f" {ROOT}/jobs/",
    }.items():
        assert said in lines
        lines = lines.replace(said, here)
    *before, first, second = lines.splitlines()
    told = re.sub(r" \S+/jobs/.*", "", first)
    return ["\n".join([*before, command]) for command in (f"{first} --json", second.replace("spark-submit …", told))]


def _submitted(command: str, folder: Path) -> tuple[dict[str, object], list[str]]:
    """What a command says on stdout, JSON, and on stderr, without progress and what the JVM says of its modules."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    shell = ["/bin/bash", "-c", command]
    done = subprocess.run(shell, cwd=folder, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    usual = ("  ... ", "WARNING: Using incubator modules")
    return json.loads(done.stdout), [line for line in done.stderr.splitlines() if not line.startswith(usual)]


def test_commands_of_the_readme(tree: KafkaTree, tmp_path: Path, dist: Path) -> None:
    tree.add_topic("orders", {0: [0, 1]})
    tree.unregister(1)
    snapshot, plan = _commands(tree.hosts, tmp_path / "warehouse", dist)
    result, said = _submitted(snapshot, tmp_path)
    assert (result["partitions"], said) == (1, [])
    unset = re.sub("export SPARK_CONF_DIR.*", "", plan)
    result, said = _submitted(unset, tmp_path)
    assert result["changes"] == 1
    assert len(said) < 20, said
