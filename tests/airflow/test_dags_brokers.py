"""The DAGs as Airflow runs them, on a real ZooKeeper and real brokers.

Each calls spark-submit as the provider's operator does: a snapshot's and a reassignment's the real one, the others one
that runs the same script with the same arguments on the Spark of the tests.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined] # exported, untyped
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from jobs.adapters.brokers.admin_client import connected_admin
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.kraft import CLUSTER_ID, EmbeddedKRaftCluster
from jobs.core.errors import ExitCode
from schemas.rows import Row
from tests.airflow.inside_airflow import BASE_URL, InsideAirflow, Run
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.controllers.throttled_tree import overrides
from tests.jobs.support.kafka.real_cluster import TopicMetadata, delete_topic, eventually, kafka_tree, topic_metadata
from tests.jobs.support.rows.load_rows import HOUR, broker_row, partition_row

ROOT = Path(__file__).parents[2]
RETRIED, FAILED = "AirflowException", "AirflowFailException"
SUCCESS, SKIPPED = "success", "skipped"
RECORDS, RECORD = 5000, b"r" * 4000
"""20 MB: however low the rate is, a follower fetches a megabyte each eleven seconds, over which Kafka counts."""
MORNING, NOON = "2026-11-23T06:00:00+00:00", "2026-11-23T12:00:00+00:00"
EVENING, NIGHT = "2026-11-23T18:00:00+00:00", "2026-11-24T00:00:00+00:00"
NEXT_MORNING, NEXT_NOON = "2026-11-24T06:00:00+00:00", "2026-11-24T12:00:00+00:00"
"""Logical dates, one for each run: the id of a run is made of it, and plans are looked for by that."""


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    return Warehouse(str(tmp_path_factory.mktemp("warehouse")), "default")


class Webhook(BaseHTTPRequestHandler):
    """Keeps what it is sent; answers that it failed where the text speaks of brokers."""

    texts: ClassVar[list[tuple[str, str]]] = []

    def do_POST(self) -> None:
        text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"]
        self.texts.append((self.path, text))
        self.send_response(500 if "brokers" in text else 200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 - the server's
        """Keep quiet."""


@pytest.fixture(scope="module")
def webhook() -> Iterator[str]:
    """Where a chat would take messages."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Webhook) as server:
        Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/hooks/"
        server.shutdown()


@pytest.fixture(scope="module")
def airflow(
    cluster: EmbeddedCluster,
    warehouse: Warehouse,
    tmp_path_factory: pytest.TempPathFactory,
    webhook: str,
) -> Iterator[InsideAirflow]:
    home = tmp_path_factory.mktemp("airflow")
    with InsideAirflow(home, cluster.zookeeper_server.connect, Path(warehouse.uri), webhook) as inside:
        yield inside


def create(cluster: EmbeddedCluster, topic: str, *replicas: int) -> None:
    """Make a topic of one partition, and wait until broker 0 knows its leader.

    librdkafka waits a minute where a broker that has just come back names no controller yet.
    """
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    client.create_topics([NewTopic(topic, num_partitions=1, replica_assignment=[list(replicas)])])[topic].result(120)
    assert eventually(lambda: metadata(cluster, topic)[0][0] == replicas[0])


def is_in_sync(cluster: EmbeddedCluster) -> bool:
    """Return whether every replica is in its ISR: a slow follower of an earlier test's topic would refuse a plan."""
    topics = AdminClient({"bootstrap.servers": cluster.brokers[0].address}).list_topics(timeout=60).topics
    return all(len(row.isrs) == len(row.replicas) for topic in topics.values() for row in topic.partitions.values())


def metadata(cluster: EmbeddedCluster, topic: str) -> TopicMetadata:
    """A topic as broker 0 knows it, which no test kills."""
    return topic_metadata(cluster.brokers[0].address, topic)


def plan_of(warehouse: Warehouse, run: Run) -> Row:
    (plan,) = [row for row in warehouse.rows("plans") if any(run.run_id in name for name in row["names"])]
    return plan


@pytest.fixture
def surveyor(spark: SparkSession, cluster: EmbeddedCluster, warehouse: Warehouse) -> Surveyor:  # noqa: ARG001 - the run's Spark
    return Surveyor(cluster.zookeeper_server.connect, Path(warehouse.uri))


def planned_before(surveyor: Surveyor, dag: str, at: str, *question: str, snapshot: int | None = None) -> int:
    """Make the plan of a run that is still to come, as if its task had been tried before; return its snapshot.

    A run whose plan is there takes no snapshot: a process less. Its own plan is the same one, or it fails: under a name
    that is taken, another question is refused.
    """
    on = surveyor.json("snapshot")["snapshot_id"] if snapshot is None else snapshot
    name = f"surveyor_{dag}.manual__{at}"
    return int(surveyor.json("plan", *question, "--snapshot", str(on), "--name", name)["snapshot_id"])


def test_every_dag_says_what_it_is(airflow: InsideAirflow) -> None:
    integrity = airflow.ask(do="integrity")
    dags = integrity["dags"]
    pools = json.loads((ROOT / "airflow" / "pools.json").read_text())

    assert integrity["errors"] == {}
    files = (ROOT / "airflow" / "dags").glob("*.py")
    assert {name: dag["file"] for name, dag in dags.items()} == {path.stem: path.name for path in files}
    for dag in dags.values():
        assert (dag["owners"], dag["tags"], dag["doc"]) == (["surveyor"], ["kafka", "surveyor"], True)
        assert min(dag["retries"].values()) >= 3
        assert set(dag["pools"]) <= {"default_pool", *pools}


def test_each_of_several_clusters_has_dags_of_its_own(airflow: InsideAirflow) -> None:
    """With pools and assets of their own, so that no run of one cluster waits for another, or is triggered by it.

    Only the snapshots of all clusters are those of one DAG.
    """
    alone = airflow.ask(do="integrity")["dags"]
    several = airflow.ask(do="integrity", clusters="payments, orders")
    printed = subprocess.run(
        [sys.executable, ROOT / "airflow" / "pools.py"],
        env={"SURVEYOR_CLUSTERS": "payments, orders"},
        capture_output=True,
        check=True,
    )
    pools = {"default_pool", *json.loads(printed.stdout)}

    assert several["errors"] == {}
    snapshots = several["dags"].pop("surveyor_snapshot")
    assert snapshots["pools"] == ["default_pool", "surveyor_fleet"]
    assert {"surveyor_snapshot.payments", "surveyor_snapshot.orders"} <= set(snapshots["assets"])
    assert "surveyor_fleet" in pools
    of_each = alone.keys() - {"surveyor_snapshot"}
    assert set(several["dags"]) == {f"{name}.{topic}" for name in of_each for topic in ("payments", "orders")}
    for name, dag in several["dags"].items():
        one, _, cluster = name.partition(".")
        own = {key: [f"{name_of_one}.{cluster}" for name_of_one in alone[one][key]] for key in ("assets", "waits_for")}
        own |= {"tags": sorted(["kafka", "surveyor", cluster]), "max_active_runs": alone[one]["max_active_runs"]}
        assert {key: dag[key] for key in own} == own
        own_pools = {pool if pool == "default_pool" else f"{pool}.{cluster}" for pool in alone[one]["pools"]}
        assert set(dag["pools"]) == own_pools <= pools


def test_pools_of_one_cluster_are_those_of_the_file() -> None:
    printed = subprocess.run([sys.executable, ROOT / "airflow" / "pools.py"], env={}, capture_output=True, check=True)

    assert json.loads(printed.stdout) == json.loads((ROOT / "airflow" / "pools.json").read_text())


NOWHERE = (
    "ZooKeeper of cluster orders is not configured: set surveyor_conf to a surveyor.toml with "
    "the section clusters.orders, or set the Variable surveyor_zookeeper.orders, or "
    "surveyor_bootstrap_servers.orders of a KRaft cluster"
)
FOR_ALL = (
    "surveyor_zookeeper is set, and SURVEYOR_CLUSTERS lists several clusters: name each one's in "
    "surveyor_conf, or in a separate Variable, surveyor_zookeeper.payments"
)
NOT_SEVERAL = {"SURVEYOR_ZOOKEEPER": "", "SURVEYOR_WAREHOUSE": "/w", "SURVEYOR_PAGES": "/pages"}


@pytest.mark.parametrize(
    ("one", "variables", "expected"),
    [
        (None, {"SURVEYOR_ZOOKEEPER": "zk:1"}, ["--zookeeper", "zk:1", "--warehouse", "/w", "/pages"]),
        (
            "payments",
            {"AIRFLOW_VAR_SURVEYOR_BOOTSTRAP_SERVERS.PAYMENTS": "kafka:1"},
            ["--cluster", "payments", "--bootstrap-server", "kafka:1", "--warehouse", "/w", "/pages/payments"],
        ),
        (
            "payments",
            {"SURVEYOR_CONF": "/c"},
            ["--cluster", "payments", "--warehouse", "/w", "--conf", "/c", "/pages/payments"],
        ),
        (
            "payments",
            {"AIRFLOW_VAR_SURVEYOR_ZOOKEEPER.PAYMENTS": "zk:2", "AIRFLOW_VAR_SURVEYOR_WAREHOUSE.PAYMENTS": "/own"},
            ["--cluster", "payments", "--zookeeper", "zk:2", "--warehouse", "/own", "/pages/payments"],
        ),
        (
            "orders",
            {"AIRFLOW_VAR_SURVEYOR_ZOOKEEPER.PAYMENTS": "zk:2"},
            NOWHERE,
        ),
        (
            "payments",
            {"SURVEYOR_CONF": "/c", "SURVEYOR_ZOOKEEPER": "zk:1"},
            FOR_ALL,
        ),
    ],
)
def test_what_commands_are_given_for_a_cluster(
    airflow: InsideAirflow, one: str | None, variables: dict[str, str], expected: list[str] | str
) -> None:
    """None of several clusters gets what is another one's."""
    assert airflow.ask(do="options", cluster=one, variables=NOT_SEVERAL | variables) == expected


def test_spark_submit_is_prepared_by_the_settings_of_the_command(airflow: InsideAirflow, tmp_path: Path) -> None:
    """The command reads surveyor.toml itself, and a retry would not mend the file."""
    conf = tmp_path / "surveyor.toml"
    variables = {"SURVEYOR_CONF": str(conf), "SURVEYOR_WAREHOUSE": ""}
    conf.write_text('warehouse = "/w"')
    prepared = airflow.ask(do="submission", variables=variables)
    conf.write_text("no TOML")
    refused = airflow.ask(do="submission", variables=variables)

    assert all(Path(jar).is_file() for jar in prepared["jars"].split(","))
    assert refused.startswith(f"{FAILED}: exit code 2: --conf {conf} is not valid TOML")


def test_snapshots_of_several_clusters_are_mapped(
    airflow: InsideAirflow, cluster: EmbeddedCluster, warehouse: Warehouse, tmp_path: Path
) -> None:
    """One run for all of them, by a surveyor.toml; the ZooKeeper of one is not there, which costs the other nothing."""
    conf = tmp_path / "surveyor.toml"
    sections = {"payments": cluster.zookeeper_server.connect, "orders": "127.0.0.1:1"}
    conf.write_text("".join(f'[clusters.{name}]\nzookeeper = "{hosts}"\n' for name, hosts in sections.items()))

    variables = {"SURVEYOR_ZOOKEEPER": "", "SURVEYOR_CONF": str(conf)}
    done = airflow.run("snapshot", clusters="orders,payments", variables=variables)

    assert done.states == {
        "of_cluster.snapshot[0]": "failed",
        "of_cluster.announce_offline[0]": "upstream_failed",
        "of_cluster.announce[0]": "upstream_failed",
        "of_cluster.snapshot[1]": SUCCESS,
        "of_cluster.announce_offline[1]": SKIPPED,
        "of_cluster.announce[1]": SUCCESS,
    }
    assert done.results["of_cluster.snapshot[1]"]["snapshot_id"] == 1
    assert airflow.events("snapshot.payments") == [{"snapshot_id": 1}]
    assert airflow.events("snapshot.orders") == []
    (taken,) = Warehouse(warehouse.uri, "payments").rows("snapshots")
    assert taken["brokers"] == len(cluster.brokers)


@pytest.mark.parametrize(
    ("code", "given", "raised"),
    [
        (ExitCode.ERROR, {}, RETRIED),
        (ExitCode.FENCED, {}, RETRIED),
        (ExitCode.UNREADABLE, {}, RETRIED),
        (ExitCode.RUNNING, {}, RETRIED),
        (ExitCode.TERMINATED, {}, RETRIED),
        (ExitCode.REFUSED, {}, RETRIED),
        (ExitCode.REFUSED, {"refused": "fail"}, FAILED),
        (ExitCode.USAGE, {}, FAILED),
        (ExitCode.MISSING, {}, FAILED),
        (ExitCode.STALE, {}, FAILED),
        (ExitCode.STALE, {"stale": "skip"}, "AirflowSkipException"),
    ],
)
def test_what_an_exit_code_means(airflow: InsideAirflow, code: ExitCode, given: dict[str, str], raised: str) -> None:
    assert airflow.ask(do="outcome", code=code, result={}, **given) == raised


def test_a_run_plans_on_the_snapshot_that_triggered_it(airflow: InsideAirflow) -> None:
    """Of several the newest."""
    assert airflow.ask(do="snapshot_of_run", plan="none", snapshot_ids=[7, 9, 8]) == {"snapshot_id": 9}


def test_leader_balance(
    airflow: InsideAirflow, cluster: EmbeddedCluster, warehouse: Warehouse, surveyor: Surveyor
) -> None:
    """The next run finds nothing due; the first, run again after that, finds its plan and applies nothing twice."""
    create(cluster, "balance", 0, 1)
    with connected_admin([cluster.brokers[0].address], {}) as admin:
        assert admin.reassign({("balance", 0): [1, 0]}) == {("balance", 0): 0}
    assert eventually(lambda: metadata(cluster, "balance")[0][:2] == (0, [1, 0]))

    usual = {"SURVEYOR_STABLE_FOR": "1"}
    first = airflow.run("leader_balance", at=MORNING, variables=usual)
    balanced = metadata(cluster, "balance")
    newer = planned_before(surveyor, "leader_balance", EVENING, "elect", "--preferred", "--settle", "1s")
    quiet = airflow.run("leader_balance", at=EVENING, conf={"settle": "1s"}, variables={"SURVEYOR_SETTLE": "10m"})
    again = airflow.run("leader_balance", at=MORNING, variables=usual)

    assert first.having(SUCCESS) == {"question", "snapshot", "plan", "due", "commit", "verify"}
    assert balanced[0][0] == 1
    assert first.results["question"] == again.results["question"] == ["elect", "--preferred", "--stable-for", "1"]
    assert quiet.results["question"] == ["elect", "--preferred", "--settle", "1s"]
    assert first.results["commit"]["applied_now"] == first.results["plan"]["changes"] > 0
    rows = warehouse.rows("commits", ("plan_id", "=", first.results["plan"]["plan_id"]))
    assert {row["run"] for row in rows} == {f"surveyor_leader_balance/{first.run_id}/commit"}
    assert (again.run_id, again.state) == (first.run_id, SUCCESS)
    assert again.results["snapshot"] == first.results["snapshot"] != quiet.results["snapshot"] == {"snapshot_id": newer}
    assert again.results["plan"]["plan_id"] == first.results["plan"]["plan_id"]
    assert again.results["commit"]["applied_now"] == 0
    assert (quiet.state, quiet.having(SKIPPED)) == (SUCCESS, {"commit", "verify"})


def test_reassign_rejected_and_approved_after_all(
    airflow: InsideAirflow, cluster: EmbeddedCluster, warehouse: Warehouse, surveyor: Surveyor
) -> None:
    """What is shown to be approved is the plan, and stays it when the run is run again; then no throttle is left."""
    create(cluster, "asked", 0, 1)
    conf = {"question": "replace", "value": "1=2", "topics": "asked", "throttle": "50MB/s"}

    on = planned_before(surveyor, "reassign", NOON, "reassign", "--replace", "1=2", "--topics", "asked")
    rejected = airflow.run("reassign", submitted=True, at=NOON, conf=conf, answer="Reject")
    before = metadata(cluster, "asked")[0][1], plan_of(warehouse, rejected)["status"]
    done = airflow.run("reassign", at=NOON, conf=conf, answer="Approve")

    assert (rejected.state, rejected.having(SKIPPED), *before) == (SUCCESS, {"commit", "verify"}, [0, 1], "planned")
    done.assert_succeeded()
    assert done.results["plan"]["plan_id"] == rejected.results["plan"]["plan_id"]
    assert done.results["snapshot"] == rejected.results["snapshot"] == {"snapshot_id": on}
    assert "asked-0  replicas [0,1]→" in done.results["show"]
    assert sorted(metadata(cluster, "asked")[0][1]) == [0, 2]
    assert plan_of(warehouse, done)["status"] == "committed"
    assert warehouse.rows("throttles") == []
    with kafka_tree(cluster) as tree:
        assert not any(overrides(tree).values())

    back = airflow.run("rollback", conf={"plan": done.results["plan"]["plan_id"]}, answer="Approve")

    back.assert_succeeded()
    assert metadata(cluster, "asked")[0][1] == [0, 1]
    assert plan_of(warehouse, done)["status"] == "rolled_back"


ON_A_CLUSTER = {"conn_type": "spark", "host": "yarn", "extra": json.dumps({"deploy-mode": "cluster"})}


def test_results_of_a_remote_driver_come_from_tables(
    airflow: InsideAirflow, cluster: EmbeddedCluster, warehouse: Warehouse
) -> None:
    """There is no such cluster: the tests' spark-submit runs the driver, and refuses a result file."""
    create(cluster, "elsewhere", 0, 1)
    conf = {"question": "replace", "value": "1=2", "topics": "elsewhere"}
    variables = {"AIRFLOW_CONN_SURVEYOR_SPARK": json.dumps(ON_A_CLUSTER)}

    done = airflow.run("reassign", at=NEXT_NOON, conf=conf, answer="Reject", variables=variables)

    plan = plan_of(warehouse, done)
    assert (done.state, done.having(SKIPPED)) == (SUCCESS, {"commit", "verify"})
    assert done.results["snapshot"] == {"snapshot_id": plan["snapshot_id"]}
    result = done.results["plan"]
    assert (result["plan_id"], result["moves"]) == (plan["plan_id"], plan["moves"]) == (plan["plan_id"], 1)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("Application diagnostics message: User application exited with status 23", FAILED),
        ("exitCode: 13 ... SparkUserAppException: User application exited with 2", FAILED),
        ("diagnostics: User application exited with status 22", RETRIED),
        ("Error code is: 1. Kubernetes spark exit code is: 23", FAILED),
        ("Error code is: 1. Kubernetes spark exit code is: None", RETRIED),
        ("Application application_1 was killed by user root", RETRIED),
    ],
)
def test_exit_code_of_a_driver_on_another_host(airflow: InsideAirflow, output: str, expected: str) -> None:
    """As YARN's client and Airflow's provider write it; a retry would change neither a refusal nor a wrong option."""
    assert airflow.ask(do="driver_outcome", output=output) == expected


def test_topics_get_more_partitions(airflow: InsideAirflow, cluster: EmbeddedCluster) -> None:
    create(cluster, "grown", 0, 1)
    expanded = airflow.run("topics", conf={"question": "expand", "topic": "grown", "partitions": 3}, answer="Approve")

    expanded.assert_succeeded()
    assert eventually(lambda: len(metadata(cluster, "grown")) == 3)


def test_topics_are_created_in_a_kraft_cluster(airflow: InsideAirflow, tmp_path: Path) -> None:
    """Once that is approved; people are notified, by the page to approve it on, that it waits."""
    new = {"topic": "made", "partitions": 2, "replication-factor": 1, "config": ["retention.ms=600000"]}
    with EmbeddedKRaftCluster(1, heap="320m") as kraft:
        warehouse = tmp_path / "warehouse"
        variables = {"SURVEYOR_ZOOKEEPER": "", "SURVEYOR_BOOTSTRAP_SERVERS": kraft.bootstrap}
        variables |= {"SURVEYOR_WAREHOUSE": str(warehouse)}
        created = airflow.run("topics", conf={"question": "create"} | new, answer="Approve", variables=variables)
        made = topic_metadata(kraft.nodes[1].address, "made")
        asked = [ConfigResource(ConfigResource.Type.TOPIC, "made")]
        admin = AdminClient({"bootstrap.servers": kraft.bootstrap})
        (answer,) = admin.describe_configs(asked).values()
        assert answer.result()["retention.ms"].value == "600000"

    created.assert_succeeded()
    assert {"snapshot", "plan", "commit", "verify"} <= set(created.states)
    assert [replicas for _, replicas, _ in made.values()] == [[1], [1]]
    (snapshot,) = Warehouse(str(warehouse), "default").rows("snapshots")
    assert snapshot["cluster_id"] == CLUSTER_ID
    plan, run = created.results["plan"]["plan_id"], created.run_id
    (path, text) = next(path_and_text for path_and_text in Webhook.texts if plan in path_and_text[1])
    assert path == "/hooks/secret"
    subject, page = text.splitlines()
    assert subject == f"Surveyor: create topics, by plan {plan}?"
    assert page.startswith(f"{BASE_URL}/dags/surveyor_topics/runs/{run}/tasks/approve/required_actions")


def test_a_broker_is_drained_and_undrained(airflow: InsideAirflow, cluster: EmbeddedCluster) -> None:
    """The webhook fails, and is not what the approval waits for."""
    create(cluster, "kept", 1, 0)
    assert eventually(lambda: is_in_sync(cluster))

    drained = airflow.run("drain", conf={"brokers": "1"}, answer="Approve")
    drained.assert_succeeded()
    away = eventually(lambda: metadata(cluster, "kept")[0][0] == 0)
    undrained = airflow.run("undrain", conf={"brokers": "1"}, answer="Approve")
    undrained.assert_succeeded()

    assert (away, eventually(lambda: metadata(cluster, "kept")[0][:2] == (1, [1, 0]))) == (True, True)
    assert any(drained.results["plan"]["plan_id"] in text for _, text in Webhook.texts)


def test_commit_killed_under_a_throttle(
    airflow: InsideAirflow, cluster: EmbeddedCluster, warehouse: Warehouse, surveyor: Surveyor
) -> None:
    """Without a retry, running moves are cancelled and the throttle is removed."""
    create(cluster, "killed", 0, 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for _ in range(RECORDS):
        producer.produce("killed", RECORD)
    assert producer.flush(30) == 0
    conf = {"question": "replace", "value": "1=2", "topics": "killed", "throttle": "20000"}

    on = planned_before(surveyor, "reassign", NIGHT, "reassign", "--replace", "1=2", "--topics", "killed")
    killer = Thread(target=kill_moving_commit, args=(cluster, warehouse))
    killer.start()
    done = airflow.run("reassign", at=NIGHT, conf=conf, answer="Approve")
    killer.join()

    assert (done.state, done.having("failed")) == ("failed", {"commit"})
    assert done.results["snapshot"] == {"snapshot_id": on}
    assert done.states["clear_throttle"] == SUCCESS
    assert metadata(cluster, "killed")[0][1] == [0, 1]
    assert (plan_of(warehouse, done)["status"], warehouse.rows("throttles")) == ("cancelled", [])
    with kafka_tree(cluster) as tree:
        assert not any(overrides(tree).values())


def kill_moving_commit(cluster: EmbeddedCluster, warehouse: Warehouse) -> None:
    """Kill the commit that writes to this warehouse, once replicas move."""
    with connected_admin([cluster.brokers[0].address], {}) as admin:
        eventually(lambda: bool(admin.reassignments()), seconds=120)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (process / "cmdline").read_bytes().split(b"\0")
            if b"commit" in line and warehouse.uri.encode() in line:
                os.kill(int(process.name), signal.SIGKILL)


def test_recover(airflow: InsideAirflow, cluster: EmbeddedCluster, surveyor: Surveyor) -> None:
    """Broker 2 was alone in the ISR when it died; broker 1 is back and may lead after an approval.

    A snapshot taken by hand has seen that before the DAG's does, which still says so.
    """
    create(cluster, "lost", 2, 1)
    cluster.brokers[1].kill()
    cluster.brokers[1].expire()
    assert eventually(lambda: metadata(cluster, "lost")[0][2] == [2])
    cluster.brokers[2].kill()
    cluster.brokers[2].expire()
    cluster.brokers[1].restart()
    assert eventually(lambda: metadata(cluster, "lost")[0][0] == -1)

    by_hand = surveyor.json("snapshot")["snapshot_id"]
    taken = airflow.run("snapshot", submitted=True)
    offline = airflow.events("offline")
    on = planned_before(surveyor, "recover", NEXT_MORNING, "recover", snapshot=by_hand + 1)
    done = airflow.run("recover", at=NEXT_MORNING, answer="Approve")
    led = metadata(cluster, "lost")[0][0]
    cluster.brokers[2].restart()

    assert taken.having(SUCCESS) == {"snapshot", "announce", "announce_offline"}
    assert offline == airflow.events("snapshot")[-1:] == [{"snapshot_id": by_hand + 1}]
    assert taken.results["snapshot"]["snapshot_id"] == by_hand + 1
    assert (done.state, done.having(SKIPPED)) == (SUCCESS, {"commit", "verify"})
    assert done.results["snapshot"] == {"snapshot_id": on}
    assert "evidence lost-0" in done.results["show"]
    assert done.results["commit_unclean"]["applied_now"] >= 1, "topics of other tests may be offline, too"
    assert led == 1


def test_vacuum_and_report(airflow: InsideAirflow, warehouse: Warehouse) -> None:
    if not (warehouse.has("snapshots") and warehouse.rows("snapshots")):
        airflow.run("snapshot")

    done = airflow.run("vacuum_and_report")

    assert (done.state, done.having(SUCCESS)) == (SUCCESS, {"vacuum", "sizes", "report", "metrics"})
    assert "surveyor_last_snapshot_age_seconds" in (airflow.home / "pages" / "surveyor.prom").read_text()
    assert (airflow.home / "pages" / "report.html").read_text().startswith("<!")


def test_load_sample(airflow: InsideAirflow, warehouse: Warehouse) -> None:
    done = airflow.run("load_sample")

    assert (done.state, done.having(SUCCESS)) == (SUCCESS, {"sample"})
    assert {row["broker_id"] for row in warehouse.rows("broker_metrics")} == {0, 1, 2}


ALWAYS = {"commit_options", "clear_throttle"}


def test_load_is_balanced_within_rails(
    airflow: InsideAirflow, cluster: EmbeddedCluster, warehouse: Warehouse, surveyor: Surveyor
) -> None:
    """Even load ends the run; a plan beyond the rails is asked about; one within them is committed in the window."""
    create(cluster, "loaded-a", 0)
    create(cluster, "loaded-b", 0)
    create(cluster, "loaded-c", 0)
    surveyor.json("snapshot")
    this_hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for number in (1, 2, 3):
        hour = this_hour - number * HOUR
        warehouse.append("broker_load", [broker_row(hour, 0, 3e6), broker_row(hour, 1), broker_row(hour, 2)])
        loaded = [partition_row(hour, f"loaded-{name}", 0, 1e6, size_bytes=1000) for name in "abc"]
        warehouse.append("partition_load", loaded)
    conf = {"topics": "loaded-.*", "resources": "in,out", "window_start": this_hour.hour}
    conf |= {"window_end": (this_hour.hour + 2) % 24}

    even = airflow.run("load_balance", conf={"skew": 9.0})
    short = airflow.run("load_balance", conf={"hours": 4})
    rejected = airflow.run("load_balance", conf=conf | {"max_bytes": 0}, answer="Reject")
    unchanged = plan_of(warehouse, rejected)["status"], metadata(cluster, "loaded-b")[0][1]
    done = airflow.run("load_balance", conf=conf)

    for run in (even, short):
        assert (run.state, run.having(SUCCESS)) == (SUCCESS, {"load", "skewed", "question", *ALWAYS})
    assert (rejected.state, unchanged) == (SUCCESS, ("planned", [0]))
    assert rejected.having(SKIPPED) == {"window", "commit", "verify"}
    assert (done.state, done.having(SKIPPED)) == (SUCCESS, {"show", "approve"})
    figures = done.results["figures"]
    assert figures["bytes"] == 2000 <= 1.3 * figures["bytes_bound"]
    assert figures["worst_before"] > figures["worst_after"]
    brokers = [metadata(cluster, f"loaded-{name}")[0][1] for name in "abc"]
    assert sorted(brokers) == [[0], [1], [2]]
    assert warehouse.rows("throttles") == []
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for name in "abc":  # the only replica of a topic forbids another test to drain its broker
        delete_topic(admin, f"loaded-{name}")
