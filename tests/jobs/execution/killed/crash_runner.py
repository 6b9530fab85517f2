"""Commits that may be killed, each in a cluster and a warehouse of its own, and the state that they leave."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.servers import EmbeddedZooKeeper
from schemas.enums import Action
from schemas.stored_plan import Plan
from schemas.znode_codecs import decode_state
from tests.jobs.support.kafka.fake_brokers import FakeBrokers
from tests.jobs.support.rows.operation_rows import alteration, deletion, expansion
from tests.jobs.support.rows.plan_rows import creation, election, store_plan, topic_creation
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, new_chroot

ALL: Final = os.environ.get("KILL_POINTS") == "all"
KILLED: Final = -9

CRASH_PROCESS: Final = Path(__file__).with_name("crash_process.py")
T, NEW, K = "t", "new", "retention.ms"
PARTITIONS: Final = range(3)


Point = TypeVar("Point")


def sampled_points(points: Sequence[Point], few: int) -> Sequence[Point]:
    """Return the points to kill at in this run: all of them with KILL_POINTS=all, otherwise a random sample."""
    return points if ALL else random.sample(points, few)


def create(warehouse: Warehouse, tree: KafkaTree) -> Plan:
    rows = [creation(NEW, number, [number, (number + 1) % 3]) for number in PARTITIONS]
    return store_plan(warehouse, tree, rows, [topic_creation(NEW, {K: "5"})])


def elect(warehouse: Warehouse, tree: KafkaTree) -> Plan:
    return store_plan(warehouse, tree, [election(tree, T, number, leader=(number + 1) % 3) for number in PARTITIONS])


def shrink(warehouse: Warehouse, tree: KafkaTree) -> Plan:
    """Broker 2 is down: another broker leads its partitions, and it leaves every ISR."""
    tree.unregister(2)
    rows = []
    for number in PARTITIONS:
        leader = 0 if number == 2 else number
        action = Action.ELECT if number == 2 else Action.SHRINK_ISR
        isr = [broker for broker in tree.state(T, number).isr if broker != 2]
        columns: dict[str, Any] = {"isr_after": isr, "requires_dead": [2], "leader_and_isr_to": isr}
        rows.append(election(tree, T, number, leader=leader, action=action.value, **columns))
    return store_plan(warehouse, tree, rows)


KINDS: Final[dict[str, Callable[[Warehouse, KafkaTree], Plan]]] = {
    "create": create,
    "expand": lambda warehouse, tree: expansion(warehouse, tree, T, [[1, 2], [2, 0], [0, 1]]),
    "elect": elect,
    "shrink": shrink,
    "config": lambda warehouse, tree: alteration(warehouse, tree, T, {K: None}, {K: "2"}),
    "delete": lambda warehouse, tree: deletion(warehouse, tree, T, "other"),
}


@dataclass
class Planned:
    """A plan of one kind, in a cluster and a warehouse of its own."""

    tree: KafkaTree
    warehouse: Warehouse
    plan: Plan

    def commit(self, *more: str) -> list[str]:
        return self.command("commit", "--mode", "batch", *more)

    def command(self, name: str, *more: str) -> list[str]:
        where = ["--zookeeper", self.tree.hosts, "--warehouse", self.warehouse.uri]
        return [name, self.plan.plan_id, *where, "--apply", "--yes", *more]

    @property
    def status(self) -> str:
        return str(self.warehouse.rows("plans", ("plan_id", "=", self.plan.plan_id))[0]["status"])


@contextmanager
def planned(
    server: EmbeddedZooKeeper, brokers: FakeBrokers, folder: Path, make: Callable[[Warehouse, KafkaTree], Plan]
) -> Iterator[Planned]:
    hosts = new_chroot(server.connect)
    client = KazooClient(hosts)
    client.start()
    try:
        brokers.forget()
        tree = KafkaTree(hosts, client, brokers)
        tree.lay_out()
        tree.elect(0, epoch=7)
        tree.add_topic(T, {number: [number % 3, (number + 1) % 3, (number + 2) % 3] for number in PARTITIONS})
        tree.add_topic("other", {0: [0, 1]}, topic_id="AAAAAAAAAAAAAAAAAAAAAA")
        warehouse = Warehouse(str(folder / hosts.rpartition("/")[2]), "default")
        yield Planned(tree, warehouse, make(warehouse, tree))
    finally:
        client.stop()
        client.close()


def with_id(folder: Path, controller_id: int) -> tuple[str, str]:
    """Use another controller id than the usual one: the session of the killed commit lasts a few more seconds."""
    conf = folder / f"{controller_id}.toml"
    conf.write_text(f"[clusters.default]\ncontroller_id = {controller_id}\n")
    return "--conf", str(conf)


@dataclass
class CrashRunner:
    """The process that runs and kills commits, and the file with the names of the passed points."""

    process: "subprocess.Popen[str]"
    notes: Path

    def run(
        self,
        arguments: list[str],
        die_at: int = 0,
        asks: str | None = None,
        *,
        stuck: bool = False,
        meets: Mapping[str, tuple[str, str]] | None = None,
    ) -> int:
        """Run a command up to a kill point; return its exit code. `asks` is the ZooKeeper of the fake controller."""
        assert self.process.stdin
        assert self.process.stdout
        job = {"arguments": arguments, "notes": str(self.notes), "die_at": die_at, "asks": asks, "stuck": stuck}
        self.process.stdin.write(json.dumps({**job, "meets": meets or {}}) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    @property
    def points(self) -> list[str]:
        return self.notes.read_text().splitlines()

    @property
    def output(self) -> str:
        return Path(f"{self.notes}.stderr").read_text()


@contextmanager
def crash_runner(folder: Path) -> Iterator[CrashRunner]:
    command = [sys.executable, str(CRASH_PROCESS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        yield CrashRunner(running, folder / "notes")
        assert running.stdin
        running.stdin.close()


def dumped(tree: KafkaTree) -> dict[str, Any]:
    """Everything that matters in the tree: data and versions; states without their controller epoch."""
    dump: dict[str, Any] = {}
    for path, (data, stat) in tree.dump().items():
        if path in {"/", "/controller", "/controller_epoch"} or path.startswith(("/surveyor", "/brokers/ids")):
            continue
        if path.endswith("/state"):
            state = decode_state(data)
            dump[path] = state.leader, state.isr, state.leader_epoch, state.leader_recovery_state, stat.version
        else:
            dump[path] = data, stat.version
    return dump
