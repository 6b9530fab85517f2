"""--all-clusters on a real ZooKeeper: the same as one after another, whatever fails on some of them."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from kazoo.client import KazooClient
from typer.testing import CliRunner

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.ports import free_port
from jobs.adapters.embedded.servers import EmbeddedZooKeeper
from jobs.cli import app
from jobs.runtime.options import OTHER
from jobs.runtime.settings import SINGLE_CLUSTER_OPTIONS
from schemas.rows import Row
from schemas.tables import SPARK_SCHEMAS
from tests.docs.command_line import commands, root
from tests.jobs.support.commands.commands import Ran
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree, new_chroot

pytestmark = pytest.mark.usefixtures("spark")

NAMES: Final = ("east", "north", "south", "west")


@dataclass(frozen=True)
class Clusters:
    """Clusters with different troubles, and a configuration file that names them."""

    trees: dict[str, KafkaTree]
    folder: Path

    def conf(self, **others: str) -> Path:
        """Write the file; `others` are further clusters by name, with their ZooKeeper."""
        hosts = {name: tree.hosts for name, tree in self.trees.items()} | others
        path = self.folder / f"surveyor-{len(hosts)}.toml"
        path.write_text("".join(f'[clusters.{name}]\nzookeeper = "{where}"\n' for name, where in hosts.items()))
        return path

    def warehouse(self, cluster: str, folder: str = "warehouse") -> Warehouse:
        return Warehouse(str(self.folder / folder), cluster)

    def run(self, *arguments: str, folder: str = "warehouse", **others: str) -> Ran:
        where = ["--conf", str(self.conf(**others)), "--warehouse", str(self.folder / folder)]
        done = CliRunner().invoke(app, [*arguments, *where], env={"COLUMNS": "300"})
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Ran(done.exit_code, done.stdout, done.stderr)


@pytest.fixture
def clusters(zookeeper_server: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[Clusters]:
    """East is well; north has an offline partition, south an under-replicated one; west does not lead as preferred."""
    with ExitStack() as stack:
        trees = {name: _tree(stack, zookeeper_server.connect, epoch) for epoch, name in enumerate(NAMES, start=7)}
        trees["north"].add_topic("alone", {0: [2]})
        trees["north"].unregister(2)
        _change(trees["south"], 0, b'"isr":[0,1]', b'"isr":[0]')
        _change(trees["west"], 0, *LED_BY_THE_SECOND)
        yield Clusters(trees, tmp_path)


def _tree(stack: ExitStack, connect: str, epoch: int) -> KafkaTree:
    hosts = new_chroot(connect)
    client = KazooClient(hosts)
    client.start()
    stack.callback(client.close)
    stack.callback(client.stop)
    tree = KafkaTree(hosts, client)
    tree.lay_out()
    tree.elect(0, epoch)
    tree.add_topic("orders", {number: [number % 3, (number + 1) % 3] for number in range(epoch)})
    return tree


LED_BY_THE_SECOND: Final = (b'"leader":0', b'"leader":1')


def _change(tree: KafkaTree, partition: int, before: bytes, after: bytes) -> None:
    path = f"/brokers/topics/orders/partitions/{partition}/state"
    tree.client.set(path, tree.client.get(path)[0].replace(before, after))


def _rows(clusters: Clusters, folder: str) -> dict[tuple[str, str], list[str]]:
    """Every row of every cluster and table, apart from times and versions, in sorted order."""
    varying = {"taken_at", "seconds", "versions", "zxid_before", "zxid_after", "last_seen_at", "at"}
    return {
        (name, table): sorted(
            repr({column: value for column, value in row.items() if column not in varying})
            for row in clusters.warehouse(name, folder).rows(table)
        )
        for name in clusters.trees
        for table in SPARK_SCHEMAS
    }


def test_snapshots_at_once_store_what_snapshots_one_after_another_do(clusters: Clusters) -> None:
    """Three rounds with changes in between, so that rows are merged, appended and deleted by four threads at once."""
    for rounds in range(3):
        done = clusters.run("snapshot", "--all-clusters", "--parallel", "4", "--json")
        assert (done.code, done.json["failed"]) == (0, 0)
        for name in NAMES:
            assert clusters.run("snapshot", "--cluster", name, folder="in-turn").code == 0
        for name, tree in clusters.trees.items():
            tree.add_topic(f"new-{rounds}", {0: [0, 1], 1: [1, 0]})
            _change(tree, 3, *LED_BY_THE_SECOND)
            if name != "east" and rounds:
                tree.client.delete(f"/brokers/topics/new-{rounds - 1}", recursive=True)
    at_once, in_turn = (_rows(clusters, folder) for folder in ("warehouse", "in-turn"))
    assert at_once == in_turn
    assert {name: len(at_once[name, "snapshots"]) for name in NAMES} == dict.fromkeys(NAMES, 3)


def test_the_former_option_for_all_clusters_works_and_warns(clusters: Clusters) -> None:
    done = clusters.run("snapshot", "--all", "--json")
    assert (done.code, done.json["failed"], len(done.json["summary"])) == (0, 0, len(NAMES))
    assert "`--all` is an old spelling, which the next release removes: use `--all-clusters`" in done.stderr


def test_a_snapshot_of_all_shows_the_worst_first(clusters: Clusters) -> None:
    done = clusters.run("snapshot", "--all-clusters", "--json", nowhere=f"127.0.0.1:{free_port()}")
    assert (done.code, done.json["exit_code"], done.json["failed"]) == (22, 22, 1)
    rows = done.json["summary"]
    assert [(row["cluster"], row["outcome"], row["offline"], row["under_replicated"]) for row in rows] == [
        ("nowhere", "unreadable", None, None),
        ("north", "done", 3, 0),
        ("south", "done", 0, 1),
        ("west", "done", 0, 0),
        ("east", "done", 0, 0),
    ]
    assert rows[0]["reason"].startswith("no ZooKeeper answered")
    assert [row["snapshot_id"] for row in rows[1:]] == [1, 1, 1, 1]
    assert "surveyor: nowhere: no ZooKeeper answered" in done.stderr
    assert [step["command"].split(" --warehouse")[0] for step in done.json["next"]] == [
        "surveyor doctor --cluster nowhere",
        "surveyor status --cluster north",
        "surveyor status --cluster south",
        "surveyor status --cluster west",
    ]


def _lasting(status: Row) -> Row:
    """What two reads of an unchanged cluster have in common."""
    varying = {"at", "next", "last_snapshot"}
    return {name: value for name, value in status.items() if name not in varying}


def test_the_status_of_all_has_that_of_each(clusters: Clusters) -> None:
    assert clusters.run("snapshot", "--all-clusters").code == 0
    done = clusters.run("status", "--all-clusters", "--json", nowhere=f"127.0.0.1:{free_port()}")
    assert [row["cluster"] for row in done.json["summary"]] == ["nowhere", "north", "south", "west", "east"]
    assert done.json["summary"][1]["snapshot_age_seconds"] >= 0
    for name in NAMES:
        alone: Any = clusters.run("status", "--cluster", name, "--json").json
        assert _lasting(done.json["clusters"][name]) | {"due": 0} == _lasting(alone) | {"due": 0}
        commands = [step["command"] for step in done.json["clusters"][name]["due"]]
        assert all(f"--cluster {name}" in command for command in commands if command)


def test_the_console_has_a_row_a_cluster(clusters: Clusters) -> None:
    done = clusters.run("status", "--all-clusters", nowhere=f"127.0.0.1:{free_port()}")
    title, _, *rows = done.stdout.splitlines()[:8]
    assert title == "5 clusters, status, the worst first"
    cells = [[cell.strip() for cell in row.split("│")] for row in rows[1:]]
    assert [(row[0], row[1], row[3]) for row in cells] == [
        ("nowhere", "unreadable", ""),
        ("north", "done", "3"),
        ("south", "done", "0"),
        ("west", "done", "0"),
        ("east", "done", "0"),
    ]
    assert cells[0][-1].startswith("no ZooKeeper answered")
    assert "\nnowhere: find the cause: surveyor doctor --cluster nowhere " in done.stdout


def test_plans_of_all_are_those_of_each(clusters: Clusters) -> None:
    """A second run finds the plans of the first; each is that of a command on its cluster alone."""
    where = {"nowhere": f"127.0.0.1:{free_port()}"}
    arguments = ["plan", "reconcile", "--all-clusters", "--name", "repair", "--json", "--detailed-exitcode"]
    done = clusters.run(*arguments, **where)
    assert (done.code, done.json["failed"]) == (22, 1)
    rows = done.json["summary"]
    assert [(row["cluster"], row["outcome"], row["snapshot_id"], row["changes"], row["rejected"]) for row in rows] == [
        ("nowhere", "unreadable", None, None, None),
        ("north", "changes", 1, 6, 1),
        ("east", "done", 1, 0, 0),
        ("south", "done", 1, 0, 0),
        ("west", "done", 1, 0, 0),
    ]
    for row in rows[1:]:
        of_each = ["plan", "reconcile", "--cluster", row["cluster"], "--snapshot", "1", "--json"]
        assert clusters.run(*of_each).json["plan_id"] == row["plan_id"]
    plan = clusters.warehouse("north").rows("plans")[0]
    typed = "surveyor plan reconcile --name repair --detailed-exitcode"
    assert (plan["command"], plan["cluster"]) == (typed, "north")
    again = clusters.run("plan", "reconcile", "--all-clusters", "--name", "repair", "--json")
    assert (again.code, again.json["failed"]) == (0, 0)
    assert {row["cluster"]: row["plan_id"] for row in again.json["summary"]} == {
        row["cluster"]: row["plan_id"] for row in rows[1:]
    }


def test_the_losses_of_all_are_those_of_each(clusters: Clusters) -> None:
    assert clusters.run("snapshot", "--all-clusters").code == 0
    done = clusters.run("whatif", "--lose", "brokers=1", "--all-clusters", "--json")
    assert done.code == 0
    rows = done.json["summary"]
    assert rows == sorted(rows, key=lambda row: (-row["newly_offline"], -row["scenarios_offline"]))
    for row in rows:
        alone = clusters.run("whatif", "--lose", "brokers=1", "--cluster", row["cluster"], "--json").json
        of_all = done.json["clusters"][row["cluster"]]
        assert {**of_all, "next": 0} == {**alone, "next": 0}
        assert (row["scenario"], row["newly_offline"]) == (
            alone["rows"][0]["scenario"],
            alone["rows"][0]["newly_offline"],
        )


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (["snapshot", "--cluster", "east"], "--cluster is for one cluster"),
        (["status", "--watch", "5s"], "--watch is for one cluster"),
        (["plan", "recover", "--partition", "orders-7"], "--partition is for one cluster"),
        (["report", "--migration", "1,2"], "--migration is for one cluster"),
        (["plan", "elect", "--preferred", "--apply"], "--apply is for one cluster"),
    ],
)
def test_options_of_one_cluster_are_refused(clusters: Clusters, arguments: list[str], refusal: str) -> None:
    done = clusters.run(*arguments, "--all-clusters")
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr == f"surveyor: {refusal}, --all-clusters for every cluster: give one of the two\n"


ALLOWED_WITH_ALL = {
    *("as_json", "conf_path", "detailed_exitcode", "everything", "fleet", "limit", "listen", "log_format", "log_level"),
    *("lose", "margin", "name", "out", "output", "parallel", "refresh", "remote", "replace_name", "result_file"),
    *(
        "engine",
        "verbose",
        "warehouse",
        "allow_below_min_isr",
        "allow_internal",
        "allow_unclean",
        "allow_unknown_config",
        "by_size",
    ),
    *("config", "delete", "disable_rack_aware", "exclude", "fix_racks", "imbalance_threshold", "max_elections"),
    *("max_moves", "max_moves_per_broker", "offline", "one_replica_at_a_time", "partitions", "preferred", "rebalance"),
    *("reorder_leaders", "replication_factor", "requests", "set_", "settle", "shift", "skip_elections", "skip_unsafe"),
    *("budget", "by_load", "effort", "load_profile", "load_window", "relieve", "resources", "within"),
    *("stable_for", "start_index", "strategy", "throttle", "topic", "topics", "unclean"),
}
"""Options that mean the same on every cluster: topics are named alike there, snapshots, brokers, partitions are not."""


def test_options_belong_to_one_cluster_or_to_all() -> None:
    of_commands = [
        {str(param.name).removeprefix(OTHER) for param in command.command.params} for command in commands(root())
    ]
    options = {name for names in of_commands if "fleet" in names for name in names}

    assert options - set(SINGLE_CLUSTER_OPTIONS) == ALLOWED_WITH_ALL


@pytest.mark.parametrize("command", ["cancel", "rollback", "control", "vacuum", "sizes"])
def test_commands_that_write_or_delete_concern_one_cluster(clusters: Clusters, command: str) -> None:
    plan = ["p"] if command in {"cancel", "rollback"} else []
    done = CliRunner().invoke(app, [command, *plan, "--all-clusters", "--conf", str(clusters.conf())])
    assert done.exit_code == 2
    assert "No such option: --all-clusters" in done.stderr


def test_a_bound_without_several_clusters_is_refused(clusters: Clusters) -> None:
    done = clusters.run("status", "--cluster", "east", "--parallel", "2")
    assert (done.code, done.stderr) == (2, "surveyor: --parallel is for several clusters: give --all-clusters, too\n")
