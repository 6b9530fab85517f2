"""What docs/tables.md shows for notebooks: the tables and ZooKeeper are read.

The reader of docs/tables.md is run as a script, whose interpreter ends as it should.
"""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from tests.jobs.support.commands.documented_commands import shown
from tests.jobs.support.rows.warehouse_rows import partition
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

ROOT: Final = Path(__file__).parents[2]
TIMES: Final = 10
"""deltalake's own file system aborted 5 of 25 scripts at their end: ten would show it nine times in ten."""


def _script(folder: str) -> str:
    section = (ROOT / "docs" / "tables.md").read_text().split("## In a notebook")[1]
    (block, *_) = re.findall(r"(?:^    .*\n)+", section, re.MULTILINE)
    *lines, shown = re.sub("^    ", "", block, flags=re.MULTILINE).strip().splitlines()
    return "\n".join([*lines, f"print(len({shown}))"]).replace("/data/surveyor", folder)


def _ended(script: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.torture
def test_the_reader_shown_ends_as_it_should(warehouse: Warehouse) -> None:
    warehouse.ensure_tables()
    for number in range(8):
        rows = [{**partition([0, 1, 2]), "topic": f"t{number}", "partition": p, "snapshot_id": 1} for p in range(1000)]
        warehouse.append("partitions", rows)
    with ThreadPoolExecutor(4) as pool:
        ends = set(pool.map(_ended, [_script(warehouse.uri)] * TIMES))
    assert ends == {(0, "8000\n", "")}


@pytest.mark.jvm
@pytest.mark.usefixtures("spark")
def test_the_reader_and_the_source_shown(tree: KafkaTree, warehouse: Warehouse) -> None:
    """Each once, in this process."""
    warehouse.ensure_tables()
    warehouse.append("partitions", [{**partition([0, 1, 2]), "topic": "t", "partition": 0, "snapshot_id": 1}])
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2]})
    names: dict[str, Any] = {}
    exec(_script(warehouse.uri), names)  # noqa: S102 - the page's own, as in the next lines
    *lines, topics, znodes = shown("docs/tables.md", "ZooKeeper from Spark")
    exec("\n".join(lines).replace("zk1:2181/kafka", tree.hosts), names)  # noqa: S102
    counts = [eval(line, names).count() for line in (topics, znodes)]  # noqa: S307

    assert (len(names["DeltaTable"](names["table"]).to_pandas()), counts) == (1, [5, 2])
