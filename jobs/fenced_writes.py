"""Changes written to ZooKeeper in large fenced multis, each row's outcome known or said to be unknown.

One multi checks /controller_epoch at our version, that the brokers which must live are registered and those which must
be dead are not, and each topic's version, and sets the states at theirs. It is all or nothing: of a refused one the
rows concerned are set aside, and the rest is tried again. Brokers are read again before each. Corresponds to
`KafkaZkClient.updateLeaderAndIsr` and `createTopicPartitionStatesRaw`.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from kazoo.client import TransactionRequest
from kazoo.exceptions import SessionExpiredError

from jobs.adapters.cluster import BROKER_IDS, CONFIGS, TOPICS
from jobs.adapters.controllership import (
    LOST,
    Controllership,
    SessionLostError,
    check_absent,
    check_registered,
    fenced,
    refused_by_epoch,
    settled,
)
from jobs.adapters.lake import Row
from jobs.adapters.multi_read import read_many
from jobs.adapters.refusal import Refusal, lost, refusal
from jobs.adapters.zookeeper import commit, create_null, read
from jobs.errors import FencedError
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
"""How often what nothing explains is tried."""

_BLAMED: Final = 20
"""Refusals that nothing explains, in all, after which a batch so refused fails whole: no few rows are at fault."""

T = TypeVar("T")


@dataclass(slots=True)
class FencedWriter:
    """Writes the changes of one plan under one controllership."""

    control: Controllership
    plan: Plan
    max_hold: float
    creations: dict[str, Row] = field(init=False)
    planned: dict[str, dict[int, list[int]]] = field(init=False)
    """Replicas of all the plan's partitions, by topic."""
    _left: Sequence[Row] = ()
    """What of the batch in hand is not judged."""
    _blamed: int = 0

    def __post_init__(self) -> None:
        created = (op for op in self.plan.operations if op["kind"] == OperationKind.CREATE_TOPIC)
        self.creations = {operation["topic"]: operation for operation in created}
        self.planned = defaultdict(dict)
        for change in self.plan.changes:
            self.planned[change["topic"]][change["partition"]] = change["replicas_after"]

    def write(self, changes: Sequence[Row]) -> Iterator[list[Verdict]]:
        """Write changes batch by batch; yield the verdicts of each batch as they are known.

        Raises FencedError once another controller has taken over, and SessionLostError; the verdicts on the batch
        in question are yielded before.
        """
        for start in range(0, len(changes), BATCH):
            self._left = changes[start : start + BATCH]
            try:
                yield from self._write_batch()
            except FencedError:
                yield [Verdict(change, Outcome.FENCED, "another controller took over") for change in self._left]
                raise
            except (SessionLostError, SessionExpiredError):
                yield [Verdict(change, Outcome.UNKNOWN, "the session was lost; commit again") for change in self._left]
                raise SessionLostError(
                    "ZooKeeper ended our session while we held the controllership: what was in flight is unknown; "
                    "commit the plan again, it reads back and goes on",
                ) from None

    def _write_batch(self) -> Iterator[list[Verdict]]:
        """Try what is left until nothing is; every round but a few judges a row at least."""
        unexplained = 0
        while self._left:
            if self.control.held() > self.max_hold:
                said = f"--max-hold {self.max_hold:g}s is over"
                verdicts = [Verdict(change, Outcome.SKIPPED, said) for change in self._left]
            else:
                verdicts, refused = self._attempt(self._left)
                if refused is not None and not verdicts:
                    unexplained += 1
                    if unexplained >= _TRIES or refused.forbidden:
                        verdicts = self._blame(self._left, refused)
            judged = {id(verdict.change) for verdict in verdicts}
            self._left = [change for change in self._left if id(change) not in judged]
            yield verdicts

    def _attempt(self, due: Sequence[Row]) -> tuple[list[Verdict], Refusal | None]:
        """Write what is due, or say whose premise does not hold; where neither, what ZooKeeper refused."""
        due, stale = self._read(lambda: Premises.now(self.plan, self.control.client).still_hold(due))
        if stale:
            return stale, None
        refused = self._commit(due)
        if refused is None:
            return [Verdict(change, Outcome.APPLIED, "written", change["state_version"] + 1) for change in due], None
        _, verdicts = self._read(lambda: Premises.now(self.plan, self.control.client).judge(self.control.client, due))
        return verdicts, refused

    def _blame(self, due: Sequence[Row], refused: Refusal) -> list[Verdict]:
        """Set aside those whose operation was refused, that the others can be written."""
        self._blamed += 1
        concerned = [change for change in due if refused.path in _paths(change)]
        if not concerned or self._blamed > _BLAMED:
            concerned = list(due)
        return [Verdict(change, Outcome.FAILED, str(refused)) for change in concerned]

    def _commit(self, due: Sequence[Row]) -> Refusal | None:
        """Commit one multi; one whose answer was lost counts as refused, and what it did is read back."""
        multi = self._read(lambda: self._multi(due))
        try:
            results = commit(multi)
        except LOST as error:
            settled(self.control.client, self.control.session)
            return lost(multi, error)
        if refused_by_epoch(results):
            raise fenced(self.control.epoch)
        return refusal(multi, results)

    def _read(self, read: Callable[[], T]) -> T:
        """Read, once more after a lost connection, if the session is still ours."""
        for _ in range(_TRIES):
            try:
                return read()
            except LOST:
                settled(self.control.client, self.control.session)
        raise SessionLostError("the connection to ZooKeeper was lost again and again; commit again")

    def _multi(self, due: Sequence[Row]) -> TransactionRequest:
        multi = self.control.transaction()
        for broker in sorted({broker for change in due for broker in _leans_on(change)}):
            check_registered(multi, broker)
        for broker in sorted({broker for change in due for broker in change["requires_dead"]}):
            check_absent(multi, broker)
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


def _leans_on(change: Row) -> set[int]:
    """Brokers that must be registered when a change is written."""
    leader = change["leader_after"]
    return set(change["requires_live"]) | ({leader} if leader >= 0 else set())


def _paths(change: Row) -> set[str]:
    """Znodes that only some changes touch or count on, this one among them."""
    topic, state = topic_path(change), state_path(change)
    own = {topic, f"{CONFIGS}/{change['topic']}", f"{topic}/partitions", state.rsplit("/", 1)[0], state}
    return own | {f"{BROKER_IDS}/{broker}" for broker in _leans_on(change) | set(change["requires_dead"])}
