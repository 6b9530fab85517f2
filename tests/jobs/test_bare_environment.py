"""What the pages show is run as a user runs it: PATH and HOME, a new home directory, and `make dist` from a checkout.

Nothing of the tests' environment helps or hides anything: no settings or options of Spark, no variable.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import ExitCode
from tests.jobs.support.commands.documented_commands import said_here, shown
from tests.jobs.support.commands.user_shell import bare, home
from tests.jobs.support.rows.warehouse_rows import partition
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = pytest.mark.spark

USUAL: Final = ("  ... ", "WARNING: Using incubator modules")
"""How lines on stderr begin that are no fault: progress, and what the JVM says of its modules."""


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """The home directory of a user who has never run Surveyor."""
    return home(tmp_path / "home")


@pytest.fixture
def orders(tree: KafkaTree) -> KafkaTree:
    """A topic of which one partition needs another leader."""
    tree.add_topic("orders", {0: [0, 1]})
    tree.unregister(1)
    return tree


def odd(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What a command says on stderr besides progress."""
    return [line for line in done.stderr.splitlines() if not line.startswith(USUAL)]


def test_spark_submit_as_the_readme_shows_it(checkout: Path, user: Path, orders: KafkaTree, tmp_path: Path) -> None:
    """Stdout is what the job says alone, and the exit code comes through; also from another folder."""
    folder = tmp_path / "warehouse"
    substitutions = {"zk1:2181/kafka": orders.hosts, "/data/surveyor": str(folder)}
    make, *before, snapshot, plan = (said_here(line, substitutions) for line in shown("README.md", "With spark-submit"))
    assert make.startswith("make dist")

    taken = bare("\n".join([*before, snapshot]), checkout, user)
    assert taken.returncode == 0, taken.stderr
    line, following = taken.stdout.splitlines()
    assert re.fullmatch(r"snapshot 1 of default: .* 1 topic, 1 partition, .*", line)
    assert following == f"see what is due: surveyor status --zookeeper {orders.hosts} --warehouse {folder}"
    assert odd(taken) == []

    without_settings = [line for line in before if "SPARK_CONF_DIR" not in line]
    command = said_here(f"{plan} --snapshot 1", {" dist/": f" {checkout}/dist/", " jobs/": f" {checkout}/jobs/"})
    elsewhere = "\n".join([*(said_here(line, {".venv": f"{checkout}/.venv"}) for line in without_settings), command])
    planned = bare(elsewhere, tmp_path, user)
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["changes"] == 1
    assert len(odd(planned)) < 20, planned.stderr

    refused = bare("\n".join([*before, f"{plan} --snapshot 9"]), checkout, user)
    assert refused.returncode == ExitCode.USAGE
    assert odd(refused)[-1].startswith("surveyor: no snapshot 9 of cluster ")


@pytest.mark.repeat
def test_the_packed_environment(checkout: Path, user: Path, orders: KafkaTree, tmp_path: Path) -> None:
    """The lines of docs/deploy.md, on this machine in place of a cluster."""
    substitutions = {
        "--master spark://spark1:7077 ": "",
        "zk1:2181/kafka": orders.hosts,
        "/data/surveyor": f"{tmp_path}/w",
    }
    activate, *_, unpack, submit = (said_here(line, substitutions) for line in shown("docs/deploy.md", "spark-submit"))

    done = bare("\n".join([activate, unpack, f"{submit} --json"]), checkout, user)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["partitions"] == 1


def test_the_wheel_on_a_host_without_java(checkout: Path, orders: KafkaTree, tmp_path: Path) -> None:
    """The five minutes of the README up to the plan, from another folder; neither Java nor jars are there."""
    folder = tmp_path / "anywhere"
    folder.mkdir()
    lines = [line for line in shown("README.md", "Five minutes on your cluster") if re.match("export|surveyor", line)]
    substitutions = {"zk1:2181,zk2:2181/kafka": orders.hosts, "/data/surveyor": str(tmp_path / "w")}
    planning = lines[: lines.index("surveyor commit balance")]  # for which real brokers are needed
    commands = [said_here(line, substitutions) for line in planning]
    assert len(commands) == 4

    empty = tmp_path / "home"
    empty.mkdir()
    without_java = ["set -e", "unset JAVA_HOME", f"PATH={checkout}/build/environment/bin", *commands]
    done = bare("\n".join(without_java), folder, empty)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^surveyor: snapshot 1 of default: .* 1 topic, 1 partition, ", done.stderr, re.MULTILINE)
    assert re.search(r"^plan \w+ \(balance\) on snapshot 1: elect, ", done.stdout, re.MULTILINE)
    assert list(folder.iterdir()) == []


def test_a_script_as_the_readme_shows_it_for_notebooks(
    checkout: Path, user: Path, warehouse: Warehouse, tmp_path: Path
) -> None:
    """Its lines as they stand, by the Python that the wheel is installed for; broker 0 leads what broker 1 should."""
    warehouse.ensure_tables()
    warehouse.append("snapshots", [{"snapshot_id": number} for number in (6, 7)])
    warehouse.append("topics", [{"topic": "t", "deletion_requested": False, "understood": True}])
    led = ([0, 1, 2], [1, 0, 2], [1, 2, 0])
    rows = [{**partition(replicas), "topic": "t", "partition": p, "leader": 0} for p, replicas in enumerate(led)]
    warehouse.append("partitions", rows)
    folder = tmp_path / "notebooks"
    folder.mkdir()
    lines = shown("README.md", "From a notebook")
    (folder / "imbalance.py").write_text("\n".join(lines).replace("/data/surveyor", warehouse.uri))

    done = bare(f"{checkout}/build/environment/bin/python imbalance.py", folder, user)

    assert done.returncode == 0, done.stderr
    header, *table = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines() if "|" in line]
    figures = [dict(zip(header, row, strict=True)) for row in table]
    not_led = {row["broker_id"]: (row["not_led"], row["exceeds"]) for row in figures}
    assert not_led == {"0": ("0", "false"), "1": ("2", "true")}
    assert {row["snapshot_id"] for row in figures} == {"7"}
    assert [file.name for file in folder.iterdir()] == ["imbalance.py"]
