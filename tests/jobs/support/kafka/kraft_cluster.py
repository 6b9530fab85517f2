"""What a real KRaft cluster says of itself by Kafka's own tools and clients, to compare snapshots with."""

import re
import subprocess
from dataclasses import dataclass
from typing import Any

from kafka.protocol.metadata import MetadataRequest

from jobs.adapters.brokers.kafka_python_client import connected_broker
from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from tests.jobs.support.kafka.kafka_tools import java_of_tools

WITH_ELR = {
    "unstable.feature.versions.enable": "true",
    "unstable.api.versions.enable": "true",
    "eligible.leader.replicas.enable": "true",
}
"""Settings that let 3.9 keep eligible leader replicas, which are a part of 4.0."""

ELR_VERSION = ["--release-version", "4.0-IV1"]
ELR_LEVEL = 23

_TOPIC = re.compile(r"Topic: (\S+)\tTopicId: (\S+)\tPartitionCount: (\d+)")


def kafka_tool(main: str, *arguments: str) -> str:
    """Run one of Kafka's command line tools, and return what it printed."""
    command = [*java_of_tools(), main, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


@dataclass(frozen=True, slots=True)
class Described:
    """A cluster as kafka-topics, kafka-metadata-quorum and Metadata describe it."""

    partitions: dict[tuple[str, int], tuple[Any, ...]]
    """Leader, replicas, ISR, ELR and last known ELR."""
    topic_ids: dict[str, str]
    leader_epochs: dict[tuple[str, int], int]
    quorum: dict[str, str]


def described(cluster: EmbeddedKRaftCluster, node: int) -> Described:
    """Ask one node by everything but the requests that Surveyor makes."""
    address = cluster.nodes[node].address
    topics = kafka_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", address, "--describe")
    quorum = kafka_tool(
        "org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", address, "describe", "--status"
    )
    with connected_broker(address, {}) as ask:
        metadata = ask(MetadataRequest(topics=None), 20.0)
    return Described(
        partitions={
            (row["Topic"], int(row["Partition"])): (_leader(row), *(_ids(row[name]) for name in _LISTS))
            for row in map(_fields, topics.splitlines())
            if "Partition" in row
        },
        topic_ids={name: topic_id for name, topic_id, _ in _TOPIC.findall(topics)},
        leader_epochs={
            (topic.name, row.partition_index): row.leader_epoch for topic in metadata.topics for row in topic.partitions
        },
        quorum={name: value.strip() for name, _, value in (line.partition(":") for line in quorum.splitlines())},
    )


_LISTS = ("Replicas", "Isr", "Elr", "LastKnownElr")


def _fields(line: str) -> dict[str, str]:
    """The fields of a line of kafka-topics; those of a reassignment stand between the others."""
    pairs = (field.partition(":") for field in line.strip().split("\t"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _leader(row: dict[str, str]) -> int:
    return -1 if row["Leader"] == "none" else int(row["Leader"])


def _ids(text: str) -> list[int]:
    """The ids of a list; brokers before 3.8 do not tell the eligible leader replicas."""
    return [int(number) for number in text.split(",") if number not in {"", "N/A"}]


_OF_ZOOKEEPER = re.compile(
    r"/brokers/\w|/config/\w|/admin\b|/controller\b|/controller_epoch|\bznodes?\b|zookeeper-shell|\bZooKeeper\b"
    r"|surveyor (?:control|reconcile|plan reconcile)\b",
    re.IGNORECASE,
)


def words_of_zookeeper(*texts: str) -> list[str]:
    """The lines that name a znode, ZooKeeper, or a command that works through it: none helps in a KRaft cluster.

    What a metric means (HELP) is the same text for clusters of both kinds.
    """
    lines = (line for text in texts for line in text.splitlines() if not line.startswith("# HELP "))
    return [line for line in lines if _OF_ZOOKEEPER.search(line)]
