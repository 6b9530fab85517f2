"""Decides what is due by the controller's context: the planner's rules, applied to the affected partitions only.

The queries are built once and run on any rows, so that a decision costs as much as the rows that it is about. Of
partitions that no rule can distinguish, one is decided on, and once.
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
from schemas.rows import Change, DrainedBroker, Key


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions of one cycle."""

    changes: list[Change] = field(default_factory=list)
    others: list[Row] = field(default_factory=list)
    """Decisions without a change: the reason, and whether the request for it can be withdrawn."""
    withdrawn: list[Row] = field(default_factory=list)
    deletions: list[Row] = field(default_factory=list)
    deletion_batches: tuple[list[Notice], list[Notice]] = field(default_factory=lambda: ([], []))
    """Notices for topics that are being deleted; the second list must be sent after the first."""


@dataclass(frozen=True, slots=True)
class _DecisionInput:
    """The input of one decision: classes of partitions, requests, confirmed replica deletions and brokers."""

    context: ControllerContext
    classes: list[PartitionClass]
    requests: list[Row]
    stopped: list[Row]
    brokers: list[Row]


@dataclass(slots=True)
class DecisionEngine:
    """Decides by the broker settings that were read last."""

    warehouse: Warehouse
    broker_configs: list[Row]
    queries: DecisionQueries
    drained: list[DrainedBroker] = field(default_factory=list)
    cache: DecisionCache = field(default_factory=DecisionCache)

    def __post_init__(self) -> None:
        self.queries.put("broker_configs", self.broker_configs)

    @classmethod
    def of(cls, tables: SparkWarehouse, broker_configs: list[Row], *, allow_unclean: bool) -> "DecisionEngine":
        """Make an engine with queries of its own."""
        queries = DecisionQueries.of(tables.spark, tables.warehouse.cluster, allow_unclean=allow_unclean)
        return cls(tables.warehouse, broker_configs, queries)

    def set_broker_configs(self, broker_configs: list[Row]) -> None:
        """Use other broker settings from now on; cached decisions are dropped."""
        self.broker_configs, self.cache = broker_configs, DecisionCache()
        self.queries.put("broker_configs", broker_configs)

    def refresh_drained(self) -> None:
        """Read which brokers are drained."""
        self.drained = self.warehouse.typed_rows(DrainedBroker) if self.warehouse.has("drained") else []

    def end_drains(self, registered: Mapping[int, int]) -> list[DrainedBroker]:
        """Remove and return the resident drains whose brokers have registered again."""
        ended = [row for row in self.drained if has_registered_again(row, registered)]
        self.drained = [row for row in self.drained if row not in ended]
        return ended

    def decide(
        self,
        context: ControllerContext,
        keys: Collection[Key],
        *,
        deletions: bool,
        balance: Collection[Key] = (),
        assumed_dead: Collection[int] = (),
    ) -> Decisions:
        """Decide on these partitions and on the requests.

        `deletions`: decide on topics that are queued for deletion, too. `balance`: partitions that should be led by
        their preferred replica if possible, although no request names them. `assumed_dead`: brokers that count as
        failed, although they are registered.
        """
        asked_for = context.requested_partitions
        requests = [*context.admin_requests, *map(_balance_request, sorted(balance))]
        kinds = frozenset(RequestKind(row["kind"]) for row in requests)
        deletes = deletions and RequestKind.DELETE_TOPIC in kinds
        has_requests = bool(kinds & {RequestKind.REASSIGN, RequestKind.PREFERRED_ELECTION})
        if not (keys or has_requests or deletes):
            return Decisions()
        queued = _partitions_to_be_deleted(context)
        all_keys = {*keys, *balance, *(asked_for if has_requests else ()), *(queued if deletes else ())}
        inputs = self._input(context, all_keys, {*balance, *asked_for, *queued}, requests, assumed_dead)
        rows = self._decision_rows(inputs, has_requests=has_requests)
        rows = [row for row in rows if not _is_idle_balance(row, balance, asked_for)]
        changes = msgspec.convert([row for row in rows if row["action"] is not None], list[Change])
        done = [row for row in rows if row["withdrawn"]]
        others = [row for row in rows if row["code"] is not None]
        if not deletes:
            return Decisions(changes, others, done)
        self._put_tables(inputs, inputs.classes)
        deleted = self.queries.run(Query.DELETIONS)
        waves: tuple[list[Notice], list[Notice]] = ([], [])
        if any(row["step"] == "delete" for row in deleted):
            waves = (self._notices(Query.STOP), self._notices(Query.DELETE))
        return Decisions(changes, others, done, deleted, waves)

    def precompute_failure(self, context: ControllerContext, broker: int, max_classes: int) -> None:
        """Cache the decisions for the failure of a live broker, unless more than `max_classes` are not cached yet."""
        inputs = self._input(
            context,
            context.of_broker(broker),
            context.requested_partitions | _partitions_to_be_deleted(context),
            [],
            {broker},
        )
        cached = self.cache.for_brokers(inputs.brokers)
        cacheable = [
            partition_class
            for partition_class in inputs.classes
            if partition_class.key is not None and partition_class.key not in cached
        ]
        if cacheable and len(cacheable) <= max_classes:
            self._decision_rows(replace(inputs, classes=cacheable), has_requests=False)

    def _input(
        self,
        context: ControllerContext,
        keys: set[Key],
        named_keys: set[Key],
        requests: list[Row],
        assumed_dead: Collection[int],
    ) -> _DecisionInput:
        """Return the input of a decision; each partition of `named_keys` is a class of its own."""
        stopped = _stopped(context, keys)
        singletons = named_keys | context.moving | {(row["topic"], row["partition"]) for row in stopped}
        modes = {row.broker_id: row.mode for row in self.drained}
        present = [context.brokers[broker] for broker in sorted(context.brokers) if broker not in assumed_dead]
        return _DecisionInput(
            context,
            group_by_class(context, keys, singletons),
            requests,
            stopped,
            [row | {DRAIN_MODE: modes.get(row["broker_id"])} for row in present],
        )

    def _decision_rows(self, inputs: _DecisionInput, *, has_requests: bool) -> list[Row]:
        """Return rows of DECISIONS; only classes that are not cached are queried, each for one partition."""
        cached = self.cache.for_brokers(inputs.brokers)
        uncached = [partition_class for partition_class in inputs.classes if partition_class.key not in cached]
        rows: dict[Key, list[Row]] = defaultdict(list)
        if uncached or has_requests:
            self._put_tables(inputs, uncached)
            moves = has_requests or any(partition_class.first in inputs.context.moving for partition_class in uncached)
            for row in self.queries.run(Query.EVERYTHING if moves else Query.LEADERSHIP):
                rows[row["topic"], row["partition"]].append(row)
        cacheable = [partition_class for partition_class in inputs.classes if partition_class.key is not None]
        for partition_class in uncached:
            if partition_class.key is not None:
                cached[partition_class.key] = rows.pop(partition_class.first, [])
        return [*chain(*rows.values()), *expand(inputs.context, cacheable, cached)]

    def _notices(self, query: Query) -> list[Notice]:
        return msgspec.convert(self.queries.run(query), list[Notice])

    def _put_tables(self, inputs: _DecisionInput, classes: list[PartitionClass]) -> None:
        """Replace the input tables of the queries."""
        keys = [partition_class.first for partition_class in classes]
        self.queries.put("partitions", inputs.context.rows_of(keys))
        self.queries.put("topics", inputs.context.topics_of(keys))
        self.queries.put("requests", inputs.requests)
        self.queries.put("stopped", inputs.stopped)
        self.queries.put("brokers", inputs.brokers)


def restrict_to_in_sync(change: Change, assumed_dead: Collection[int]) -> Change:
    """Adapt a change that was decided as if bounced brokers had failed.

    Corresponds to `KafkaController.processBrokerChange`, where a bounced broker fails and starts. Its unflushed records
    may be lost, so it must not continue to lead at the leader epoch at which other replicas have them. But no replica
    outside of the ISR is elected in its place, because the broker is about to be back and then leads at a later epoch.
    """
    change = with_values(
        change, requires_dead=[broker for broker in change.requires_dead if broker not in assumed_dead]
    )
    in_sync = {*(change.isr_before or ())}
    if change.action != Action.ELECT or {*(change.isr_after or ())} <= in_sync or in_sync.isdisjoint(assumed_dead):
        return change
    return with_values(
        change,
        action=Action.TAKE_OFFLINE.value,
        leader_after=NO_LEADER,
        isr_after=change.isr_before,
        leader_recovery_state_after=change.leader_recovery_state_before,
        requires_live=[],
        reason="its leader has restarted, and no other replica is in sync",
    )


def released_replicas(change: Change) -> Collection[int]:
    """Return the brokers that no longer hold a replica of the partition after a change."""
    return change.removing_before or () if change.action == Action.END_REASSIGNMENT else ()


def _partitions_to_be_deleted(context: ControllerContext) -> set[Key]:
    return {key for topic in context.topics_to_be_deleted for key in context.of_topic(topic)}


def _balance_request(key: Key) -> Row:
    return {"kind": RequestKind.PREFERRED_ELECTION.value, "topic": key[0], "partition": key[1]}


def _is_idle_balance(row: Row, balance: Collection[Key], asked_for: Collection[Key]) -> bool:
    """Whether a row only says that a partition which no request names stays as it is."""
    key = row["topic"], row["partition"]
    idle = row["action"] is None and row["wanted"] == Action.ELECT_PREFERRED
    return idle and key in balance and key not in asked_for


def _stopped(context: ControllerContext, keys: AbstractSet[Key]) -> list[Row]:
    """Return rows of `answers`: which brokers confirmed that they deleted a replica of these partitions."""
    return [
        {"topic": topic, "partition": partition, "broker_id": broker, "leader_epoch": epoch}
        for topic, partition in sorted(context.stopped.keys() & keys)
        for broker, epoch in context.stopped[topic, partition].items()
    ]
