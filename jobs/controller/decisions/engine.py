"""What is due by the memory of a controller that stays: the planner's cycle on the partitions that something concerns.

The queries are built once and asked of whatever rows a decision is about, so it costs what it is about; of partitions
that no rule can tell apart, about one, and once. In: the memory, keys. Out: typed changes, and what is said of others.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import chain

import msgspec
from msgspec.structs import replace as with_values

from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import Row, Warehouse
from jobs.controller.context import ControllerContext
from jobs.controller.decisions.cache import DecisionCache, PartitionClass, expand, group_by_class
from jobs.controller.decisions.queries import DecisionQueries, Query
from jobs.repositories.drained_brokers import has_registered_again
from planner.columns.broker_sets import DRAIN_MODE
from schemas.enums import NO_LEADER, Action, RequestKind
from schemas.notices import Notice
from schemas.rows import Change, Key


@dataclass(frozen=True, slots=True)
class Decisions:
    """One cycle's decisions."""

    changes: list[Change] = field(default_factory=list)
    others: list[Row] = field(default_factory=list)
    """Decisions without a change: why, and whether the request for it is done with."""
    withdrawn: list[Row] = field(default_factory=list)
    deletions: list[Row] = field(default_factory=list)
    deletion_waves: tuple[list[Notice], list[Notice]] = field(default_factory=lambda: ([], []))
    """What is told of topics that are deleted, in this order."""


@dataclass(frozen=True, slots=True)
class _DecisionInput:
    """What one decision is about: kinds of partitions, what is asked for, what was answered, and who is there."""

    memory: ControllerContext
    kinds: list[PartitionClass]
    requests: list[Row]
    stopped: list[Row]
    brokers: list[Row]


@dataclass(slots=True)
class DecisionEngine:
    """Decides by what brokers said of their settings when they were asked last."""

    warehouse: Warehouse
    broker_configs: list[Row]
    queries: DecisionQueries
    drained: list[Row] = field(default_factory=list)
    cache: DecisionCache = field(default_factory=DecisionCache)

    def __post_init__(self) -> None:
        self.queries.put("broker_configs", self.broker_configs)

    @classmethod
    def of(cls, tables: SparkWarehouse, broker_configs: list[Row], *, allow_unclean: bool) -> "DecisionEngine":
        """A decider with questions of its own."""
        questions = DecisionQueries.of(tables.spark, tables.warehouse.cluster, allow_unclean=allow_unclean)
        return cls(tables.warehouse, broker_configs, questions)

    def set_broker_configs(self, broker_configs: list[Row]) -> None:
        """Go by other settings of brokers from now on; what was decided by the former ones does not hold."""
        self.broker_configs, self.cache = broker_configs, DecisionCache()
        self.queries.put("broker_configs", broker_configs)

    def refresh_drained(self) -> None:
        """Read which brokers are drained."""
        self.drained = self.warehouse.rows("drained") if self.warehouse.has("drained") else []

    def end_drains(self, registered: Mapping[int, int]) -> list[Row]:
        """Forget, and return, the marks of resident drains whose brokers have registered again."""
        ended = [row for row in self.drained if has_registered_again(row, registered)]
        self.drained = [row for row in self.drained if row not in ended]
        return ended

    def decide(
        self,
        memory: ControllerContext,
        keys: Collection[Key],
        *,
        deletions: bool,
        balance: Collection[Key] = (),
        away: Collection[int] = (),
    ) -> Decisions:
        """Decide on these partitions and on the requests; `deletions`: look at topics queued for deletion, too.

        `balance`: partitions that are to be led by their preferred replica, if that can be; nobody asked for them.
        `away`: brokers that count as gone, though they are registered.
        """
        asked_for = memory.requested_partitions
        requests = [*memory.admin_requests, *map(_to_be_balanced, sorted(balance))]
        kinds = frozenset(RequestKind(row["kind"]) for row in requests)
        deletes = deletions and RequestKind.DELETE_TOPIC in kinds
        has_requests = bool(kinds & {RequestKind.REASSIGN, RequestKind.PREFERRED_ELECTION})
        if not (keys or has_requests or deletes):
            return Decisions()
        queued = _queued(memory)
        looked_at = {*keys, *balance, *(asked_for if has_requests else ()), *(queued if deletes else ())}
        about = self._about(memory, looked_at, {*balance, *asked_for, *queued}, requests, away)
        rows = self._decisions(about, has_requests=has_requests)
        rows = [row for row in rows if not _is_idle_balance(row, balance, asked_for)]
        changes = msgspec.convert([row for row in rows if row["action"] is not None], list[Change])
        done = [row for row in rows if row["withdrawn"]]
        others = [row for row in rows if row["code"] is not None]
        if not deletes:
            return Decisions(changes, others, done)
        self._put(about, about.kinds)
        deleted = self.queries.run(Query.DELETIONS)
        waves: tuple[list[Notice], list[Notice]] = ([], [])
        if any(row["step"] == "delete" for row in deleted):
            waves = (self._notices(Query.STOP), self._notices(Query.DELETE))
        return Decisions(changes, others, done, deleted, waves)

    def precompute_failure(self, memory: ControllerContext, broker: int, most: int) -> None:
        """Know what is to be done when a live broker fails; not where more than `most` kinds had to be asked about."""
        about = self._about(
            memory, memory.of_broker(broker), memory.requested_partitions | _queued(memory), [], {broker}
        )
        known = self.cache.for_brokers(about.brokers)
        like = [kind for kind in about.kinds if kind.key is not None and kind.key not in known]
        if like and len(like) <= most:
            self._decisions(replace(about, kinds=like), has_requests=False)

    def _about(
        self, memory: ControllerContext, keys: set[Key], named: set[Key], requests: list[Row], away: Collection[int]
    ) -> _DecisionInput:
        """What a decision is about; `named`: partitions that are named by something, and stand for themselves."""
        stopped = _stopped(memory, keys)
        apart = named | memory.moving | {(row["topic"], row["partition"]) for row in stopped}
        modes = {row["broker_id"]: row["mode"] for row in self.drained}
        there = [memory.brokers[broker] for broker in sorted(memory.brokers) if broker not in away]
        return _DecisionInput(
            memory,
            group_by_class(memory, keys, apart),
            requests,
            stopped,
            [row | {DRAIN_MODE: modes.get(row["broker_id"])} for row in there],
        )

    def _decisions(self, about: _DecisionInput, *, has_requests: bool) -> list[Row]:
        """Rows of DECISIONS; of partitions that are alike, one is asked about, unless it is known already."""
        known = self.cache.for_brokers(about.brokers)
        unknown = [kind for kind in about.kinds if kind.key not in known]
        rows: dict[Key, list[Row]] = defaultdict(list)
        if unknown or has_requests:
            self._put(about, unknown)
            moves = has_requests or any(kind.first in about.memory.moving for kind in unknown)
            for row in self.queries.run(Query.EVERYTHING if moves else Query.LEADERSHIP):
                rows[row["topic"], row["partition"]].append(row)
        like = [kind for kind in about.kinds if kind.key is not None]
        for kind in unknown:
            if kind.key is not None:
                known[kind.key] = rows.pop(kind.first, [])
        return [*chain(*rows.values()), *expand(about.memory, like, known)]

    def _notices(self, question: Query) -> list[Notice]:
        return msgspec.convert(self.queries.run(question), list[Notice])

    def _put(self, about: _DecisionInput, kinds: list[PartitionClass]) -> None:
        """Write down what is asked about."""
        keys = [kind.first for kind in kinds]
        self.queries.put("partitions", about.memory.rows_of(keys))
        self.queries.put("topics", about.memory.topics_of(keys))
        self.queries.put("requests", about.requests)
        self.queries.put("stopped", about.stopped)
        self.queries.put("brokers", about.brokers)


def restrict_to_in_sync(change: Change, away: Collection[int]) -> Change:
    """A change that was decided as if brokers were gone that are registered anew, as it can be written.

    Corresponds to `KafkaController.processBrokerChange`, where a bounced broker fails and starts: its unflushed
    records may be lost, so it must not go on leading at the epoch at which others have them. But nobody who is not in
    sync is elected in its place: it is back in a moment, and leads at a later epoch.
    """
    change = with_values(change, requires_dead=[broker for broker in change.requires_dead if broker not in away])
    in_sync = {*(change.isr_before or ())}
    if change.action != Action.ELECT or {*(change.isr_after or ())} <= in_sync or in_sync.isdisjoint(away):
        return change
    return with_values(
        change,
        action=Action.TAKE_OFFLINE.value,
        leader_after=NO_LEADER,
        isr_after=change.isr_before,
        leader_recovery_state_after=change.leader_recovery_state_before,
        requires_live=[],
        reason="its leader has registered anew, and nobody else is in sync",
    )


def released_replicas(change: Change) -> Collection[int]:
    """Brokers that a change lets hold nothing of the partition any more."""
    return change.removing_before or () if change.action == Action.END_REASSIGNMENT else ()


def _queued(memory: ControllerContext) -> set[Key]:
    return {key for topic in memory.topics_to_be_deleted for key in memory.of_topic(topic)}


def _to_be_balanced(key: Key) -> Row:
    return {"kind": RequestKind.PREFERRED_ELECTION.value, "topic": key[0], "partition": key[1]}


def _is_idle_balance(row: Row, balance: Collection[Key], asked_for: Collection[Key]) -> bool:
    """Whether a row says only that a partition nobody asked about stays as it is."""
    key = row["topic"], row["partition"]
    idle = row["action"] is None and row["wanted"] == Action.ELECT_PREFERRED
    return idle and key in balance and key not in asked_for


def _stopped(memory: ControllerContext, keys: AbstractSet[Key]) -> list[Row]:
    """Rows of `answers`: who said that a replica of these is stopped and deleted."""
    return [
        {"topic": topic, "partition": partition, "broker_id": broker, "leader_epoch": epoch}
        for topic, partition in sorted(memory.stopped.keys() & keys)
        for broker, epoch in memory.stopped[topic, partition].items()
    ]
