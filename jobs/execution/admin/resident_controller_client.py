"""Requests to `surveyor control` while it is the controller, by znodes in /admin, which it always reads.

It serves the Admin API only with --listen. Like Kafka's controller it follows the latest request for a partition.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from jobs.adapters.brokers.admin_client import NO_REASSIGNMENT_IN_PROGRESS
from jobs.adapters.clusters.interface import Lease
from jobs.adapters.zookeeper.admin_requests import add_requests
from jobs.adapters.zookeeper.cluster_state import CONTROLLER_EPOCH, PREFERRED_ELECTION, REASSIGN
from jobs.adapters.zookeeper.connection import ZooKeeperSession, sync
from jobs.adapters.zookeeper.kafka_acl import use_kafka_acl
from jobs.adapters.zookeeper.multi_read import read_many
from jobs.adapters.zookeeper.plan_submission import read_resident_controller
from jobs.adapters.zookeeper.precondition_reader import current_topic, moving_in_zookeeper
from jobs.adapters.zookeeper.znode_reads import read
from jobs.core.errors import RefusedError, SurveyorError
from schemas.current_state import CurrentTopic
from schemas.enums import Action, OperationKind
from schemas.response_codes import NO_ERROR
from schemas.rows import Key
from schemas.znode_codecs import TopicPartition
from schemas.znode_paths import topic_path

REQUESTABLE: Final = frozenset(
    {Action.ELECT_PREFERRED, Action.REASSIGN, Action.CANCEL, OperationKind.WITHDRAW_REASSIGNMENT}
)
"""Actions that have a request in /admin."""

LEADER_RETURN_SECONDS: Final = 60.0
"""Seconds for `surveyor control` to move partitions back: it takes some cycles, in which brokers stop replicas."""

MAX_CHECK_SECONDS: Final = 5.0
"""Seconds that a check of the lease, and a connection to request what was checked, may take."""

_MAX_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class ResidentControllerClient:
    """`surveyor control`, asked to carry out the changes of a plan."""

    session: ZooKeeperSession

    def reassignments(self) -> dict[Key, list[int]]:
        with self.session.connected() as client:
            sync(client)
            return moving_in_zookeeper(client)

    def reassign(self, targets: Mapping[Key, list[int] | None]) -> dict[Key, int]:
        """Request these targets; a requested partition counts as moving."""
        self._add(REASSIGN, [TopicPartition(*key, replicas) for key, replicas in sorted(targets.items())])
        return dict.fromkeys(targets, NO_ERROR)

    def lead_back(self, targets: Mapping[Key, list[int]], lease: Lease) -> dict[Key, int]:
        """Request that these partitions return, except for those whose reassignment is already complete; those stay.

        The lease is checked once there is a connection: to wait for one may take longer than the session lives, or than
        the check of the partitions is valid.
        """
        began = time.monotonic()
        with self.session.connected() as client:
            lease.refuse_lost()
            if time.monotonic() - began >= MAX_CHECK_SECONDS:
                raise RefusedError(f"connecting to ZooKeeper took more than {MAX_CHECK_SECONDS:g} s; cancel again")
            for _ in range(_MAX_ATTEMPTS):
                topics = sorted({topic for topic, _ in targets})
                znodes = read_many(client, [topic_path(topic) for topic in topics])
                by_topic = {topic: current_topic(znode) for topic, znode in zip(topics, znodes, strict=True)}
                requested = {
                    key: replicas
                    for key, replicas in targets.items()
                    if _may_be_led_back(by_topic[key[0]], key[1], replicas)
                }
                versions = {by_topic[topic].path: by_topic[topic].version or 0 for topic, _ in requested}
                requests = [TopicPartition(*key, replicas) for key, replicas in sorted(requested.items())]
                if not requested or add_requests(client, REASSIGN, requests, versions):
                    return {key: NO_ERROR if key in requested else NO_REASSIGNMENT_IN_PROGRESS for key in targets}
        raise SurveyorError(
            f"the topics to move back changed {_MAX_ATTEMPTS} times while the request was written; cancel again"
        )

    def elect_preferred(self, partitions: Sequence[Key]) -> dict[Key, int]:
        """Request elections; no partition has an answer, only the cluster shows their outcome."""
        self._add(PREFERRED_ELECTION, [TopicPartition(*key) for key in sorted(partitions)])
        return {}

    def _add(self, path: str, requests: Sequence[TopicPartition]) -> None:
        """Add the requests unless `surveyor control` has stopped: Kafka's controller reads only znodes that are new."""
        with self.session.connected() as client:
            use_kafka_acl(client)
            epoch = {CONTROLLER_EPOCH: read(client, CONTROLLER_EPOCH).version or 0}
            if read_resident_controller(client) is None or not add_requests(client, path, requests, epoch):
                raise RefusedError("`surveyor control` is no longer the controller; run the same command again")


def _may_be_led_back(topic: CurrentTopic, partition: int, target: Sequence[int]) -> bool:
    """Return whether a partition is moving, or has these replicas in another order."""
    assignment = topic.assigned(partition)
    return assignment is not None and (assignment.is_being_reassigned or {*assignment.replicas} == {*target})
