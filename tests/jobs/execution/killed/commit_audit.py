"""An audit of `commits`: the tree before and after a command, compared with the rows, without using the committer's
code.

Everything written has an intent, for each partition and operation; what is called applied is in the tree; and once a
plan is committed, each of its rows has exactly one outcome.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from schemas.enums import Action, OperationKind, Outcome, PlanKind, Step
from schemas.rows import Change, Operation, Place, PlanRow, Row
from schemas.znode_codecs import Assignment, decode_assignment, decode_config, decode_partitions, decode_state
from tests.jobs.execution.killed.crash_runner import Planned
from tests.jobs.support.zookeeper.kafka_tree import Dump, state_path

Subject = tuple[str, int | str]
"""What an intent is about: a partition of a topic, or an operation on the topic, or THROTTLE and its resource."""

THROTTLE: Final = "throttle"
APPLIED: Final = frozenset({Outcome.APPLIED})
_GOING: Final = (OperationKind.DELETE_TOPIC, OperationKind.REMOVE_TOPIC)
_WITHDRAWN: Final = (OperationKind.WITHDRAW_REASSIGNMENT, OperationKind.WITHDRAW_ELECTION)
_THROTTLING: Final = {Step.THROTTLE, Step.LIFT_THROTTLE}
_OURS: Final = ("/controller", "/surveyor", "/brokers/ids")
"""Controllership, lease and registrations, which are no part of a plan."""


@dataclass(frozen=True)
class CommitAudit:
    """Begun before a command, and queried after each run of it."""

    cluster: Planned
    before: Dump
    attempts: set[tuple[str, int]]
    """The attempts before, with their plans; their intents are not this command's."""
    by_kafka: bool
    """Whether Kafka's controller writes the states, with leader epochs of its own."""

    @classmethod
    def begin(cls, cluster: Planned, *, by_kafka: bool = False) -> "CommitAudit":
        return cls(cluster, cluster.tree.dump(), {_attempt(row) for row in _commits(cluster)}, by_kafka)

    @property
    def rows(self) -> list[Row]:
        """The command's records of the rows of its plans; steps such as a take-over belong to no row."""
        return [
            row for row in _commits(self.cluster) if _attempt(row) not in self.attempts and row["topic"] is not None
        ]

    @property
    def throttled(self) -> set[str]:
        """Brokers and topics whose throttle was to be set or removed."""
        meant = [
            row for row in _commits(self.cluster) if row["action"] in _THROTTLING and _attempt(row) not in self.attempts
        ]
        return {row["message"].partition(":")[0].split()[1] for row in meant if row["outcome"] == Outcome.PENDING}

    def faults(self) -> list[str]:
        """Writes without an intent, and rows called applied whose effect is not in the tree."""
        now, rows = self.cluster.tree.dump(), self.rows
        return [*self._unintended(now, rows), *self._untrue(now, rows)]

    def untrue(self) -> list[str]:
        """Rows called applied whose effect is not in the tree, if other processes write as well."""
        return [*self._untrue(self.cluster.tree.dump(), self.rows)]

    def unfinished_rows(self, *, plan: bool = True, outcomes: Collection[Outcome] = APPLIED) -> list[str]:
        """Rows without exactly one allowed outcome; `plan`: all rows of the plan were due."""
        rows = self.rows
        plan_id = self.cluster.plan.plan_id
        places = {(row["plan_id"], _place(row)) for row in rows}
        places |= {(plan_id, row.place) for row in _plan_rows(self.cluster) if plan}
        ends: dict[tuple[str, Place], Counter[int]] = {place: Counter() for place in places}
        for row in rows:
            if row["outcome"] != Outcome.PENDING:
                ends[row["plan_id"], _place(row)][row["attempt"]] += 1
        odd = [f"{_place(row)} is {row['outcome']}: {row['message']}" for row in rows if not _is_among(row, outcomes)]
        return odd + [f"{place} has outcomes {dict(of)}" for place, of in ends.items() if not _is_one(of)]

    def _unintended(self, now: Dump, rows: list[Row]) -> Iterator[str]:
        intents: set[Subject] = {(THROTTLE, name) for name in self.throttled}
        intents |= {_subject(row) for row in rows if row["outcome"] == Outcome.PENDING}
        for path in sorted({*self.before, *now}):
            for allowed in _allowed(path, self.before, now):
                if not allowed & intents:
                    yield f"{path} was written without an intent: {sorted(map(str, allowed))}"

    def _untrue(self, now: Dump, rows: list[Row]) -> Iterator[str]:
        plan_rows = {row.place: row for row in _plan_rows(self.cluster)}
        moves = {row.key: row for row in self.cluster.plan.changes}
        for row in rows:
            if row["outcome"] != Outcome.APPLIED:
                continue
            if row["plan_id"] != self.cluster.plan.plan_id:
                in_order = row["action"] == Action.REASSIGN
                stands = _is_back(moves[row["topic"], row["partition"]], now, in_order=in_order)
            else:
                stands = _stands(plan_rows[_place(row)], now, by_kafka=self.by_kafka)
            if not stands:
                yield f"{_place(row)} does not stand as applied"


def _commits(cluster: Planned) -> list[Row]:
    """Rows of the plan, and of plans that cancel it."""
    if not cluster.warehouse.has("commits"):
        return []
    cancelling = cluster.warehouse.rows("plans", ("kind", "=", PlanKind.CANCEL.value))
    ids = [cluster.plan.plan_id, *(row["plan_id"] for row in cancelling)]
    return cluster.warehouse.rows("commits", ("plan_id", "in", ids))


def _plan_rows(cluster: Planned) -> list[PlanRow]:
    return [*cluster.plan.changes, *cluster.plan.tasks]


def _attempt(row: Row) -> tuple[str, int]:
    return row["plan_id"], row["attempt"]


def _place(row: Row) -> Place:
    return row["wave"], row["topic"], row["partition"], row["action"]


def _subject(row: Row) -> Subject:
    return row["topic"], row["action"] if row["partition"] is None else row["partition"]


def _is_among(row: Row, outcomes: Collection[Outcome]) -> bool:
    return row["outcome"] == Outcome.PENDING or row["outcome"] in outcomes


def _is_one(of_attempts: Counter[int]) -> bool:
    """One outcome in each attempt, and at least one.

    A later attempt finds applied what a killed one has recorded as applied.
    """
    return bool(of_attempts) and set(of_attempts.values()) == {1}


def _allowed(path: str, before: Dump, now: Dump) -> Iterator[set[Subject]]:
    """For each part that was written: the intents, one of which must exist."""
    if path == "/" or path.startswith(_OURS) or _version(before, path) == _version(now, path):
        return
    old, new = (_data(dump, path) for dump in (before, now))
    match path.split("/")[1:]:
        case ["brokers", "topics", topic]:
            yield from (_partition(topic, number) for number in _differing(_assigned(old), _assigned(new)))
        case ["brokers", "topics", topic, "partitions", partition, *_]:
            yield _partition(topic, int(partition))
        case ["config", *names]:
            yield from _allowed_config(names, before, now)
        case ["admin", "delete_topics", topic]:
            yield {(topic, kind) for kind in (*_GOING, OperationKind.WITHDRAW_DELETION)}
        case ["admin", "reassign_partitions" | "preferred_replica_election"]:
            for topic, number, _ in _orders(old) ^ _orders(new):
                yield {(topic, number), *((topic, kind) for kind in _WITHDRAWN)}
        case _ if old or new:
            yield set()


def _allowed_config(names: list[str], before: Dump, now: Dump) -> Iterator[set[Subject]]:
    path = f"/config/{'/'.join(names)}"
    old, new = (_data(dump, path) for dump in (before, now))
    match names:
        case ["changes", _]:
            yield _config(json.loads(new or b"")["entity_path"].removeprefix("topics/"), before, now)
        case [_, name] if _overrides(old) != _overrides(new):
            yield _config(name, before, now) if names[0] == "topics" else {(THROTTLE, name)}
        case _:
            pass


def _overrides(data: bytes | None) -> dict[str, str]:
    """No config znode counts the same as an empty one, which a removed throttle leaves."""
    return decode_config(data) if data else {}


def _differing(old: Mapping[int, Any], new: Mapping[int, Any]) -> list[int]:
    return [number for number in sorted({*old} | {*new}) if old.get(number) != new.get(number)]


def _partition(topic: str, partition: int) -> set[Subject]:
    return {(topic, partition), *((topic, kind) for kind in _GOING)}


def _config(topic: str, before: Dump, now: Dump) -> set[Subject]:
    """Configs are altered, throttle replicas, or are created and deleted with their topic."""
    created: set[Subject] = set()
    if f"/brokers/topics/{topic}" not in before:
        created = {(topic, partition) for partition in _assigned(_data(now, f"/brokers/topics/{topic}"))}
    return {(topic, OperationKind.ALTER_CONFIG), (THROTTLE, topic), *((topic, kind) for kind in _GOING), *created}


def _data(dump: Dump, path: str) -> bytes | None:
    return dump[path][0] if path in dump else None


def _version(dump: Dump, path: str) -> tuple[int, int] | None:
    """Creation and version of a znode."""
    return (dump[path][1].czxid, dump[path][1].version) if path in dump else None


def _assigned(data: bytes | None) -> dict[int, tuple[list[int], list[int], list[int]]]:
    assignment = Assignment({}, {}, {}, None) if data is None else decode_assignment(data)
    adding, removing = assignment.adding_replicas, assignment.removing_replicas
    return {
        number: (on, adding.get(number, []), removing.get(number, [])) for number, on in assignment.partitions.items()
    }


def _orders(data: bytes | None) -> set[tuple[str, int, tuple[int, ...]]]:
    orders = decode_partitions(data) if data else []
    return {(order.topic, order.partition, (*(order.replicas or ()),)) for order in orders}


def _is_back(change: Change, now: Dump, *, in_order: bool) -> bool:
    """Whether a reassignment was cancelled.

    A cancellation may leave another order of replicas, which is restored later.
    """
    replicas, adding, removing = _assigned(_data(now, f"/brokers/topics/{change.topic}"))[change.partition]
    known = change.replicas_before or []
    is_there = replicas == known if in_order else sorted(replicas) == sorted(known)
    return is_there and not adding and not removing


def _stands(row: PlanRow, now: Dump, *, by_kafka: bool) -> bool:
    if isinstance(row, Operation):
        return _is_done(row, now)
    assigned = _assigned(_data(now, f"/brokers/topics/{row.topic}")).get(row.partition)
    if assigned is None:
        return False
    if row.action == Action.REASSIGN:  # requested and accepted: it moves there, or is there
        replicas, _, removing = assigned
        orders = _orders(_data(now, "/admin/reassign_partitions"))
        is_ordered = (row.topic, row.partition, (*row.replicas_after,)) in orders
        return is_ordered or [broker for broker in replicas if broker not in removing] == row.replicas_after
    data = _data(now, state_path(row.topic, row.partition))
    if data is None or assigned != (row.replicas_after, row.adding_after, row.removing_after):
        return False
    state, epoch = decode_state(data), row.leader_epoch_after or 0
    at_epoch = state.leader_epoch >= epoch if by_kafka else state.leader_epoch == epoch
    return at_epoch and (state.leader, state.isr) == (row.leader_after, row.isr_after)


def _is_done(task: Operation, now: Dump) -> bool:
    """Whether the tree is as the operation leaves it; deletions by brokers are not in the tree."""
    data, name = json.loads(task.data), task.topic
    topic, config, queued = (f"{root}/{name}" for root in ("/brokers/topics", "/config/topics", "/admin/delete_topics"))
    match OperationKind(task.kind):
        case OperationKind.ALTER_CONFIG:
            overrides = decode_config(_data(now, config))
            done = all(overrides.get(key) == value for key, value in data["after"].items())
        case OperationKind.DELETE_TOPIC:
            done = topic not in now or queued in now
        case OperationKind.WITHDRAW_REASSIGNMENT:
            orders = {(name, int(number), (*replicas,)) for number, replicas in data["orders"].items()}
            done = not orders & _orders(_data(now, "/admin/reassign_partitions"))
        case OperationKind.WITHDRAW_ELECTION:
            elections = {(name, number, ()) for number in data["partitions"]}
            done = not elections & _orders(_data(now, "/admin/preferred_replica_election"))
        case OperationKind.WITHDRAW_DELETION:
            done = queued not in now
        case OperationKind.REMOVE_TOPIC:
            done = not {topic, config} & now.keys()
        case _:
            done = True
    return done
