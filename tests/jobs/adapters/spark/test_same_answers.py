"""The embedded engine and Spark store the same rows: of a cluster made at random, its history, events and plans."""

import json
import random
import subprocess
import sys
from pathlib import Path
from shutil import copytree
from typing import Any, Final

import pytest
from msgspec.structs import replace

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.spark.engine_choice import Engine
from schemas.columns import TABLE_COLUMNS
from schemas.znode_codecs import encode_state
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, state_path

pytestmark = [pytest.mark.spark, pytest.mark.torture]

BROKERS: Final = range(5)

SNAPSHOT: Final = ("snapshot",)

PLANS: Final = (
    ("reconcile",),
    ("reconcile", "--allow-unclean"),
    ("elect", "--imbalance-threshold", "0"),
    ("recover", "--allow-unclean"),
    ("drain", "--brokers", "0", "--allow-offline"),
    ("reassign", "--rebalance", "--skip-unsafe"),
    ("reassign", "--remove-brokers", "3", "--skip-unsafe"),
    ("reassign", "--replication-factor", "2", "--skip-unsafe"),
    ("reassign", "--to-snapshot", "1", "--skip-unsafe"),
    ("expand", "--topic", "topic-0", "--partitions", "9"),
)

A_FEW_PLANS: Final = 5
"""Plans of one run; each of the ten takes Spark seconds, and the seeds of the repeats make all of them."""

PROGRAM: Final = """\
import json, sys
from jobs.cli import run
for command in json.loads(sys.argv[1]):
    try:
        code = run(command)
    except SystemExit as end:
        code = end.code
    print(command[:2], "ends with", code, file=sys.stderr)
"""
"""Commands one after another in one process, since each start of Spark takes seconds."""

OWN_TO_A_RUN: Final = frozenset({"seconds", "versions", "zxid_before", "zxid_after", "command", "parameters"})
"""Columns that differ between two runs on one engine, too; a plan's id is a digest of its parameters."""


def ran(engine: Engine, tree: KafkaTree, folder: Path, *commands: tuple[str, ...]) -> list[str]:
    """Run commands on an engine; return the exit codes of all."""
    place = ("--zookeeper", tree.hosts, "--warehouse", str(folder / engine), "--engine", engine, "--json")
    lines = json.dumps([[*command, *place] for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, lines], capture_output=True, text=True, check=False, timeout=600
    )
    codes = [line for line in done.stderr.splitlines() if " ends with " in line]
    assert len(codes) == len(commands), done.stderr
    return codes


def made_at_random(tree: KafkaTree, chance: random.Random) -> None:
    tree.lay_out(brokers=BROKERS)
    tree.elect(0, epoch=7)
    for topic in range(chance.randint(3, 6)):
        partitions = range(chance.randint(1, 8))
        tree.add_topic(f"topic-{topic}", {p: chance.sample(BROKERS, chance.randint(1, 4)) for p in partitions})


def changed_at_random(tree: KafkaTree, chance: random.Random) -> None:
    """Leaders, ISRs and epochs change, a state is lost, another cannot be decoded, and brokers die."""
    for topic in sorted(tree.client.get_children("/brokers/topics")):
        for partition, replicas in tree.assignment(topic).partitions.items():
            isr = chance.sample(replicas, chance.randint(1, len(replicas)))
            leader = chance.choice([*isr, *isr, -1])
            epoch = chance.randint(5, 9)
            state = replace(tree.state(topic, partition), leader=leader, isr=isr, leader_epoch=epoch)
            written = chance.choice([encode_state(state)] * 8 + [b"{", None])
            path = state_path(topic, partition)
            if written is None:
                tree.client.delete(path)
            elif chance.random() < 0.7:
                tree.client.set(path, written)
    for broker in chance.sample(BROKERS[1:], chance.randint(0, 2)):
        tree.unregister(broker)


def stored(folder: Path) -> dict[str, list[str]]:
    """The rows of each table, without what differs between two runs."""
    warehouse = Warehouse(str(folder), "default")
    return {table: sorted(map(str, map(_comparable(table), warehouse.rows(table)))) for table in TABLE_COLUMNS}


def _comparable(table: str) -> Any:  # noqa: ANN401 - a function of a row
    times = {column["name"] for column in TABLE_COLUMNS[table].json["fields"] if column["type"] == "timestamp"}
    return lambda row: {name: row[name] for name in sorted(row.keys() - times - OWN_TO_A_RUN)}


@pytest.mark.parametrize("seed", [None, *(pytest.param(n, marks=pytest.mark.repeat) for n in range(1, 20))])
def test_both_engines_store_the_same_rows(bare_tree: KafkaTree, tmp_path: Path, seed: int | None) -> None:
    seed = random.randrange(2**32) if seed is None else seed  # noqa: S311 - no secret
    chance = random.Random(seed)  # noqa: S311 - as above
    made_at_random(bare_tree, chance)
    engines = chance.sample([Engine.EMBEDDED, Engine.SPARK], 2)
    first, second = (tmp_path / engine for engine in engines)
    ran(engines[0], bare_tree, tmp_path, SNAPSHOT)
    copytree(first, second)  # reasons name the time of the first snapshot
    changed_at_random(bare_tree, chance)
    plans = chance.sample(PLANS, A_FEW_PLANS)
    work = (SNAPSHOT, *(("plan", *plan, "--no-refresh") for plan in plans), ("whatif", "--lose", "pairs"))

    codes, other_codes = (ran(engine, bare_tree, tmp_path, *work) for engine in engines)

    assert codes == other_codes, f"seed {seed}"
    tables, other_tables = stored(first), stored(second)
    for table, rows in tables.items():
        assert rows == other_tables[table], f"{table}, seed {seed}"
    assert len(tables["plans"]) > A_FEW_PLANS // 2
