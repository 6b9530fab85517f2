"""What brokers answer becomes rows: pages, older brokers, fenced brokers, refusals, and reassignments in between."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from kafka.errors import IncompatibleBrokerVersion
from kafka.protocol.admin import (
    DescribeClusterResponse,
    DescribeConfigsResponse,
    DescribeQuorumResponse,
    DescribeTopicPartitionsResponse,
    ListPartitionReassignmentsResponse,
)
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

from jobs.adapters.kraft import precondition_reader
from jobs.adapters.kraft.cluster import read_cluster
from jobs.adapters.kraft.session import BrokerSession, read_from_broker
from jobs.adapters.kraft.topics import KRaftTopicReading, has_at_most, list_topics, read_named_partitions, read_topics
from schemas.rows import Row
from tests.jobs.support.kafka.paged_brokers import NOT_PAGED, PAGED, Move, PagedCluster

TOPIC_ID = UUID("287b6c7c-f939-47f0-9cef-536d485d3e57")

Page = DescribeTopicPartitionsResponse
Topic = Page.DescribeTopicPartitionsResponseTopic
Partition = Topic.DescribeTopicPartitionsResponsePartition
Moving = ListPartitionReassignmentsResponse.OngoingTopicReassignment
Answers = dict[str, list[Any]]


LOG_END = 100
"""The offset after the last record in the log of the quorum's leader."""


def _quorum(log_end: int = LOG_END) -> Any:  # noqa: ANN401 - kafka-python is untyped
    topic = DescribeQuorumResponse.TopicData
    partition = topic.PartitionData
    leader = partition.ReplicaState(replica_id=1, log_end_offset=log_end)
    row = partition(error_code=0, partition_index=0, leader_id=1, leader_epoch=7, high_watermark=LOG_END - 10)
    row.current_voters = [leader]
    return DescribeQuorumResponse(error_code=0, topics=[topic(topic_name="__cluster_metadata", partitions=[row])])


def _applied(offset: int) -> Any:  # noqa: ANN401
    return ApiVersionsResponse(finalized_features_epoch=offset)


CAUGHT_UP: Answers = {"DescribeQuorum": [_quorum()], "ApiVersions": [_applied(LOG_END - 1)]}
"""Answers of a broker that has applied the whole log."""


@dataclass
class Broker:
    """Answers requests by their class, one after the other; the last answer stays."""

    answers: Answers
    requests: list[Any] = field(default_factory=list)

    def __call__(self, request: Any, _: float) -> Any:  # noqa: ANN401 - kafka-python is untyped
        self.requests.append(request)
        left = {**CAUGHT_UP, **self.answers}[type(request).__name__.removesuffix("Request")]
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) and not hasattr(answer, "encode") else answer

    @property
    def session(self) -> BrokerSession:
        return BrokerSession(send=self, quorum=None, quorum_fault="not asked", has_controller=True)


def _partition(number: int, replicas: Sequence[int] = (1, 2), error: int = 0, leader: int = 1) -> Any:  # noqa: ANN401
    return Partition(
        error_code=error,
        partition_index=number,
        leader_id=leader,
        leader_epoch=4,
        replica_nodes=[*replicas],
        isr_nodes=[replicas[0]],
        eligible_leader_replicas=[replicas[-1]],
        last_known_elr=None,
        offline_replicas=[],
    )


def _page(*topics: tuple[str, list[Any]], after: tuple[str, int] | None = None, error: int = 0) -> Any:  # noqa: ANN401
    rows = [Topic(error_code=error, name=name, topic_id=TOPIC_ID, partitions=partitions) for name, partitions in topics]
    return Page(throttle_time_ms=0, topics=rows, next_cursor=None if after is None else Page.Cursor(*after))


def _moves(*moves: tuple[str, int, list[int], list[int], list[int]], error: int = 0) -> Any:  # noqa: ANN401
    topics = [
        Moving(
            name=name,
            partitions=[
                Moving.OngoingPartitionReassignment(
                    partition_index=number, replicas=replicas, adding_replicas=adding, removing_replicas=removing
                )
            ],
        )
        for name, number, replicas, adding, removing in moves
    ]
    return ListPartitionReassignmentsResponse(throttle_time_ms=0, error_code=error, topics=topics)


def _configs(error: int = 0) -> Callable[[Any], Any]:
    """Answer for each topic that is asked for: one override, and one of Kafka's defaults."""
    Result = DescribeConfigsResponse.DescribeConfigsResult  # noqa: N806 - a class
    Entry = Result.DescribeConfigsResourceResult  # noqa: N806 - a class

    def answer(request: Any) -> Any:  # noqa: ANN401
        entries = [Entry(name="retention.ms", value="1", config_source=1), Entry(name="x", value="2", config_source=5)]
        names = [name for _, name, _ in request.resources]
        rows = [Result(error_code=error, resource_name=name, configs=[] if error else entries) for name in names]
        return DescribeConfigsResponse(throttle_time_ms=0, results=rows)

    return answer


def _read(pages: list[Any], moves: Sequence[Any] = (), configs: int = 0, **more: list[Any]) -> KRaftTopicReading:
    answers: Answers = {
        "DescribeTopicPartitions": pages,
        "ListPartitionReassignments": [*moves] or [_moves()],
        "DescribeConfigs": [_configs(configs)],
        **more,
    }
    return read_topics(Broker(answers).session)


def _rows(reading: KRaftTopicReading) -> dict[tuple[str, int], Row]:
    return {(row["topic"], row["partition"]): row for row in reading.partitions.to_pylist()}


def test_a_topic_over_two_pages_is_one_topic() -> None:
    pages = [_page(("a", [_partition(0)]), after=("a", 1)), _page(("a", [_partition(1)]), ("b", [_partition(0)]))]
    reading = _read(pages)
    assert set(_rows(reading)) == {("a", 0), ("a", 1), ("b", 0)}
    assert reading.topics.to_pylist(maps_as_pydicts="strict") == [
        {
            "topic": name,
            "topic_id": "KHtsfPk5R_Cc71NtSF0-Vw",
            "config": {"retention.ms": "1"},
            "understood": True,
            "assignment_understood": True,
        }
        for name in ("a", "b")
    ]


def test_pages_begin_where_the_last_one_ended() -> None:
    broker = Broker({"DescribeTopicPartitions": [_page(("a", [_partition(0)]), after=("a", 1)), _page()]})
    assert has_at_most(broker.session, 1)
    first, second = (type(request).decode(request.encode(version=0), version=0) for request in broker.requests)
    assert first.cursor is None
    assert (second.cursor.topic_name, second.cursor.partition_index) == ("a", 1)


def test_of_named_partitions_nothing_else_is_read() -> None:
    """Neither the pages before and after them, nor the other reassignments, of which a large plan makes many."""
    cluster = PagedCluster(2, 5_000, brokers=4)
    cluster.start()
    first, second = cluster.names
    for name in cluster.names:
        cluster.requested[name] = {number: Move(name, number, [0, 1, 3, 2], [3], [2]) for number in range(5_000)}
    keys = [*((first, number) for number in range(4_500, 5_001)), *((second, number) for number in range(400))]
    topics = read_from_broker(
        [cluster.bootstrap.split(",")[0]], {}, lambda session: read_named_partitions(session, keys)
    )
    read = [(row.topic, row.partition) for topic in topics.values() for row in topic.partitions]
    assert sorted(read) == sorted({*keys} - {(first, 5_000)})
    assert {tuple(row.adding_replicas) for topic in topics.values() for row in topic.partitions} == {(3,)}
    assert ([request for _, request in cluster.asked].count(PAGED), cluster.listed) == (1, 2 * 900)


def test_counting_stops_above_the_limit() -> None:
    broker = Broker({"DescribeTopicPartitions": [_page(("a", [_partition(0), _partition(1)]), after=("a", 2))]})
    assert not has_at_most(broker.session, 1)
    assert len(broker.requests) == 1


def test_older_brokers_answer_by_metadata_without_eligible_replicas() -> None:
    row = MetadataResponse.MetadataResponseTopic
    partition = row.MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=1, leader_epoch=4, replica_nodes=[1, 2], isr_nodes=[1]
    )
    topic = row(error_code=0, name="a", topic_id=TOPIC_ID, partitions=[partition])
    reading = _read([IncompatibleBrokerVersion("no pages")], Metadata=[MetadataResponse(topics=[topic])])
    (read,) = _rows(reading).values()
    assert (read["leader"], read["isr"], read["leader_epoch"]) == (1, [1], 4)
    assert (read["eligible_leader_replicas"], read["last_known_elr"]) == (None, None)


def test_a_response_may_be_larger_than_a_megabyte() -> None:
    """kafka-python's own limit, which a Metadata response of some ten thousand partitions exceeds."""
    cluster = PagedCluster(300, 100, newest=NOT_PAGED)
    cluster.start()
    assert read_from_broker(cluster.bootstrap.split(","), {}, list_topics) == (cluster.names, False)


def test_reassignments_fill_what_is_added_and_removed() -> None:
    moving = _moves(("a", 0, [2, 1], [2], [1]))
    reading = _read([_page(("a", [_partition(0, [2, 1]), _partition(1)]))], [moving])
    rows = _rows(reading)
    assert (rows["a", 0]["adding_replicas"], rows["a", 0]["removing_replicas"]) == ([2], [1])
    assert (rows["a", 1]["adding_replicas"], rows["a", 1]["removing_replicas"]) == ([], [])
    assert reading.quarantine == []


def test_a_topic_whose_reassignment_ended_in_between_is_read_again() -> None:
    moving, done = _moves(("a", 0, [2, 1], [2], [1])), _moves()
    pages = [_page(("a", [_partition(0, [2, 1])]), ("b", [_partition(0)])), _page(("a", [_partition(0, [2])]))]
    reading = _read(pages, [moving, done])
    rows = _rows(reading)
    assert (rows["a", 0]["replicas"], rows["a", 0]["adding_replicas"]) == ([2], [])
    assert set(rows) == {("a", 0), ("b", 0)}


@pytest.mark.parametrize(
    ("other", "replicas_again", "adding"),
    [(("b", 0), None, [4]), (("a", 1), [4, 3], [4]), (("a", 1), [4], [4])],
    ids=["of a topic read before", "before the end", "after the end"],
)
def test_a_reassignment_that_ends_while_a_topic_is_read_again(
    other: tuple[str, int], replicas_again: list[int] | None, adding: list[int]
) -> None:
    """That of a-0 ended during the first reading; the other's did not, so that its first reading is kept."""
    first, second = ("a", 0, [2, 1], [2], [1]), (*other, [4, 3], [4], [3])
    of_other = [_partition(other[1], [4, 3])]
    pages = [
        _page(("a", [_partition(0, [2, 1]), *(of_other if other[0] == "a" else [])]), ("b", of_other)),
        _page(("a", [_partition(0, [2]), *([_partition(1, replicas_again)] if replicas_again else [])])),
    ]
    reading = _read(pages, [_moves(first, second), _moves(second), _moves()])
    rows = _rows(reading)
    assert (rows["a", 0]["replicas"], rows["a", 0]["adding_replicas"]) == ([2], [])
    assert (rows[other]["adding_replicas"], rows[other]["understood"]) == (adding, True)
    assert reading.quarantine == []


def test_a_broker_applies_all_that_was_listed_before_it_is_read() -> None:
    """The move of a-0 has ended, which this broker applies once it was asked three times."""
    offsets = [LOG_END - 40, LOG_END - 20, LOG_END - 1]
    applied = list[int]()

    def features(_: object) -> Any:  # noqa: ANN401
        applied.append(offsets.pop(0) if offsets else LOG_END - 1)
        return _applied(applied[-1])

    def page(_: object) -> Any:  # noqa: ANN401
        ended = applied and applied[-1] == LOG_END - 1
        return _page(("a", [_partition(0, [3, 4] if ended else [3, 4, 1, 2])]))

    broker = Broker({"DescribeTopicPartitions": [page], "ListPartitionReassignments": [_moves()]})
    broker.answers["ApiVersions"] = [features]
    found = precondition_reader.read_partitions(broker.session, [("a", 0)])
    assert (found["a", 0].assignment, offsets) == (([3, 4], [], []), [])


UNION = [3, 4, 1, 2]
RUNNING = [("a", 0, UNION, [3, 4], [1, 2])]

# lists of reassignments, and replicas as described between them -> replicas and those that are added; None: unknown
READINGS: list[tuple[str, list[list[Any]], list[list[int]], tuple[list[int], list[int]] | None]] = [
    ("nothing moves", [[], []], [[1, 2]], ([1, 2], [])),
    ("it moves all the time", [RUNNING, RUNNING], [UNION], (UNION, [3, 4])),
    ("it ends in between", [RUNNING, [], []], [UNION, [3, 4]], ([3, 4], [])),
    ("it begins in between", [[], RUNNING, RUNNING], [[1, 2], UNION], (UNION, [3, 4])),
    ("it begins, and ends in the next reading", [[], RUNNING, [], []], [UNION, UNION, [3, 4]], ([3, 4], [])),
    ("it begins and ends all the time", [[], RUNNING] * 6, [UNION], None),
]


@pytest.mark.parametrize(
    ("lists", "described", "expected"), [row[1:] for row in READINGS], ids=[r[0] for r in READINGS]
)
def test_replicas_and_reassignments_are_of_one_moment(
    lists: list[list[Any]], described: list[list[int]], expected: tuple[list[int], list[int]] | None
) -> None:
    """All replicas of a reassignment never count as the assignment."""
    pages = [_page(("a", [_partition(0, replicas)])) for replicas in described]
    answers = {"DescribeTopicPartitions": pages, "ListPartitionReassignments": [_moves(*moves) for moves in lists]}
    (topic,) = read_named_partitions(Broker(answers).session, [("a", 0)]).values()
    (row,) = topic.partitions
    assert ((row.replicas, row.adding_replicas) if row.understood else None) == expected


def test_a_reassignment_between_two_lists_does_not_count() -> None:
    """It begins and ends while the partition is read, so that no list shows it; the log has grown since."""
    pages = [_page(("a", [_partition(0, replicas)])) for replicas in (UNION, [3, 4])]
    quorums = [_quorum(), _quorum(LOG_END + 5)]
    answers: Answers = {
        "DescribeTopicPartitions": pages,
        "ListPartitionReassignments": [_moves()],
        "DescribeQuorum": quorums,
        "ApiVersions": [_applied(LOG_END + 4)],
    }
    (topic,) = read_named_partitions(Broker(answers).session, [("a", 0)]).values()
    (row,) = topic.partitions
    assert (row.replicas, row.adding_replicas, row.understood) == ([3, 4], [], True)


def test_a_reassignment_that_never_fits_is_not_understood() -> None:
    moving = _moves(("a", 0, [3, 1], [3], [1]))
    reading = _read([_page(("a", [_partition(0), _partition(1)]))], [moving])
    assert {key: row["understood"] for key, row in _rows(reading).items()} == {("a", 0): False, ("a", 1): True}
    assert [row.path for row in reading.quarantine] == ["DescribeTopicPartitions/a/0"]


def test_without_the_list_of_reassignments_no_partition_is_understood() -> None:
    reading = _read([_page(("a", [_partition(0)]))], [_moves(error=31)])
    assert [row["understood"] for row in _rows(reading).values()] == [False]
    (fault,) = reading.quarantine
    assert fault.path == "ListPartitionReassignments"
    assert "DESCRIBE on the cluster" in fault.reason


@pytest.mark.parametrize(("error", "leader", "understood"), [(5, -1, True), (72, None, False)])
def test_a_leader_may_be_missing_or_unknown(error: int, leader: int | None, understood: bool) -> None:  # noqa: FBT001
    """LEADER_NOT_AVAILABLE says that there is none, LISTENER_NOT_FOUND that it is unknown."""
    (row,) = _rows(_read([_page(("a", [_partition(0, error=error, leader=-1)]))])).values()
    assert (row["leader"], row["understood"]) == (leader, understood)


def test_unreadable_configs_are_unknown() -> None:
    reading = _read([_page(("a", [_partition(0)]))], configs=29)
    (topic,) = reading.topics.to_pylist()
    assert (topic["config"], topic["understood"], topic["assignment_understood"]) == (None, False, True)
    assert [row.path for row in reading.quarantine] == ["DescribeConfigs/a"]


def test_a_topic_deleted_in_between_is_left_out() -> None:
    reading = _read([_page(("a", [_partition(0)]))], configs=3)
    assert (reading.topics.num_rows, reading.partitions.num_rows, reading.quarantine) == (0, 0, [])


@pytest.mark.parametrize(("version", "fenced"), [(1, [None, None]), (2, [False, True])])
def test_brokers_of_4_0_mark_fenced_ones(version: int, fenced: list[bool | None]) -> None:
    row = DescribeClusterResponse.DescribeClusterBroker
    brokers = [row(broker_id=broker, host="h", port=9092, rack="a", is_fenced=broker == 2) for broker in (2, 1)]
    response = DescribeClusterResponse(cluster_id="c", brokers=brokers, controller_id=2, version=version)
    cluster_id, read = read_cluster(Broker({"DescribeCluster": [response]}).session, "SSL")
    assert cluster_id == "c"
    assert [(broker.broker_id, broker.fenced) for broker in read] == [(1, fenced[0]), (2, fenced[1])]
    assert [broker.is_live for broker in read] == [True, not fenced[1]]
    assert {endpoint.security_protocol for broker in read for endpoint in broker.endpoints or ()} == {"SSL"}
