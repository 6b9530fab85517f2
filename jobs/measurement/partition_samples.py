"""Samples of partitions: offsets and sizes, from the brokers that lead them.

Each broker gets one request at a time, and brokers are asked in parallel. A broker that does not respond costs its own
rows. Partitions that are not where the newest snapshot has them are looked up in the cluster and asked for once more.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from kafka.errors import BrokerResponseError, IncompatibleBrokerVersion, KafkaError

from jobs.adapters.brokers.admin_client import describe_error, error_name
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
from jobs.adapters.brokers.topic_entries import Array, as_native
from jobs.adapters.clusters.interface import Cluster
from jobs.adapters.delta.table_schemas import schema_of
from jobs.measurement.partition_leaders import Leaders, current_leaders
from schemas.enums import NO_LEADER
from schemas.response_codes import NO_ERROR
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
        starts, ends = list_offsets(ask, leaders.names, led, (EARLIEST, LATEST))
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
            (answer,) = list_offsets(ask, leaders.names, some, (EARLIEST_LOCAL,))
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

    def add_sizes(self, log_dirs: Iterable[tuple[int, ReportedLogDir]]) -> None:
        """Add the sizes of logs on brokers that lead them; note topics with logs of other partitions."""
        reported = [(broker_id, row.topics) for broker_id, row in log_dirs]
        names = pa.concat_arrays([pa.array([], pa.binary()), *(topics.names for _, topics in reported)])
        ends = np.cumsum([len(topics.names) for _, topics in reported])
        of_topics = np.split(self.leaders.codes_of(names), ends[:-1])
        for (broker_id, topics), codes in zip(reported, of_topics, strict=False):
            entries, place = topics.entries, topics.topic_of_entry
            rows = self.leaders.rows_of(codes[place], as_native(entries["partition_index"]))
            self.others |= {*topics.names.take(pa.array(np.unique(place[rows < 0]))).to_pylist()}
            known = np.flatnonzero((rows >= 0) & (entries["is_future_key"] == 0))
            led = known[self.leaders.leader[rows[known]] == broker_id]
            self.size[rows[led]] = entries["partition_size"][led]

    def is_of(self, codes: Array) -> Array:
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
        topics = chain.from_iterable(self._topics_of(marks) for marks in marked)
        return [*dict.fromkeys([*sorted(self.others), *topics])]

    def table(self, is_kept: Array) -> pa.Table:
        """Return rows of SAMPLE_COLUMNS of the partitions that are kept."""
        kept = np.flatnonzero(is_kept & self.is_sampled)
        topic = pa.array(self.leaders.partitions.topic[kept])
        columns = {
            "sampled_at": (self.answered_at[kept] * 1e6).astype("datetime64[us]"),
            "topic": self.leaders.names.cast(pa.string()).take(topic),
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
        return set(self._topics_of(is_kept & self.is_sampled))

    def _topics_of(self, marked: Array) -> list[bytes]:
        """Return the topics of the marked partitions."""
        is_marked = np.zeros(len(self.leaders.names), bool)
        is_marked[self.leaders.partitions.topic[marked]] = True
        return self.leaders.names.filter(pa.array(is_marked)).to_pylist()  # type: ignore[no-any-return] # pyarrow is untyped

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

    samples: Sequence[tuple[PartitionSamples, Array]]
    """Samples, and marks of those that are kept."""
    missing: Counter[str]
    """Partitions without a row by reason."""
    leaders: Sequence[Leaders]
    """The leaders that were asked, the latest first."""
    answers: Mapping[int, BrokerAnswer]
    """The first answer of each broker."""
    silent: Mapping[int, str]
    """Reasons of brokers that did not respond."""

    @property
    def partitions(self) -> int:
        """The number of partitions with a row."""
        return sum(int((is_kept & samples.is_sampled).sum()) for samples, is_kept in self.samples)

    @property
    def topics(self) -> int:
        """The number of topics with a row."""
        return len(set[bytes]().union(*(samples.topics(is_kept) for samples, is_kept in self.samples)))

    def table(self) -> pa.Table:
        """Return rows of SAMPLE_COLUMNS."""
        return pa.concat_tables(samples.table(is_kept) for samples, is_kept in self.samples)

    def ids_of(self, names: pa.Array) -> pa.Array:
        """Return the ids of topics, null for unknown ones."""
        return pc.coalesce(*(leaders.ids_of(names) for leaders in self.leaders))


def sample_partitions(
    cluster: Cluster,
    brokers: Sequence[Broker],
    config: dict[str, str],
    leaders: Leaders,
    on_response: Callable[[BrokerAnswer], None],
    *,
    ends: Callable[[], Array],
) -> SampledCluster:
    """Sample all partitions; those that have moved since `leaders` were read are asked for once more.

    `ends` returns those of `least_ends`, by which topics that were created again are found.
    """
    answers, silent = ask_leaders(brokers, config, leaders, on_response)
    first = PartitionSamples(leaders)
    for answer in answers.values():
        first.add_offsets(answer)
    first.add_sizes((broker_id, row) for broker_id, answer in answers.items() for row in answer.log_dirs)
    looked_up = first.to_look_up(ends())[:MAX_LOOKED_UP]
    again = current_leaders(cluster, looked_up)
    is_kept, is_needed = _kept_and_needed(first, again)
    second = PartitionSamples(again.among(is_needed))
    if is_needed.any():
        responding = [row for row in brokers if row.broker_id in answers and len(second.leaders.led_by(row.broker_id))]
        later, _ = ask_leaders(responding, config, second.leaders, lambda _: None, again=True)
        for answer in later.values():
            second.add_offsets(answer)
        second.add_sizes((broker_id, row) for broker_id in later for row in answers[broker_id].log_dirs)
    asked_again = leaders.codes_of(pa.array(looked_up, pa.binary()))
    every = np.ones(len(second.error), bool)
    return SampledCluster(
        samples=((first, is_kept), (second, every)),
        missing=first.missing(~first.is_of(asked_again[asked_again >= 0])) + second.missing(every),
        leaders=(again, leaders),
        answers=answers,
        silent=silent,
    )


def _kept_and_needed(first: PartitionSamples, again: Leaders) -> tuple[Array, Array]:
    """Mark the samples that are kept, and the partitions of `again` that need a sample.

    The samples of a topic that was deleted and created again are dropped, because they may be of either topic.
    """
    before = first.leaders
    codes = before.codes_of(again.names)
    known = np.flatnonzero(codes >= 0)
    ids = before.topic_ids.take(pa.array(codes[known])).to_pylist()
    ids_again = again.topic_ids.take(pa.array(known)).to_pylist()
    is_recreated = np.array([old != new for old, new in zip(ids, ids_again, strict=True)], bool)
    is_kept = ~first.is_of(codes[known][is_recreated])
    rows = before.rows_of(codes[again.partitions.topic], again.partitions.partition)
    is_sampled = np.append(is_kept & first.is_sampled, False)
    return is_kept, ~is_sampled[rows]
