"""What users install is enough: no command needs a tool of the developers', nor leaves anything of theirs behind."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = pytest.mark.spark

PROJECT = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
IMPORTED_AS = {
    "googleapis-common-protos": "google.rpc",
    "grpcio": "grpc",
    "grpcio-status": "grpc_status",
    "import-linter": "importlinter",
    "pytest-randomly": "pytest_randomly",
    "pytest-xdist": "xdist",
    "venv-pack": "venv_pack",
}
TOOLS = [re.split(r"[<>=]", tool)[0] for tool in (*PROJECT["dependency-groups"]["dev"], "gssapi")]

WITHOUT = """\
import sys
sys.modules.update(dict.fromkeys({missing!r}))
from jobs.entry import main
sys.argv = ["surveyor", *{arguments!r}]
try:
    main()
finally:
    print("hypothesis" if sys.modules.get("hypothesis") else "alone", file=sys.stderr)
"""


def run(folder: Path, missing: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder of its own, with these modules missing."""
    program = WITHOUT.format(missing=missing, arguments=arguments)
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.parametrize("arguments", [("--help",), ("demo", "--help"), ("plan", "reconcile", "--help")])
def test_commands_are_there_without_any_tool(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run(tmp_path, [IMPORTED_AS.get(tool, tool) for tool in TOOLS], *arguments)
    assert (done.returncode, "Usage:" in done.stdout) == (0, True), done.stderr


def test_hypothesis_is_not_asked_for_where_it_is_installed(
    tree: KafkaTree, warehouse: Warehouse, tmp_path: Path
) -> None:
    """Where it is: kio registers its types with Hypothesis, which then makes a folder `.hypothesis` wherever one is."""
    tree.add_topic("t", {0: [0, 1, 2]})
    plan = store_plan(warehouse, tree, [election(tree, "t", 0, leader=1)])
    folder = tmp_path / "here"
    folder.mkdir()
    where = ("--zookeeper", tree.hosts, "--warehouse", warehouse.uri)
    done = run(folder, [], "commit", plan.plan_id, *where, "--mode", "batch", "--max-hold", "1s", "--apply")
    assert "written under the fence" in done.stderr, done.stderr
    assert done.stderr.splitlines()[-1] == "alone"
    assert list(folder.iterdir()) == []
