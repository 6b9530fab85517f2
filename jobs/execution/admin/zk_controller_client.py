"""`--via zookeeper`: requests to Kafka's controller by znodes in /admin, and how their outcome is determined.

There are no answers. The controller deletes the request, and the state in ZooKeeper then shows the outcome of each
partition.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from kazoo.client import KazooClient

from jobs.adapters.brokers.admin_client import NO_ERROR, NO_REASSIGNMENT_IN_PROGRESS
from jobs.adapters.cluster_connections.interface import Lease
from jobs.adapters.cluster_connections.zookeeper import ZooKeeperReader
from jobs.adapters.zookeeper.admin_requests import RecheckPartitions, ZnodeRequests, override
from jobs.adapters.zookeeper.connection import ZooKeeperSession, poll_until, sync
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.adapters.zookeeper.precondition_reader import (
    current_partition,
    current_topic,
    moving_in_zookeeper,
    state_path,
    topic_path,
)
from jobs.core.errors import SurveyorError
from jobs.execution.admin.controller_client import Codes, outcome_of
from jobs.execution.admin.running_waves import read_and_judge, read_statuses
from jobs.preconditions.running_reassignments import reassignments_of
from jobs.repositories.plans.commit_log import CommitLog
from jobs.runtime.progress import progress
from planner.reassignment.reassignment_status import ReassignmentStatus
from schemas import reasons
from schemas.current_state import CurrentTopic
from schemas.enums import Action
from schemas.plan import RowOutcome
from schemas.rows import Change, Key
from schemas.znode_codecs import TopicPartition

REQUESTABLE: Final = frozenset({Action.ELECT_PREFERRED, Action.REASSIGN})
"""Actions that have a request in /admin."""

_MAX_ATTEMPTS: Final = 5

COMPLETION_SECONDS: Final = 10.0
"""Seconds for a controller that deleted a request to write the outcome."""

CANCELLATION_TIMEOUT_SECONDS: Final = 15.0
"""Seconds for a cancellation to show in ZooKeeper: Kafka's controller answers after it has written it."""

LEADER_RETURN_SECONDS: Final = 60.0
"""Seconds for `surveyor control` to move partitions back: it takes some cycles, in which brokers stop replicas."""


_Codes = dict[Key, int | str]
"""NONE for each partition that is as requested, and a message for the others."""


@dataclass(slots=True)
class _Requests:
    """The progress of a wave that takes several requests."""

    carried_out: list[Key] = field(default_factory=list)
    """Partitions of the requests that the controller has removed."""
    placed: list[Key] = field(default_factory=list)
    """Partitions of the last request, which may exist."""
    decided: dict[Key, RowOutcome] = field(default_factory=dict)
    """Outcomes of partitions that were no longer due."""


@dataclass(frozen=True, slots=True)
class ZkControllerClient:
    """Kafka's controller, reached by requests in /admin; it takes one znode of reassignments at a time."""

    takes_whole_waves: ClassVar = True
    session: ZooKeeperSession
    commit_log: CommitLog
    lease: Lease
    requests: ZnodeRequests

    @classmethod
    def of(
        cls, session: ZooKeeperSession, commit_log: CommitLog, lease: Lease, on_poll: Callable[[], None]
    ) -> "ZkControllerClient":
        return cls(session, commit_log, lease, ZnodeRequests(session, on_poll))

    def reassignments(self) -> dict[Key, list[int]]:
        with self.session.connected() as client:
            sync(client)
            return moving_in_zookeeper(client)

    def reassign(self, targets: dict[Key, list[int]]) -> Codes:
        plan = reassignments_of(self.commit_log.plan)
        earlier = [TopicPartition(*move.key, move.replicas_after) for move in plan]
        moves = {move.key: move for move in plan if targets.get(move.key) == move.replicas_after}

        def send(recheck: RecheckPartitions) -> None:
            self.requests.reassign(targets, earlier, recheck)

        with progress("replicas move by request in /admin/reassign_partitions"):
            return self._carry_out(moves, send, self._reassignment_codes)

    def _carry_out(
        self,
        changes: Mapping[Key, Change],
        send: Callable[[RecheckPartitions], None],
        read_codes: Callable[[list[Change]], _Codes],
    ) -> Codes:
        """Send the requests, each judged right before it; return the codes that the cluster shows.

        After an error, the outcomes of the requests that were carried out before it are recorded.
        """
        requests = _Requests()
        try:
            send(self._judge(changes, requests))
        except SurveyorError:
            self._record_carried_out([changes[key] for key in requests.carried_out], read_codes)
            self.commit_log.add_outcomes(requests.decided.values())
            raise
        requested = [change for key, change in changes.items() if key not in requests.decided]
        return {**_poll_codes(lambda: read_codes(requested), len(requested)), **requests.decided}

    def _record_carried_out(self, changes: list[Change], read_codes: Callable[[list[Change]], _Codes]) -> None:
        why_unknown, codes = "", _Codes()
        try:
            codes = _poll_codes(lambda: read_codes(changes), len(changes))
        except SurveyorError as error:
            why_unknown = reasons.UNREAD_AFTER_REQUEST.render(error=str(error).partition("\n")[0])
        self.commit_log.add_outcomes(outcome_of(change, codes, why_unknown) for change in changes)

    def _judge(self, changes: Mapping[Key, Change], requests: _Requests) -> RecheckPartitions:
        """Return the function that judges the changes of each request; the one before it is carried out by then."""

        def judge(chunk: Sequence[TopicPartition]) -> list[TopicPartition]:
            requests.carried_out += requests.placed
            requests.placed = []
            self.commit_log.refuse_closed()
            self.lease.refuse_lost()
            outcomes = self._not_due([changes[request.topic, request.partition] for request in chunk])
            requests.decided |= outcomes
            due = [request for request in chunk if (request.topic, request.partition) not in outcomes]
            requests.placed = [(request.topic, request.partition) for request in due]
            return due

        return judge

    def _not_due(self, changes: Sequence[Change]) -> dict[Key, RowOutcome]:
        """Outcomes of changes that must no longer, or need no longer, be requested."""
        with self.session.connected() as client:
            _, outcomes = read_and_judge(ZooKeeperReader(client), self.commit_log.plan, changes)
        return {outcome.change.key: outcome for outcome in outcomes}

    def elect_preferred(self, partitions: Sequence[Key]) -> Codes:
        plan = self.commit_log.plan.changes
        elections = {change.key: change for change in plan if change.action == Action.ELECT_PREFERRED}

        def send(recheck: RecheckPartitions) -> None:
            self.requests.elect_preferred(partitions, recheck)

        with progress("elections by request in /admin/preferred_replica_election"):
            return self._carry_out({key: elections[key] for key in partitions}, send, self._election_codes)

    def _reassignment_codes(self, moves: Sequence[Change]) -> _Codes:
        with self.session.connected() as client:
            statuses = read_statuses(ZooKeeperReader(client), moves)
        return {
            move.key: reasons.REQUEST_WITHDRAWN.render(state=detail)
            if status is ReassignmentStatus.DIVERGED
            else NO_ERROR
            for move, status, detail in statuses
        }

    def _election_codes(self, elections: Sequence[Change]) -> _Codes:
        partitions = [election.key for election in elections]
        topics = sorted({topic for topic, _ in partitions})
        with self.session.connected() as client:
            sync(client)
            topic_znodes = read_many(client, [topic_path(topic) for topic in topics])
            states = read_many(client, [state_path(key) for key in partitions])
        by_topic = {topic: current_topic(znode) for topic, znode in zip(topics, topic_znodes, strict=True)}
        codes = _Codes()
        for (topic, number), znode in zip(partitions, states, strict=True):
            partition = current_partition(by_topic[topic], number, znode)
            assignment, led = partition.assignment, None if partition.state is None else partition.state.leader
            done = assignment is not None and led == assignment.replicas[0]
            codes[topic, number] = (
                NO_ERROR if done else reasons.REQUEST_WITHDRAWN.render(state=reasons.LED_BY.render(leader=led))
            )
        return codes


@dataclass(frozen=True, slots=True)
class ZkReassignmentOverride:
    """`surveyor control`, asked to move partitions back: like Kafka's controller it follows the latest request."""

    client: KazooClient

    def reassign(self, targets: Mapping[Key, list[int] | None]) -> dict[Key, int]:
        """Request these targets, except for partitions whose reassignment is already complete; those stay."""
        for _ in range(_MAX_ATTEMPTS):
            topics = sorted({topic for topic, _ in targets})
            znodes = read_many(self.client, [topic_path(topic) for topic in topics])
            by_topic = {topic: current_topic(znode) for topic, znode in zip(topics, znodes, strict=True)}
            requested = {
                key: replicas
                for key, replicas in targets.items()
                if replicas is not None and _may_be_led_back(by_topic[key[0]], key[1], replicas)
            }
            versions = {by_topic[topic].path: by_topic[topic].version or 0 for topic, _ in requested}
            if not requested or override(self.client, requested, versions):
                return {key: NO_ERROR if key in requested else NO_REASSIGNMENT_IN_PROGRESS for key in targets}
        raise SurveyorError(
            f"the topics to move back changed {_MAX_ATTEMPTS} times while the request was written; cancel again"
        )


def _may_be_led_back(topic: CurrentTopic, partition: int, target: Sequence[int]) -> bool:
    """Return whether a partition is moving, or has these replicas in another order."""
    assignment = topic.assigned(partition)
    return assignment is not None and (assignment.is_being_reassigned or {*assignment.replicas} == {*target})


def _poll_codes(read_codes: Callable[[], _Codes], expected: int) -> _Codes:
    """Poll until all partitions are as requested, COMPLETION_SECONDS at most.

    The controller may delete the request before its last write is visible.
    """
    return poll_until(
        read_codes, lambda codes: sum(code == NO_ERROR for code in codes.values()) >= expected, COMPLETION_SECONDS
    )
