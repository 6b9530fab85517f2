"""`surveyor cancel --partitions`: reassignments called back that no plan asked for, and requests nobody carries out.

Corresponds to `kafka-reassign-partitions --cancel`. Kafka's controller carries a cancellation out under its own fence;
a request in /admin is taken away under the epoch of that controller. Kafka's controller watches that znode only until
it changes, and looks again whenever it is asked for a reassignment, so it is asked for what was taken away, too.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from kazoo.client import KazooClient

from jobs.adapters.brokers.admin import (
    NO_REASSIGNMENT_IN_PROGRESS,
    NONE,
    UNKNOWN_OUTCOME,
    AdminUnavailableError,
    describe_error,
    error_name,
)
from jobs.adapters.zookeeper.admin_requests import withdraw
from jobs.adapters.zookeeper.cluster import TOPICS, ClusterState, read_cluster, reassign_requests
from jobs.adapters.zookeeper.connection import connected, poll_until, sync
from jobs.adapters.zookeeper.controllership import refuse_migration
from jobs.adapters.zookeeper.lease import Lease
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.adapters.zookeeper.plan_submission import resident
from jobs.core.errors import ExitCode, RefusedError, SurveyorError, UsageError
from jobs.execution.admin.connections import admin_of
from jobs.execution.admin.lease import lease_for
from jobs.execution.admin.zk_controller_client import ZkReassignmentOverride
from jobs.preconditions.cancellation import allowed_by_option
from jobs.preconditions.changes import assigned, understood
from jobs.runtime.console import LINES_SHOWN, confirm, emit_result, is_terminal, log
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import same_step
from planner.reassignment.cancellation import CancellationRisk, cancellation_risk
from planner.reassignment.replica_assignment import ReplicaAssignment
from planner.text import pluralise
from schemas.rows import Key
from schemas.znodes import MalformedZnodeError

CANCELLATION_TIMEOUT_SECONDS: Final = 15.0
"""Seconds for a cancellation by Kafka's controller to show in ZooKeeper."""

LEADER_RETURN_SECONDS: Final = 60.0
"""Seconds for one by `surveyor control`, which takes some cycles."""

_PARTITION: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,9})")


@dataclass(frozen=True, slots=True)
class _Partition:
    key: Key
    now: ReplicaAssignment | None
    request: list[int] | None
    risk: CancellationRisk | None
    unreadable_reason: str | None = None
    """Why its topic is not understood."""

    @property
    def name(self) -> str:
        return f"{self.key[0]}-{self.key[1]}"

    @property
    def is_moving(self) -> bool:
        return self.now is not None and self.now.is_moving

    @property
    def line(self) -> str:
        parts = []
        if self.risk is not None:
            parts.append(f"goes on: {self.risk.code}: {self.risk.reason}")
        elif self.is_moving and self.now is not None:
            parts.append(f"to be cancelled: adding {list(self.now.adding)}, removing {list(self.now.removing)}")
            parts.append(f"back to {self.now.origin}")
        if self.request is not None:
            parts.append(f"its request for {self.request} to be taken out of /admin/reassign_partitions")
        if not parts:
            parts.append(self._at_rest)
        return f"  {self.name}  {'; '.join(parts)}"

    @property
    def _at_rest(self) -> str:
        if self.unreadable_reason is not None:
            return f"left alone, not understood: {self.unreadable_reason}"
        return "no such partition" if self.now is None else f"does not move: replicas {list(self.now.replicas)}"

    @property
    def row(self) -> dict[str, Any]:
        return {
            "topic": self.key[0],
            "partition": self.key[1],
            "replicas": None if self.now is None else list(self.now.replicas),
            "moving": self.is_moving,
            "request": self.request,
            "unsafe": None if self.risk is None else self.risk.reason,
        }


def parse_partitions(text: str) -> list[Key]:
    """Read the value of --partitions.

    >>> parse_partitions("orders-0,web-logs-12")
    [('orders', 0), ('web-logs', 12)]
    """
    matches = [(word, _PARTITION.fullmatch(word.strip())) for word in text.split(",")]
    wrong = [word for word, match in matches if match is None]
    if wrong:
        raise UsageError(f"--partitions {wrong[0]!r}: expected TOPIC-NUMBER[,TOPIC-NUMBER...], as in orders-0,orders-1")
    return list(dict.fromkeys((match["topic"], int(match["partition"])) for _, match in matches if match))


def cancel_partitions(
    settings: Settings, text: str, *, apply: bool, yes: bool, skip_unsafe: bool, fewer_copies: bool = False
) -> ExitCode:
    """Cancel what moves of these partitions, and take away what is requested for them; or show what that would do."""
    keys = parse_partitions(text)
    with connected(settings.zookeeper) as client:
        _, found = _read(settings, client, keys, fewer_copies=fewer_copies)
        if not skip_unsafe:
            _refuse_unsafe(found)
        due = [each for each in found if _is_due(each)]
        if not due:
            emit_result(settings, _result(found), "nothing is left to cancel", *_lines(found))
            return ExitCode.DONE
        if not apply:
            note = "dry run: nothing was written; --apply writes"
            step = same_step(settings, "apply", "cancel", "--apply")
            title = f"{pluralise(len(due), 'partition')} to be called back"
            emit_result(settings, _result(found) | {"dry_run": True}, title, *_lines(found), note, steps=[step])
            return ExitCode.DONE
        if not yes and is_terminal():
            for line in _lines(found):
                log(line)
            if not confirm("cancel these?"):
                raise SurveyorError("not cancelled: the question was not answered with yes")
        with lease_for(settings, "", "cancel") as lease:
            return _apply(settings, client, keys, lease, skip_unsafe=skip_unsafe, fewer_copies=fewer_copies)


def _read(
    settings: Settings, client: KazooClient, keys: Sequence[Key], *, fewer_copies: bool
) -> tuple[ClusterState, list[_Partition]]:
    state = read_cluster(client, settings.zookeeper)
    refuse_migration(state)
    requests = reassign_requests(client) or {}
    names = sorted({topic for topic, _ in keys})
    topics = dict(zip(names, read_many(client, [f"{TOPICS}/{name}" for name in names]), strict=True))
    states = read_many(client, [f"{TOPICS}/{topic}/partitions/{number}/state" for topic, number in keys])
    found = []
    for key, znode in zip(keys, states, strict=True):
        request = requests.get(key)
        try:
            assignment = assigned(topics[key[0]], key[1])
        except MalformedZnodeError as error:
            found.append(_Partition(key, None, request, None, str(error)))
            continue
        now = None if assignment is None else ReplicaAssignment(*assignment)
        known = understood(znode)
        isr = None if known is None else known.isr
        why = (
            cancellation_risk(now, isr, state.live, fewer_copies=fewer_copies)
            if now is not None and now.is_moving
            else None
        )
        found.append(_Partition(key, now, request, why))
    return state, found


def _is_due(partition: _Partition) -> bool:
    return partition.risk is None and (partition.is_moving or partition.request is not None)


def _refuse_unsafe(found: Iterable[_Partition]) -> None:
    unsafe = [f"{each.name}: {each.risk.code}: {each.risk.reason}" for each in found if each.risk is not None]
    if unsafe:
        listed = "\n  ".join(unsafe[:LINES_SHOWN])
        permitted = allowed_by_option(each.risk for each in found)
        raise RefusedError(
            f"nothing is called back: {pluralise(len(unsafe), 'partition')} would lose by it; start these brokers, or "
            f"let those partitions go on by --skip-unsafe{permitted}:\n  {listed}"
        )


def _apply(
    settings: Settings, client: KazooClient, keys: Sequence[Key], lease: Lease, *, skip_unsafe: bool, fewer_copies: bool
) -> ExitCode:
    """Read again under the lease, take requests away, and ask the controller to cancel."""
    state, found = _read(settings, client, keys, fewer_copies=fewer_copies)
    if not skip_unsafe:
        _refuse_unsafe(found)
    due = {each.key: each for each in found if _is_due(each)}
    moving = {key: each.now for key, each in due.items() if each.is_moving and each.now is not None}
    lease.refuse_lost()
    codes: Mapping[Key, int] = {}
    patience = CANCELLATION_TIMEOUT_SECONDS
    if resident(client) is not None:
        withdraw(client, due.keys() - moving.keys())
        if moving:
            patience = LEADER_RETURN_SECONDS
            codes = ZkReassignmentOverride(client).reassign({key: now.origin for key, now in moving.items()})
    else:
        with ExitStack() as stack:
            admin = None
            try:
                admin = stack.enter_context(admin_of(settings, state))
            except AdminUnavailableError:
                if moving:  # a request alone needs no controller to be taken away
                    raise
            withdraw(client, due.keys())
            if admin is not None:
                codes = _request_cancellation(admin.reassign, due)
    return _report(settings, client, due, codes, patience)


def _request_cancellation(reassign: Any, due: Iterable[Key]) -> Mapping[Key, int]:  # noqa: ANN401 - of an Admin
    try:
        answered: Mapping[Key, int] = reassign(dict.fromkeys(due))
    except UNKNOWN_OUTCOME as error:
        log(f"surveyor: no answer came ({describe_error(error)}); what ZooKeeper shows decides")
        return {}
    return answered


def _report(
    settings: Settings, client: KazooClient, due: Mapping[Key, _Partition], codes: Mapping[Key, int], patience: float
) -> ExitCode:
    def look() -> list[_Partition]:
        sync(client)
        return _read(settings, client, list(due), fewer_copies=True)[1]

    refused = {key for key, code in codes.items() if code not in {NONE, NO_REASSIGNMENT_IN_PROGRESS}}

    def are_back(seen: Sequence[_Partition]) -> bool:
        return not any(each.is_moving or each.request is not None for each in seen if each.key not in refused)

    after = poll_until(look, are_back, patience)
    left = [each for each in after if each.is_moving or each.request is not None]
    why = {key: f"the controller refused: {error_name(codes[key])}" for key in refused}
    done = [each for each in after if each not in left]
    lines = [f"  {each.name}  {why.get(each.key, 'still moves')}" for each in left]
    lines += [f"  {each.name}  {_at_rest(each)}" for each in done]
    result = _result(after) | {"cancelled_now": len(done), "failed": len(left)}
    emit_result(
        settings, result, f"{pluralise(len(done), 'partition')} called back, {len(left)} not", *lines[:LINES_SHOWN]
    )
    return ExitCode.ERROR if left else ExitCode.DONE


def _at_rest(partition: _Partition) -> str:
    if partition.now is None:
        return "its request is gone"
    return f"replicas {list(partition.now.replicas)}; to change their order: surveyor plan reassign"


def _lines(found: Sequence[_Partition]) -> Iterator[str]:
    yield from (each.line for each in found[:LINES_SHOWN])
    if len(found) > LINES_SHOWN:
        yield f"  ... and {len(found) - LINES_SHOWN} more"


def _result(found: Sequence[_Partition]) -> dict[str, Any]:
    return {"partitions": [each.row for each in found]}
