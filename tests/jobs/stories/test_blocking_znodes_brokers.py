"""Znodes over which Kafka's own controller cannot start: `status` names them, and what it says ends it."""

import shlex
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from kazoo.exceptions import NoNodeError

from schemas.znode_codecs import Assignment, encode_assignment
from tests.jobs.support.commands.commands import Surveyor
from tests.jobs.support.kafka.kafka_tools import java_of_tools
from tests.jobs.support.kafka.real_cluster import broker_in_control, eventually
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = pytest.mark.cluster(1)

SHELL: Final = "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka"
MANY: Final = 5
"""Controllers that give up one after the other, where one that is well stays."""


def epoch(kafka: KafkaTree) -> int:
    return int(kafka.client.get("/controller_epoch")[0])


def fail_over(kafka: KafkaTree) -> int:
    """Let Kafka elect a controller; return the epoch before."""
    before = epoch(kafka)
    with suppress(NoNodeError):
        kafka.client.delete("/controller")
    return before


def give_up_one_after_the_other(kafka: KafkaTree) -> bool:
    before = fail_over(kafka)
    return eventually(lambda: epoch(kafka) > before + MANY)


def stays(kafka: KafkaTree) -> bool:
    """Whether a broker is the controller, and still is the same controllership two seconds later."""
    before = epoch(kafka)
    if not broker_in_control(kafka):
        return False
    time.sleep(2)
    return epoch(kafka) == before


def elect_one_that_stays(kafka: KafkaTree) -> bool:
    """Whether the first controller that comes after this one stays; this one may have read what blocked it."""
    assert eventually(lambda: stays(kafka))
    before = fail_over(kafka)
    elected = eventually(lambda: epoch(kafka) > before and broker_in_control(kafka))
    return elected and stays(kafka) and epoch(kafka) == before + 1


def run_shell(command: str) -> None:
    """Run a line for zookeeper-shell.sh as it stands, by what that script runs."""
    script, hosts, *words = shlex.split(command)
    assert script == "zookeeper-shell.sh"
    java = [*java_of_tools(), SHELL, "-server", hosts, *words]
    subprocess.run(java, check=True, capture_output=True, timeout=60)


def works(kafka: KafkaTree, topic: str) -> bool:
    """Whether the controller gives a new topic its leader."""
    kafka.write(f"/brokers/topics/{topic}", encode_assignment(Assignment({0: [0]}, {}, {}, None)))
    return eventually(lambda: kafka.client.exists(f"/brokers/topics/{topic}/partitions/0/state") is not None)


BLOCKING: Final = {
    "preferred": ("/admin/preferred_replica_election", b"{}"),
    "reassign": ("/admin/reassign_partitions", b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'),
    "broker": ("/brokers/ids/seven", b"{}"),
    "log-dir": ("/log_dir_event_notification/odd", b"{}"),
}


@pytest.mark.parametrize(("path", "data"), BLOCKING.values(), ids=BLOCKING)
def test_a_blocked_failover_is_named_with_its_remedy(kafka: KafkaTree, tmp_path: Path, path: str, data: bytes) -> None:
    kafka.write(path, data)
    assert give_up_one_after_the_other(kafka)

    first = Surveyor(kafka.hosts, tmp_path / "warehouse").json("status")["due"][0]
    assert first["what"].startswith(f"{path} blocks Kafka's fail-over")
    run_shell(first["command"])

    assert elect_one_that_stays(kafka)
    assert works(kafka, f"after-{path.rpartition('/')[2].replace('_', '-')}")


def test_a_topic_without_data_is_named_and_no_command_deletes_it(kafka: KafkaTree, tmp_path: Path) -> None:
    """Its partitions may be there and their data; where a snapshot knows it, the documentation puts it back."""
    assert works(kafka, "kept")
    data = kafka.client.get("/brokers/topics/kept")[0]
    kafka.client.set("/brokers/topics/kept", b"")
    assert give_up_one_after_the_other(kafka)

    status = Surveyor(kafka.hosts, tmp_path / "warehouse").json("status")

    first = status["due"][0]
    assert first["what"].startswith("/brokers/topics/kept blocks Kafka's fail-over: empty, expected JSON")
    assert "delete" not in first["command"]
    assert [row["path"] for row in status["blocking"]] == ["/brokers/topics/kept"]
    kafka.client.set("/brokers/topics/kept", data)
    assert elect_one_that_stays(kafka)
