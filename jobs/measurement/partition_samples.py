"""Samples of partitions: offsets and sizes, from the brokers that lead them.

Each broker gets one request at a time, and brokers are asked in parallel. A broker that does not respond costs its own
rows. Partitions that are not where the newest snapshot has them are looked up in the cluster and asked for once more.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from kafka.errors import BrokerResponseError, IncompatibleBrokerVersion, KafkaError

from jobs.adapters.brokers.admin_client import NO_ERROR, describe_error, error_name
from jobs.adapters.brokers.fanout import Ask, ask_brokers
from jobs.adapters.brokers.group_offsets import GroupReading, read_groups
from jobs.adapters.brokers.log_dirs import MAX_CONNECTIONS, ReportedLogDir, describe_log_dirs
from jobs.adapters.brokers.partition_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    NO_OFFSET,
    NOT_ANSWERED,
    Offsets,
    Partitions,
    list_offsets,
)
from jobs.adapters.brokers.topic_entries import Array
from jobs.adapters.clusters.interface import Cluster
from jobs.adapters.delta.table_schemas import schema_of
from jobs.measurement.leaders import Leaders, current_leaders, found
from schemas.enums import NO_LEADER
from schemas.rows import Broker

BROKER_SECONDS: Final = 30.0
"""Seconds in which a broker must answer all of a sample's requests."""

MAX_LOOKED_UP: Final = 1_000
"""Topics whose leaders are looked up in the cluster during a sample; more of them take as long as a snapshot."""

LOG_DIRS, GROUPS = "log dirs", "groups"
"""What a broker may refuse to report while it reports offsets."""

MOVED: Final = frozenset({3, 5, 6, 9, 56, 74, 75, 78})
"""Errors of a partition that another broker may lead, or that has just got a leader."""


SAMPLE_COLUMNS: Final = pa.schema(
    [column for column in schema_of("partition_offsets") if column.name not in {"cluster", "stored_at"}]
)
"""Columns of PARTITION_OFFSETS that are known before it is stored."""


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """What one broker answered for the partitions that it leads."""

    rows: Array
    """Positions of these partitions in Leaders."""
    starts: Offsets
    ends: Offsets
    local_starts: Array
    """Earliest offsets on its disk of topics with tiered storage, else NO_OFFSET."""
    log_dirs: Sequence[ReportedLogDir]
    """Its log dirs with all logs; empty if it did not report them."""
    log_dirs_at: datetime
    groups: GroupReading
    refusals: Mapping[str, str]
    """Why it did not report LOG_DIRS or GROUPS."""

    @property
    def log_bytes(self) -> int:
        """The bytes of all its logs."""
        return sum(int(row.topics.entries["partition_size"].sum()) for row in self.log_dirs)


def ask_leaders(
    brokers: Sequence[Broker],
    config: dict[str, str],
    leaders: Leaders,
    on_response: Callable[[BrokerAnswer], None],
    *,
    again: bool = False,
) -> tuple[dict[int, BrokerAnswer], dict[int, str]]:
    """Ask brokers for the partitions that they lead; return answers, and reasons for missing ones, by broker id.

    The size of a log belongs to its end, and both are asked for one soon after the other. `again` leaves out what does
    not depend on leaders.
    """

    def question(ask: Ask, broker: Broker) -> BrokerAnswer:
        rows = leaders.led_by(broker.broker_id)
        led = Partitions(leaders.partitions.topic[rows], leaders.partitions.partition[rows])
        local_starts = _local_starts(ask, leaders, led)
        refusals: dict[str, str] = {}
        log_dirs, groups = list[ReportedLogDir](), GroupReading()
        if not again:
            with _noted(LOG_DIRS, refusals, BrokerResponseError, PermissionError):
                log_dirs = describe_log_dirs(ask)
        log_dirs_at = datetime.now(UTC)
        starts, ends = list_offsets(ask, leaders.names, leaders.codes, led, (EARLIEST, LATEST))
        if not again:
            with _noted(GROUPS, refusals, KafkaError, OSError):
                groups = read_groups(ask)
        answer = BrokerAnswer(rows, starts, ends, local_starts, log_dirs, log_dirs_at, groups, refusals)
        on_response(answer)
        return answer

    bound = BROKER_SECONDS * -(-len(brokers) // MAX_CONNECTIONS)
    return ask_brokers(brokers, config, bound, question, max_connections=MAX_CONNECTIONS)


@contextmanager
def _noted(subject: str, refusals: dict[str, str], *errors: type[Exception]) -> Iterator[None]:
    """Note an error after which the other answers of a broker still count."""
    try:
        yield
    except errors as error:
        refusals[subject] = describe_error(error)


def _local_starts(ask: Ask, leaders: Leaders, led: Partitions) -> Array:
    """Return the earliest offsets on the broker's disk of topics with tiered storage, else NO_OFFSET."""
    found = np.full(len(led.topic), NO_OFFSET, np.int64)
    tiered = np.flatnonzero(leaders.is_tiered[led.topic])
    if len(tiered):
        some = Partitions(led.topic[tiered], led.partition[tiered])
        with suppress(IncompatibleBrokerVersion):  # before Kafka 3.4, which has no tiered storage
            (answer,) = list_offsets(ask, leaders.names, leaders.codes, some, (EARLIEST_LOCAL,))
            found[tiered] = answer.offset
    return found


@dataclass(slots=True)
class PartitionSamples:
    """Samples of the partitions in `leaders`, in their order; each array has one value for each."""

    leaders: Leaders
    error: Array = field(init=False)
    """Error codes of the latest offset; NOT_ANSWERED if its leader was not asked or did not answer."""
    log_start: Array = field(init=False)
    local_start: Array = field(init=False)
    log_end: Array = field(init=False)
    leader_epoch: Array = field(init=False)
    size: Array = field(init=False)
    answered_at: Array = field(init=False)
    others: set[bytes] = field(default_factory=set)
    """Topics with logs of partitions that `leaders` does not have."""

    def __post_init__(self) -> None:
        count = len(self.leaders.leader)
        self.error = np.full(count, NOT_ANSWERED, np.int16)
        self.log_start, self.local_start, self.log_end, self.leader_epoch, self.size = (
            np.full(count, NO_OFFSET, np.int64) for _ in range(5)
        )
        self.answered_at = np.zeros(count)

    def add_offsets(self, answer: BrokerAnswer) -> None:
        rows, is_known = answer.rows, answer.starts.error == NO_ERROR
        self.error[rows], self.log_end[rows] = answer.ends.error, answer.ends.offset
        self.leader_epoch[rows], self.answered_at[rows] = answer.ends.leader_epoch, answer.ends.answered_at
        self.log_start[rows] = np.where(is_known, answer.starts.offset, NO_OFFSET)
        self.local_start[rows] = answer.local_starts

    def add_sizes(self, broker_id: int, log_dirs: Sequence[ReportedLogDir]) -> None:
        """Add the sizes of a broker's logs that it leads; note topics with logs of other partitions."""
        led = self.leaders.led_by(broker_id)
        for topics in (row.topics for row in log_dirs):
            entries, topic = topics.entries, topics.topic_of_entry
            codes = np.array([self.leaders.codes.get(name, -1) for name in topics.names], np.int64)
            partition = entries["partition_index"]
            is_other = partition >= self.leaders.partition_counts[codes[topic]]
            self.others |= {topics.names[number] for number in np.unique(topic[is_other]).tolist()}
            current = np.flatnonzero(entries["is_future_key"] == 0)
            wanted = Partitions(codes[topic[current]], partition[current])
            rows = found(self.leaders.keys[led], wanted.keys)
            self.size[led[rows[rows >= 0]]] = entries["partition_size"][current[rows >= 0]]

    def is_of(self, codes: Sequence[int]) -> Array:
        """Mark the partitions of topics with these codes."""
        of_code = np.zeros(len(self.leaders.names), bool)
        of_code[codes] = True
        return of_code[self.leaders.partitions.topic]

    @property
    def is_sampled(self) -> Array:
        marks: Array = self.error == NO_ERROR
        return marks

    def to_look_up(self, ends: Array) -> list[bytes]:
        """Return topics whose leaders must be read from the cluster; last those whose leader did not answer.

        A log that ends before `ends` is that of another topic, unless an unclean election has truncated it.
        """
        went_back = (self.leader_epoch < self.leaders.leader_epoch) | (self.log_end < ends)
        is_recreated = self.is_sampled & went_back
        is_moved = np.isin(self.error, [*MOVED])
        marked = (is_moved | is_recreated, self.error == NOT_ANSWERED)
        codes = [np.unique(self.leaders.partitions.topic[marks]).tolist() for marks in marked]
        return [*dict.fromkeys([*sorted(self.others), *(self.leaders.names[code] for some in codes for code in some)])]

    def table(self, is_kept: Array) -> pa.Table:
        """Return rows of SAMPLE_COLUMNS of the partitions that are kept."""
        kept = np.flatnonzero(is_kept & self.is_sampled)
        topic = pa.array(self.leaders.partitions.topic[kept])
        names = pa.array(self.leaders.names, pa.binary()).cast(pa.string())
        columns = {
            "sampled_at": (self.answered_at[kept] * 1e6).astype("datetime64[us]"),
            "topic": names.take(topic),
            "topic_id": self.leaders.topic_ids.take(topic),
            "partition": self.leaders.partitions.partition[kept],
            "leader": self.leaders.leader[kept],
            "leader_epoch": _nullable(self.leader_epoch[kept]),
            "log_start": _nullable(self.log_start[kept]),
            "local_start": _nullable(self.local_start[kept]),
            "log_end": _nullable(self.log_end[kept]),
            "bytes": _nullable(self.size[kept]),
        }
        arrays = [pa.array(columns[column.name]).cast(column.type) for column in SAMPLE_COLUMNS]
        return pa.Table.from_arrays(arrays, schema=SAMPLE_COLUMNS)

    def topics(self, is_kept: Array) -> set[bytes]:
        """Return the topics of the rows of `table`."""
        codes = np.unique(self.leaders.partitions.topic[is_kept & self.is_sampled])
        return {self.leaders.names[code] for code in codes.tolist()}

    def missing(self, is_counted: Array) -> Counter[str]:
        """Count partitions without a sample by reason."""
        rows = np.flatnonzero(is_counted & ~self.is_sampled)
        codes, leads = self.error[rows], self.leaders.leader[rows]
        without_leader = (codes == NOT_ANSWERED) & (leads == NO_LEADER)
        reasons = {NOT_ANSWERED: "their leader did not respond"}
        counted = zip(*np.unique(codes[~without_leader], return_counts=True), strict=True)
        counts = Counter({reasons.get(int(code)) or error_name(int(code)): int(count) for code, count in counted})
        return counts + Counter({"they have no leader": int(without_leader.sum())})


def _nullable(numbers: Array) -> pa.Array:
    return pa.array(numbers, mask=numbers < 0)


class SampledCluster(NamedTuple):
    """What brokers answered, once all partitions were found that can be."""

    rows: pa.Table
    """Rows of SAMPLE_COLUMNS."""
    topics: int
    """Topics with a row."""
    missing: Counter[str]
    """Partitions without a row by reason."""
    topic_ids: Mapping[bytes, str | None]
    answers: Mapping[int, BrokerAnswer]
    """The first answer of each broker."""
    silent: Mapping[int, str]
    """Reasons of brokers that did not respond."""


def sample_partitions(
    cluster: Cluster,
    brokers: Sequence[Broker],
    config: dict[str, str],
    leaders: Leaders,
    on_response: Callable[[BrokerAnswer], None],
    *,
    ends: Array,
) -> SampledCluster:
    """Sample all partitions; those that have moved since `leaders` were read are asked for once more.

    `ends` are those of `least_ends`, by which topics that were created again are found.
    """
    answers, silent = ask_leaders(brokers, config, leaders, on_response)
    first = PartitionSamples(leaders)
    for broker_id, answer in answers.items():
        first.add_offsets(answer)
        first.add_sizes(broker_id, answer.log_dirs)
    looked_up = first.to_look_up(ends)[:MAX_LOOKED_UP]
    again = current_leaders(cluster, looked_up)
    is_kept, is_needed = _kept_and_needed(first, again)
    second = PartitionSamples(again.among(is_needed))
    if is_needed.any():
        responding = [row for row in brokers if row.broker_id in answers and len(second.leaders.led_by(row.broker_id))]
        later, _ = ask_leaders(responding, config, second.leaders, lambda _: None, again=True)
        for broker_id, answer in later.items():
            second.add_offsets(answer)
            second.add_sizes(broker_id, answers[broker_id].log_dirs)
    asked_again = [leaders.codes[name] for name in looked_up if name in leaders.codes]
    every = np.ones(len(second.error), bool)
    return SampledCluster(
        rows=pa.concat_tables([first.table(is_kept), second.table(every)]),
        topics=len(first.topics(is_kept) | second.topics(every)),
        missing=first.missing(~first.is_of(asked_again)) + second.missing(every),
        topic_ids=leaders.id_of_topic | again.id_of_topic,
        answers=answers,
        silent=silent,
    )


def _kept_and_needed(first: PartitionSamples, again: Leaders) -> tuple[Array, Array]:
    """Mark the samples that are kept, and the partitions of `again` that need a sample.

    The samples of a topic that was deleted and created again are dropped, because they may be of either topic.
    """
    before = first.leaders
    ids, ids_again = before.topic_ids.to_pylist(), again.topic_ids.to_pylist()
    codes = [before.codes.get(name) for name in again.names]
    recreated = [
        code for code, topic_id in zip(codes, ids_again, strict=True) if code is not None and ids[code] != topic_id
    ]
    is_kept = ~first.is_of(recreated)
    codes_before = np.array([-1 if code is None else code for code in codes], np.int64)
    rows = found(before.keys, Partitions(codes_before[again.partitions.topic], again.partitions.partition).keys)
    is_sampled = np.append(is_kept & first.is_sampled, False)
    return is_kept, ~is_sampled[rows]
