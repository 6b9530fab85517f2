"""The context of the resident controller: lookups by key, independent of the size of the cluster."""

from collections.abc import Iterator

import pytest

from jobs.controller.controller import ResidentController
from jobs.controller.controller_context import ControllerContext
from schemas.enums import RequestKind
from schemas.partition_info import TopicInfo
from schemas.rows import Key, ZnodeRequest
from tests.jobs.support.controllers.resident import initialize
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree
from tests.planner.frames import partition_info


class _NeverScanned(dict[Key, dict[int, int]]):
    def __iter__(self) -> Iterator[Key]:
        raise AssertionError("all of it was looked through for one topic")


def test_notifications_are_not_requests() -> None:
    """There may be one for each partition, and requested partitions are decided on one by one."""
    names = (RequestKind.REASSIGN, RequestKind.PREFERRED_ELECTION, RequestKind.ISR_CHANGE)
    rows = [ZnodeRequest(kind=kind.value, topic=kind.value, partition=0, path="") for kind in names]
    rows += [ZnodeRequest(kind=RequestKind.DELETE_TOPIC.value, topic="gone", path="")]
    rows += [ZnodeRequest(kind=RequestKind.LOG_DIR.value, broker_id=1, path="")]

    context = ControllerContext(requests=rows)

    assert context.requested_partitions == {("reassign", 0), ("preferred_election", 0)}
    assert {row.kind for row in context.admin_requests} == {"reassign", "preferred_election", "delete_topic"}
    assert context.topics_to_be_deleted == {"gone"}


def test_removing_a_topic_scans_only_its_partitions() -> None:
    context = ControllerContext(stopped=_NeverScanned())
    for topic in ("gone", "stays"):
        rows = [partition_info([1, 2], None, None, topic=topic, partition=number) for number in range(3)]
        context.put_topic(TopicInfo(topic=topic, topic_version=0, config={}), rows)
        for key in context.of_topic(topic):
            context.stopped[key] = {1: -2}

    context.remove_topic("gone")

    assert context.stopped.keys() == {("stays", partition) for partition in range(3)}


@pytest.mark.parametrize("topics", [2, 20])
def test_number_of_queue_lookups_is_independent_of_topics(
    tree: KafkaTree, controller: ResidentController, monkeypatch: pytest.MonkeyPatch, topics: int
) -> None:
    for number in range(topics):
        tree.add_topic(f"t{number}", {0: [0, 1]}, topic_id=None)
    initialize(controller)
    of_kind, kinds = ControllerContext.of_kind, []
    monkeypatch.setattr(ControllerContext, "of_kind", lambda self, kind: kinds.append(kind) or of_kind(self, kind))  # type: ignore[func-returns-value]
    tree.write("/admin/delete_topics/t1", b"")

    changes = controller.reader.refresh(())

    assert changes.partitions == {("t1", 0)}
    assert kinds == [RequestKind.DELETE_TOPIC]
