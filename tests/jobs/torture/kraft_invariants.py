"""Invariants of the rounds in a KRaft cluster: what is settled at the end, and what the metadata log may contain.

Each check returns the violations as text; an empty list if there are none.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined] # exported, untyped
from deltalake import DeltaTable
from kafka.errors import KafkaError

from jobs.adapters.brokers.admin_client import connected_admin
from jobs.adapters.delta.warehouse import Warehouse
from schemas.enums import Action, OperationKind, Outcome, PlanStatus
from schemas.lease_holder import LeaseHolder, decode_holder
from schemas.operation_data import AlteredConfig, data_of
from schemas.rows import Operation, Row
from tests.jobs.torture.kraft_torture_cluster import NODES, KRaftTortureCluster, Requested
from tests.jobs.torture.metadata_log import MetadataHistory, Place

_OWN: Final = {"topic": 1, "broker": 2}
"""The sources of dynamic settings, as librdkafka numbers them."""

RETENTION: Final = "retention.ms"
"""The config that the plans of the rounds set."""


def unsettled(cluster: KRaftTortureCluster) -> list[str]:
    """Return what is not yet in its final state."""
    known = {}
    for node in NODES:
        try:
            address = cluster.nodes[node].address
            metadata = AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=10)
        except KafkaException as error:
            return [f"node {node} does not return its metadata: {error}"]
        if metadata.brokers.keys() != {*NODES}:
            return [f"node {node} knows the brokers {sorted(metadata.brokers)}"]
        known[node] = {
            (topic, number): (row.leader, tuple(row.replicas), tuple(sorted(row.isrs)))
            for topic, described in metadata.topics.items()
            for number, row in described.partitions.items()
        }
    if any(one != other for one, other in pairwise(known.values())):
        return [f"nodes disagree: {known}"]
    return [*_unhealthy(known[NODES[0]]), *_moving(cluster), *_throttled(cluster, {topic for topic, _ in known[1]})]


def _unhealthy(partitions: dict[Place, tuple[int, tuple[int, ...], tuple[int, ...]]]) -> Iterator[str]:
    for (topic, number), (leader, replicas, isr) in partitions.items():
        if leader not in isr or {*isr} != {*replicas}:
            yield f"{topic}-{number} of {replicas} is led by {leader}, in sync are {isr}"


def _moving(cluster: KRaftTortureCluster) -> Iterator[str]:
    try:
        with connected_admin(cluster.bootstrap.split(","), {}) as admin:
            if moving := admin.reassignments():
                yield f"still moving: {moving}"
    except KafkaError as error:
        yield f"reassignments cannot be listed: {error!r}"


def _throttled(cluster: KRaftTortureCluster, topics: Collection[str]) -> Iterator[str]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    named = [*(("broker", str(node)) for node in NODES), *(("topic", topic) for topic in sorted(topics))]
    for kind, name in named:
        (answer,) = admin.describe_configs([ConfigResource(ConfigResource.Type[kind.upper()], name)]).values()
        try:
            configs = answer.result(20)
        except KafkaException as error:
            yield f"the config of {kind} {name} cannot be read: {error}"
            continue
        left = {
            entry.name: entry.value
            for entry in configs.values()
            if ".replication.throttled." in entry.name and entry.source == _OWN[kind]
        }
        if left:
            yield f"{kind} {name} is still throttled: {left}"
    if cluster.warehouse.has("throttles") and (rows := cluster.warehouse.rows("throttles")):
        yield f"table throttles still has {rows}"


@dataclass(frozen=True, slots=True)
class LeaseSpan:
    """A lease from its first row until it was released, taken or ran out; in seconds since 1970."""

    token: str
    holder: LeaseHolder
    taken: float
    end: float


def lease_version(warehouse: Warehouse) -> int:
    """Return the version of the table of leases, -1 if there is none."""
    return warehouse.opened("leases").version() if warehouse.has("leases") else -1


def leases(warehouse: Warehouse, since: int = -1) -> tuple[list[LeaseSpan], list[str]]:
    """Read the leases from the versions of the table after `since`, and what is wrong: one taken before another's end.

    The times of earlier versions may be those of a clock that was set.
    """
    if not warehouse.has("leases"):
        return [], []
    table = DeltaTable(warehouse.path("leases"))
    held: list[LeaseSpan] = []
    wrong: list[str] = []
    latest: tuple[Row, float, float] | None = None
    entries = [entry for entry in table.history() if int(entry["version"]) > since]
    for entry in sorted(entries, key=lambda entry: int(entry["version"])):
        at = entry["timestamp"] / 1000
        (row,) = warehouse.rows("leases", version=entry["version"]) or (None,)
        if latest is not None and (row is None or row["token"] != latest[0]["token"]):
            before, taken, deadline = latest
            if row is not None and at < deadline:
                wrong.append(f"{row['holder']} took the lease at {at}, and that of {before['holder']} ends {deadline}")
            held.append(LeaseSpan(before["token"], decode_holder(before["holder"].encode()), taken, min(at, deadline)))
            latest = None
        if row is not None:
            latest = row, at if latest is None else latest[1], row["deadline"].replace(tzinfo=UTC).timestamp()
    if latest is not None:
        row, taken, deadline = latest
        held.append(LeaseSpan(row["token"], decode_holder(row["holder"].encode()), taken, deadline))
    return held, wrong


@dataclass(frozen=True, slots=True)
class Plans:
    """What Surveyor's plans say that was, or may have been, requested."""

    warehouse: Warehouse

    def _rows(self, table: str) -> list[Row]:
        return self.warehouse.rows(table) if self.warehouse.has(table) else []

    def requested(self) -> dict[tuple[str, int | None, str, int | None], list[Row]]:
        """Rows of commits by plan, wave, topic and partition, in the order in which they were written."""
        rows: dict[tuple[str, int | None, str, int | None], list[Row]] = defaultdict(list)
        for row in sorted(self._rows("commits"), key=lambda row: (row["attempt"], row["committed_at"])):
            if row["topic"] is not None:
                rows[row["plan_id"], row["wave"], row["topic"], row["partition"]].append(row)
        return rows

    def moves(self) -> list[Row]:
        """The reassignments of all plans."""
        return [row for row in self._rows("changes") if row["action"] == Action.REASSIGN]

    def cancellations(self) -> list[Row]:
        """The cancellations of all plans."""
        return [row for row in self._rows("changes") if row["action"] == Action.CANCEL]

    def plans(self) -> dict[str, Row]:
        return {row["plan_id"]: row for row in self._rows("plans")}

    def operations(self, kind: OperationKind) -> list[Operation]:
        return (
            self.warehouse.typed_rows(Operation, ("kind", "=", kind.value)) if self.warehouse.has("operations") else []
        )


def explained(plans: Plans, foreign: Iterable[Requested]) -> Counter[Requested]:
    """How often each target may have been requested: once for each plan, and by other clients."""
    requested = plans.requested()
    allowed: Counter[Requested] = Counter(foreign)
    for move in plans.moves():
        key = move["plan_id"], move["wave"], move["topic"], move["partition"]
        if requested.get(key):
            allowed[move["topic"], move["partition"], tuple(move["replicas_after"])] += 1
    for row in plans.cancellations():
        if requested.get((row["plan_id"], row["wave"], row["topic"], row["partition"])):
            left = [broker for broker in row["replicas_before"] if broker not in row["adding_before"]]
            allowed[row["topic"], row["partition"], tuple(left)] += 1  # Kafka leaves the order of the target
    return allowed


def executed_twice(
    history: MetadataHistory, plans: Plans, foreign: Iterable[Requested], prepared: Collection[str]
) -> list[str]:
    """Return what was carried out more often than plans and other clients asked for; `prepared` topics once more.

    Internal topics are not judged.
    """
    moved = Counter((row.topic, row.partition, tuple(row.target)) for row in history.retargeted)
    values = Counter(
        (row.topic, name, value)
        for row in plans.operations(OperationKind.ALTER_CONFIG)
        for name, value in data_of(row, AlteredConfig).after.items()
    )
    created = Counter(row.topic for row in plans.operations(OperationKind.CREATE_TOPIC)) + Counter(prepared)
    by_plans = Counter({topic: count for topic, count in history.created.items() if not topic.startswith("__")})
    deleted = Counter(row.topic for row in plans.operations(OperationKind.DELETE_TOPIC))
    configured = Counter({key: count for key, count in history.configured.items() if key[1] == RETENTION})
    return [
        *(f"{key} was requested {count} times too often" for key, count in (moved - explained(plans, foreign)).items()),
        *(f"{key} was created {count} times too often" for key, count in (by_plans - created).items()),
        *(f"{key} was deleted {count} times too often" for key, count in (history.deleted - deleted).items()),
        *(f"{key} was set {count} times too often" for key, count in (configured - values).items()),
    ]


def outside_lease(
    history: MetadataHistory, held: Collection[LeaseSpan], foreign: Iterable[Requested], since: float = 0.0
) -> list[str]:
    """Return moves that no other client requested, and that the controller got while no command had the lease.

    Those before `since` are not judged, as `held` lacks the leases of earlier rounds. The leases follow the moves.
    """
    by_others = set(foreign)
    moves = [
        f"{row} was requested while no command had the lease"
        for row in history.retargeted
        if row.at >= since
        and (row.topic, row.partition, tuple(row.target)) not in by_others
        and not any(lease.taken <= row.at <= lease.end for lease in held)
    ]
    return [*moves, f"the leases since {since}: {held}"] if moves else []


def untrue_outcomes(history: MetadataHistory, plans: Plans) -> list[str]:
    """Return partitions that the last plan says to have moved, and that are elsewhere, and those without an outcome."""
    requested, statuses, moves = plans.requested(), plans.plans(), plans.moves()
    cancelled = {
        (move["topic"], move["partition"], tuple(move["replicas_before"]))
        for move in moves
        if statuses[move["plan_id"]]["status"] == PlanStatus.CANCELLED
    }
    last: dict[Place, tuple[datetime, int, Row]] = {}
    for move in moves:
        place, created = (move["topic"], move["partition"]), statuses[move["plan_id"]]["created_at"]
        if place not in last or (created, move["wave"]) > last[place][:2]:
            last[place] = created, move["wave"], move
    wrong = []
    for place, (_, _, move) in last.items():
        plan, state = statuses[move["plan_id"]], history.partitions.get(place)
        rows = requested.get((move["plan_id"], move["wave"], *place), [])
        if plan["status"] in {PlanStatus.CANCELLED, PlanStatus.ROLLED_BACK} or not rows or state is None:
            continue
        outcome = rows[-1]["outcome"]
        if outcome in {Outcome.PENDING, Outcome.UNKNOWN}:
            wrong.append(f"{place}: its outcome in plan {plan['plan_id']} is {outcome}")
        elif (*place, tuple(state.replicas)) in cancelled:
            continue  # the round cancels again at its end, which restores the order of replicas from before
        elif outcome == Outcome.APPLIED and state.replicas != move["replicas_after"]:
            wrong.append(f"{place} is on {state.replicas}; it was applied by plan {plan['plan_id']}: {move}")
    return wrong


def moved_back(history: MetadataHistory, plans: Plans, undone: Collection[str]) -> int:
    """Return how many partitions the controller got a new target for by rollbacks of the plans `undone`."""
    rollbacks = {
        key for key, row in plans.plans().items() if json.loads(row["parameters"]).get("rollback_of") in undone
    }
    requested, targets = (
        plans.requested(),
        {(row.topic, row.partition, tuple(row.target)) for row in history.retargeted},
    )
    back = {
        (move["topic"], move["partition"])
        for move in plans.moves()
        if move["plan_id"] in rollbacks
        and (rows := requested.get((move["plan_id"], move["wave"], move["topic"], move["partition"])))
        and rows[-1]["outcome"] == Outcome.APPLIED
        and (move["topic"], move["partition"], tuple(move["replicas_after"])) in targets
    }
    return len(back)
