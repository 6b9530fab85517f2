"""`make airflow`: Airflow with Surveyor's DAGs, on an embedded ZooKeeper and four real brokers, until Ctrl-C.

Everything is in one temporary folder and listens on 127.0.0.1 only; both are gone afterwards. One broker holds nothing,
so that there is something to move, and some leaders are not where they belong, so that there is something to balance.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.adapters.brokers.admin_client import connected_admin
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.adapters.embedded.ports import free_port, is_free
from jobs.core.addresses import LOOPBACK
from tests.airflow import end_processes
from tests.airflow.home import AIRFLOW, NO_AIRFLOW, prepare, variables

PORT: Final = 8080
BROKERS: Final = 4
TOPIC: Final = "orders"
REPLICAS: Final = [[0, 1], [1, 2], [2, 0], [0, 2], [1, 0], [2, 1]]
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Start everything, and end it on Ctrl-C, SIGTERM or SIGHUP; return an exit code."""
    if not AIRFLOW.exists():
        sys.stderr.write(f"{NO_AIRFLOW}\n")
        return 1
    exit_on_signals()
    with EmbeddedCluster(BROKERS) as cluster, suppress(KeyboardInterrupt):
        _fill(cluster)
        home = cluster.folder / "airflow"
        home.mkdir()
        port = PORT if is_free(PORT) else free_port()
        environment = variables(home, cluster.zookeeper_server.connect, cluster.folder / "warehouse") | _listening_on(
            port
        )
        sys.stderr.write("making Airflow's database\n")
        prepare(environment)
        sys.stderr.write(f"Airflow comes up at http://{LOOPBACK}:{port} within a minute; Ctrl-C ends it\n")
        with running([str(AIRFLOW), "standalone"], environment) as airflow:
            return airflow.wait()
    return 0


def exit_on_signals() -> None:
    """Let signals raise, so that `with` blocks clean up: SIGINT raises KeyboardInterrupt, the others SystemExit."""
    for number in STOP_SIGNALS[1:]:
        signal.signal(number, lambda received, _frame: sys.exit(128 + received))


def _fill(cluster: EmbeddedCluster) -> None:
    """Make a topic, and turn round the replicas of one partition: its leader is no longer the preferred one."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(TOPIC, num_partitions=len(REPLICAS), replica_assignment=REPLICAS)
    client.create_topics([new])[TOPIC].result(30)
    with connected_admin([cluster.brokers[0].address], {}) as admin:
        admin.reassign({(TOPIC, 0): REPLICAS[0][::-1]})


def _listening_on(port: int) -> dict[str, str]:
    url = f"http://{LOOPBACK}:{port}"
    return {
        "AIRFLOW__API__HOST": LOOPBACK,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_HOST": LOOPBACK,
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
    }


@contextmanager
def running(program: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program, and end every process with its AIRFLOW_HOME afterwards, also if this process is killed."""
    home = environment["AIRFLOW_HOME"]
    # the pipe closes when this process ends for any reason
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", end_processes.__file__, home], stdin=subprocess.PIPE, start_new_session=True
    )
    environment = environment | {"SPT_NOENV": "1"}  # else setproctitle overwrites the environment in /proc
    with open(f"{home}/standalone.log", "wb") as log:  # noqa: PTH123 - the home is text
        started = subprocess.Popen(
            program, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield started
    finally:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        sys.stderr.write("ending Airflow\n")
        watcher.communicate()
        started.wait()


if __name__ == "__main__":
    sys.exit(main())
