"""Changes written to ZooKeeper in large fenced multis, each row's outcome known or said to be unknown.

One multi checks /controller_epoch at our version, that each new leader is registered, and each topic's version, and
sets the states at theirs. It is all or nothing: of a failed one the stale rows are set aside at once and the rest is
tried once more. Corresponds to `KafkaZkClient.updateLeaderAndIsr` and `createTopicPartitionStatesRaw`.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kazoo.client import TransactionRequest
from kazoo.exceptions import SessionExpiredError

from jobs.adapters.cluster import BROKER_IDS, CONFIGS, TOPICS, read_cluster
from jobs.adapters.controllership import (
    LOST,
    Controllership,
    SessionLostError,
    failed,
    fenced,
    refused_by_epoch,
    settled,
)
from jobs.adapters.lake import Row
from jobs.adapters.multi_read import read_many
from jobs.adapters.zookeeper import commit, create_null, read
from jobs.ledger import Verdict
from jobs.plans import Plan
from jobs.premises import Premises, adds_partition, state_path, topic_path
from schemas.names import NO_VERSION, OperationKind, Outcome
from schemas.znodes import (
    WITH_IDS,
    WITHOUT_IDS,
    Assignment,
    State,
    decode_assignment,
    encode_assignment,
    encode_config,
    encode_state,
)

BATCH: Final = 400
"""Changes a multi: some 100 kB, far below jute.maxbuffer (1 MB)."""

_TRIES: Final = 2


@dataclass(slots=True)
class FencedWriter:
    """Writes the changes of one plan under one controllership."""

    control: Controllership
    plan: Plan
    hosts: str
    max_hold: float
    creations: dict[str, Row] = field(init=False)
    planned: dict[str, dict[int, list[int]]] = field(init=False)
    """Replicas of all the plan's partitions, by topic."""

    def __post_init__(self) -> None:
        created = (op for op in self.plan.operations if op["kind"] == OperationKind.CREATE_TOPIC)
        self.creations = {operation["topic"]: operation for operation in created}
        self.planned = defaultdict(dict)
        for change in self.plan.changes:
            self.planned[change["topic"]][change["partition"]] = change["replicas_after"]

    def write(self, changes: Sequence[Row]) -> Iterator[list[Verdict]]:
        """Write changes batch by batch; yield the verdicts of each batch as it is done.

        Raises FencedError once another controller has taken over, and SessionLostError; the verdicts on the batch
        in question are yielded before.
        """
        for start in range(0, len(changes), BATCH):
            batch = changes[start : start + BATCH]
            if self.control.held() > self.max_hold:
                yield [Verdict(change, Outcome.SKIPPED, f"--max-hold {self.max_hold:g}s is over") for change in batch]
                continue
            yield from self._write_batch(batch)

    def _write_batch(self, batch: Sequence[Row]) -> Iterator[list[Verdict]]:
        due: Sequence[Row] = batch
        for _ in range(_TRIES):
            try:
                results = self._commit(due)
                if not failed(results):
                    yield [Verdict(c, Outcome.APPLIED, "written", c["state_version"] + 1) for c in due]
                    return
                if refused_by_epoch(results):
                    yield [Verdict(change, Outcome.FENCED, "another controller took over") for change in due]
                    raise fenced(self.control.epoch)
                due, verdicts = self._judge_again(due)
            except (SessionLostError, SessionExpiredError):
                yield [Verdict(change, Outcome.UNKNOWN, "the session was lost; commit again") for change in due]
                raise SessionLostError(
                    "ZooKeeper ended our session while we held the controllership: what was in flight is unknown; "
                    "commit the plan again, it reads back and goes on",
                ) from None
            yield verdicts
            if not due:
                return
        yield [Verdict(change, Outcome.FAILED, "its multi was refused twice") for change in due]

    def _commit(self, due: Sequence[Row]) -> list[Any]:
        """Commit one multi; one whose answer was lost counts as refused, and what it did is read back."""
        try:
            return commit(self._multi(due))
        except LOST as lost:
            settled(self.control.client, self.control.session)
            return [True, lost]

    def _judge_again(self, due: Sequence[Row]) -> tuple[list[Row], list[Verdict]]:
        client = self.control.client
        for _ in range(_TRIES):
            try:
                state = read_cluster(client, self.hosts)
                return Premises.of(self.plan, state).judge(client, due)
            except LOST:
                settled(client, self.control.session)
        raise SessionLostError("the connection to ZooKeeper was lost again and again; commit again")

    def _multi(self, due: Sequence[Row]) -> TransactionRequest:
        multi = self.control.transaction()
        for leader in sorted({change["leader_after"] for change in due if change["leader_after"] >= 0}):
            multi.check(f"{BROKER_IDS}/{leader}", -1)
        exists = self._existing(due)
        first_of = {change["topic"]: change for change in reversed(due)}
        for topic in dict.fromkeys(change["topic"] for change in due):
            self._add_topic(multi, topic, first_of[topic], exists)
        for change in due:
            self._add_state(multi, change, exists)
        return multi

    def _existing(self, due: Sequence[Row]) -> dict[str, bool]:
        """Read which of the znodes that a creation needs are there already."""
        paths: list[str] = []
        for change in due:
            if change["state_version"] == NO_VERSION:
                topic = topic_path(change)
                paths += [topic, f"{CONFIGS}/{change['topic']}", f"{topic}/partitions"]
                paths.append(state_path(change).rsplit("/", 1)[0])
        znodes = read_many(self.control.client, list(dict.fromkeys(paths)))
        return {znode.path: znode.stat is not None for znode in znodes}

    def _add_topic(self, multi: TransactionRequest, topic: str, change: Row, exists: dict[str, bool]) -> None:
        """Check a topic's version, or create it with all its partitions."""
        path = f"{TOPICS}/{topic}"
        if adds_partition(change):
            self._expand_topic(multi, path, change)
        elif topic not in self.creations:
            multi.check(path, change["topic_version"])
        elif exists[path]:
            multi.check(path, 0)
        else:
            self._create_topic(multi, topic, config_exists=exists[f"{CONFIGS}/{topic}"])
        if change["state_version"] == NO_VERSION and not exists[f"{path}/partitions"]:
            create_null(multi, f"{path}/partitions")

    def _create_topic(self, multi: TransactionRequest, topic: str, *, config_exists: bool) -> None:
        data = json.loads(self.creations[topic]["data"])
        config = encode_config(data["config"])
        if config_exists:
            multi.set_data(f"{CONFIGS}/{topic}", config)
        else:
            multi.create(f"{CONFIGS}/{topic}", config)
        assignment = Assignment(self.planned[topic], {}, {}, data["topic_id"])
        version = WITHOUT_IDS if data["topic_id"] is None else WITH_IDS
        multi.create(f"{TOPICS}/{topic}", encode_assignment(assignment, version))

    def _expand_topic(self, multi: TransactionRequest, path: str, change: Row) -> None:
        """Add all planned partitions to a topic at the version planned from; the batches after that find them there."""
        found = read(self.control.client, path)
        now = decode_assignment(found.data)
        added = self.planned[change["topic"]]
        if added.items() <= now.partitions.items():
            multi.check(path, -1 if found.version is None else found.version)
            return
        data = Assignment(now.partitions | added, now.adding_replicas, now.removing_replicas, now.topic_id)
        multi.set_data(path, encode_assignment(data), change["topic_version"])

    def _add_state(self, multi: TransactionRequest, change: Row, exists: dict[str, bool]) -> None:
        path = state_path(change)
        data = encode_state(
            State(
                controller_epoch=self.control.epoch,
                leader=change["leader_after"],
                leader_epoch=change["leader_epoch_after"],
                isr=change["isr_after"],
                leader_recovery_state=change["leader_recovery_state_after"],
            ),
        )
        if change["state_version"] != NO_VERSION:
            multi.set_data(path, data, change["state_version"])
            return
        parent = path.rsplit("/", 1)[0]
        if not exists[parent]:
            create_null(multi, parent)
        multi.create(path, data)
