"""`--via zookeeper`: what Kafka's controller is asked for by requests in /admin, and how it is judged.

Nobody answers: a request goes away, and what the cluster shows then says what became of each partition.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kazoo.client import KazooClient

from jobs.adapters.brokers.admin import NO_REASSIGNMENT_IN_PROGRESS, NONE
from jobs.adapters.zookeeper.admin_requests import ZnodeRequests, override
from jobs.adapters.zookeeper.cluster import TOPICS
from jobs.adapters.zookeeper.connection import Znode, connected, poll_until, sync
from jobs.adapters.zookeeper.lease import Lease
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.core.errors import SurveyorError
from jobs.execution.admin.controller_client import Codes
from jobs.preconditions.changes import assigned, judge_for_admin, understood
from jobs.preconditions.reassignments import moving_in_zookeeper, reassignment_statuses, reassignments_of
from jobs.repositories.plans.commit_log import CommitLog, RowOutcome
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from planner.reassignment.cancellation import ReassignmentStatus
from schemas.enums import Action
from schemas.rows import Change, Key
from schemas.znodes import TopicPartition

REQUESTABLE: Final = frozenset({Action.ELECT_PREFERRED, Action.REASSIGN})
"""What has a request in /admin."""

_MAX_ATTEMPTS: Final = 5

COMPLETION_SECONDS: Final = 10.0
"""Seconds within which a controller that took a request away has written what became of it."""


@dataclass(frozen=True, slots=True)
class ZkControllerClient:
    """Kafka's controller, asked by requests in /admin; it takes one znode of reassignments at a time."""

    settings: Settings
    ledger: CommitLog
    lease: Lease
    requests: ZnodeRequests

    @classmethod
    def of(
        cls, settings: Settings, ledger: CommitLog, lease: Lease, on_poll: Callable[[], None]
    ) -> "ZkControllerClient":
        return cls(settings, ledger, lease, ZnodeRequests(settings.zookeeper, on_poll))

    def reassignments(self) -> dict[Key, list[int]]:
        with connected(self.settings.zookeeper) as client:
            sync(client)
            return moving_in_zookeeper(client)

    def reassign(self, targets: dict[Key, list[int]]) -> Codes:
        plan = reassignments_of(self.ledger.plan)
        earlier = [TopicPartition(*move.key, move.replicas_after) for move in plan]
        moves = {move.key: move for move in plan if targets.get(move.key) == move.replicas_after}
        settled: dict[Key, RowOutcome] = {}

        def judge(chunk: Sequence[TopicPartition]) -> list[TopicPartition]:
            self.ledger.refuse_closed()
            self.lease.refuse_lost()
            verdicts = self._not_due([moves[each.topic, each.partition] for each in chunk])
            settled.update(verdicts)
            return [each for each in chunk if (each.topic, each.partition) not in verdicts]

        with progress("replicas move by request in /admin/reassign_partitions"):
            self.requests.reassign(targets, earlier, judge)
        requested = [move for key, move in moves.items() if key not in settled]
        return {**_poll_codes(lambda: self._reassignment_codes(requested), len(requested)), **settled}

    def _not_due(self, moves: Sequence[Change]) -> dict[Key, RowOutcome]:
        """What must not be requested any more, or need not."""
        with connected(self.settings.zookeeper) as client:
            sync(client)
            _, verdicts = judge_for_admin(client, moves)
        return {verdict.change.key: verdict for verdict in verdicts}

    def elect_preferred(self, partitions: Sequence[Key]) -> Codes:
        with progress("elections by request in /admin/preferred_replica_election"):
            self.requests.elect_preferred(partitions)
        return _poll_codes(lambda: self._election_codes(partitions), len(partitions))

    def _reassignment_codes(self, moves: Sequence[Change]) -> dict[tuple[str, Any], int | str]:
        with connected(self.settings.zookeeper) as client:
            sync(client)
            seen = list(reassignment_statuses(client, moves, self.ledger.plan))
        refused = "it took the order away, and "
        return {
            move.key: refused + detail if standing is ReassignmentStatus.DIVERGED else NONE
            for move, standing, detail in seen
        }

    def _election_codes(self, partitions: Sequence[Key]) -> dict[tuple[str, Any], int | str]:
        topics = sorted({topic for topic, _ in partitions})
        with connected(self.settings.zookeeper) as client:
            sync(client)
            names = dict(zip(topics, read_many(client, [f"{TOPICS}/{topic}" for topic in topics]), strict=True))
            states = read_many(client, [f"{TOPICS}/{t}/partitions/{p}/state" for t, p in partitions])
        codes: dict[tuple[str, Any], int | str] = {}
        for (topic, partition), znode in zip(partitions, states, strict=True):
            assignment, state = assigned(names[topic], partition), understood(znode)
            led = None if state is None else state.leader
            done = assignment is not None and led == assignment[0][0]
            codes[topic, partition] = NONE if done else f"it took the order away, and the leader is {led}"
        return codes


@dataclass(frozen=True, slots=True)
class ZkReassignmentOverride:
    """`surveyor control`, asked to lead partitions back: it goes by what a request asks for last, as Kafka's does."""

    client: KazooClient

    def reassign(self, targets: Mapping[Key, list[int] | None]) -> dict[Key, int]:
        """Order these targets, but for partitions that have come to their end; what has come there stays."""
        for _ in range(_MAX_ATTEMPTS):
            topics = sorted({topic for topic, _ in targets})
            znodes = dict(zip(topics, read_many(self.client, [f"{TOPICS}/{name}" for name in topics]), strict=True))
            due = {
                key: to
                for key, to in targets.items()
                if to is not None and _may_be_led_back(znodes[key[0]], key[1], to)
            }
            versions = {znodes[topic].path: znodes[topic].version or 0 for topic, _ in due}
            if not due or override(self.client, due, versions):
                return {key: NONE if key in due else NO_REASSIGNMENT_IN_PROGRESS for key in targets}
        raise SurveyorError(f"the topics to be led back changed {_MAX_ATTEMPTS} times in between; cancel again")


def _may_be_led_back(topic: Znode, partition: int, target: Sequence[int]) -> bool:
    """Tell whether a partition moves, or has these replicas in another order."""
    assignment = assigned(topic, partition)
    return assignment is not None and (bool(assignment[1] or assignment[2]) or {*assignment[0]} == {*target})


def _poll_codes(
    look: Callable[[], dict[tuple[str, Any], int | str]], expected: int
) -> dict[tuple[str, Any], int | str]:
    """Look until all is as requested, for a while: the request may go before the last write is seen."""
    return poll_until(look, lambda codes: sum(code == NONE for code in codes.values()) >= expected, COMPLETION_SECONDS)
