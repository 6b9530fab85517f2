"""Brokers of the newest Kafka, which has no ZooKeeper: the same tables as of Kafka 3.9, and what only these report."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # exported, untyped
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from jobs.adapters.embedded.kraft import EmbeddedKRaftCluster
from jobs.adapters.java.jars import NEWER_KAFKA
from tests.jobs.stories import test_kraft_brokers as of_3_9
from tests.jobs.support.kafka.kraft_story import RACKS, Story, killed_broker_story
from tests.jobs.support.kafka.real_cluster import eventually

pytestmark = pytest.mark.usefixtures("spark")

LEVEL = 33
"""metadata.version of Kafka 4.4."""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """With the features of a new cluster, to which eligible leader replicas belong."""
    cluster = EmbeddedKRaftCluster(3, racks=RACKS, heap="320m", kafka_version=NEWER_KAFKA)
    with killed_broker_story(cluster, tmp_path_factory.mktemp("newest"), LEVEL) as story:
        yield story


described = of_3_9.described

test_partitions = of_3_9.test_partitions_are_those_of_kafka_topics
test_topics = of_3_9.test_topics_have_their_ids_and_overrides
test_quorum = of_3_9.test_the_quorum_takes_the_place_of_the_controller
test_voters = of_3_9.test_voters_have_their_lag
test_requests = of_3_9.test_a_running_reassignment_is_a_request
test_configs = of_3_9.test_brokers_report_their_configs
test_show = of_3_9.test_show_reads_brokers_live
test_pages = of_3_9.test_pages_make_one_list


@pytest.mark.parametrize("snapshot", [1, 2])
def test_a_killed_broker_is_fenced(story: Story, snapshot: int) -> None:
    rows = {row["broker_id"]: row for row in story.rows("brokers", snapshot)}
    fenced = {node: snapshot == 2 and node == story.killed for node in story.cluster.nodes}
    assert {broker: row["fenced"] for broker, row in rows.items()} == fenced
    assert {broker: row["rack"] for broker, row in rows.items()} == RACKS
    assert rows[story.killed]["port"] == story.cluster.nodes[story.killed].port


def test_doctor_names_the_fenced_broker(story: Story) -> None:
    (brokers,) = [row for row in story.doctor["findings"] if row["check"] == "brokers"]
    assert (brokers["state"], brokers["found"]) == ("warning", f"2 live; fenced: {story.killed}")
    (versions,) = [row for row in story.doctor["findings"] if row["check"] == "versions"]
    assert versions["found"].startswith(f"metadata.version {LEVEL}; all brokers support up to ")


def _cordon(story: Story, value: str) -> None:
    """Set or, if empty, delete cordoned.log.dirs of the survivor."""
    operation = AlterConfigOpType.SET if value else AlterConfigOpType.DELETE
    entry = ConfigEntry("cordoned.log.dirs", value, incremental_operation=operation)
    broker = ConfigResource(ConfigResource.Type.BROKER, str(story.survivor), incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": story.cluster.nodes[story.survivor].address, "log_level": 0})
    for altered in admin.incremental_alter_configs([broker]).values():
        altered.result()


def test_log_dirs_say_whether_they_are_cordoned(story: Story) -> None:
    def cordoned() -> dict[int, bool | None]:
        assert story.surveyor.json("sizes")["brokers"] == len(RACKS) - 1
        rows = story.surveyor.warehouse.rows("log_dirs")
        assert {row["error"] for row in rows} == {None}
        return {row["broker_id"]: row["cordoned"] for row in rows}

    brokers = story.cluster.nodes.keys() - {story.killed}
    assert cordoned() == dict.fromkeys(brokers, False)
    _cordon(story, "*")
    assert eventually(lambda: cordoned() == {broker: broker == story.survivor for broker in brokers})
    _cordon(story, "")
