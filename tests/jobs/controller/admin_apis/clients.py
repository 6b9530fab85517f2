"""A client that asks the controller, with the entities of kio, while cycles run."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kio.schema.index import api_key_map
from kio.static.primitive import i32Timedelta

from jobs.adapters.request_server.api_handler import Caller
from jobs.controller.controller import ResidentController
from jobs.controller.request_handler import RequestHandler
from tests.jobs.support.controllers.resident import drain_watches

CALLER = Caller("PLAINTEXT", "User:ANONYMOUS", "127.0.0.1", "admin")
CYCLES = 200

Answers = dict[Any, tuple[int, str | None]]
"""Error code and message by topic, or by topic and partition."""


def milliseconds(count: int) -> Any:  # noqa: ANN401 - of kio
    return i32Timedelta.parse(timedelta(milliseconds=count))


@dataclass(slots=True)
class AdminClient:
    """The tools of one person."""

    controller: ResidentController
    request_handler: RequestHandler
    sender: Caller = CALLER

    def ask(self, api: int, version: int, request: Any) -> Any:  # noqa: ANN401 - of kio
        """Ask, and run cycles until the answer is there."""
        pending = self.request_handler.submit(self.sender, api, version, request)
        for _ in range(CYCLES):
            if pending.done():
                break
            drain_watches(self.controller)
            self.controller.cycle()
        return pending.result(1)

    def create(self, *topics: Mapping[str, Any], version: int = 7, timeout: int = 20_000, dry: bool = False) -> Answers:
        """Create topics; each by name, partitions, factor, assignments and configs."""
        module = _request(19, version)
        entities = [
            module.CreatableTopic(
                name=topic["name"],
                num_partitions=topic.get("partitions", -1),
                replication_factor=topic.get("factor", -1),
                assignments=tuple(
                    module.CreatableReplicaAssignment(partition_index=number, broker_ids=tuple(replicas))
                    for number, replicas in topic.get("assignments", {}).items()
                ),
                configs=tuple(
                    module.CreatableTopicConfig(name=name, value=value)
                    for name, value in topic.get("configs", {}).items()
                ),
            )
            for topic in topics
        ]
        dry_run = {"validate_only": dry} if version >= 1 else {}
        request = module.CreateTopicsRequest(topics=tuple(entities), timeout=milliseconds(timeout), **dry_run)
        response = self.ask(19, version, request)
        return {
            result.name: (int(result.error_code), getattr(result, "error_message", None)) for result in response.topics
        }

    def extend(
        self, topic: str, count: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> tuple[int, str | None]:
        """Add partitions to a topic."""
        module = _request(37, 3)
        lists = (
            None
            if assignments is None
            else tuple(module.CreatePartitionsAssignment(broker_ids=tuple(assignment)) for assignment in assignments)
        )
        extended = module.CreatePartitionsTopic(name=topic, count=count, assignments=lists)
        request = module.CreatePartitionsRequest(topics=(extended,), timeout=milliseconds(20_000), validate_only=False)
        [result] = self.ask(37, 3, request).results
        return int(result.error_code), result.error_message

    def delete(self, *names: str, timeout: int = 20_000, version: int = 5) -> Answers:
        """Delete topics by name."""
        request = _request(20, version).DeleteTopicsRequest(topic_names=names, timeout=milliseconds(timeout))
        response = self.ask(20, version, request)
        return {
            result.name: (int(result.error_code), getattr(result, "error_message", None))
            for result in response.responses
        }

    def send_deletion(self, name: str) -> Any:  # noqa: ANN401 - a future
        """Begin to delete a topic; return the answer to come."""
        request = _request(20, 5).DeleteTopicsRequest(topic_names=(name,), timeout=milliseconds(30_000))
        return self.request_handler.submit(self.sender, 20, 5, request)

    def delete_by_id(self, topic_id: Any) -> tuple[str | None, int]:  # noqa: ANN401 - a UUID
        """Delete a topic by its id; return its name and the error code."""
        module = _request(20, 6)
        asked = module.DeleteTopicState(name=None, topic_id=topic_id)
        [result] = self.ask(20, 6, module.DeleteTopicsRequest(topics=(asked,), timeout=milliseconds(20_000))).responses
        return result.name, int(result.error_code)

    def reassign(self, targets: Mapping[tuple[str, int], Sequence[int] | None], timeout: int = 20_000) -> Answers:
        """Begin reassignments, or cancel them where the target is None."""
        module = _request(45, 0)
        topics = tuple(
            module.ReassignableTopic(
                name=topic,
                partitions=(
                    module.ReassignablePartition(
                        partition_index=partition, replicas=None if replicas is None else tuple(replicas)
                    ),
                ),
            )
            for (topic, partition), replicas in targets.items()
        )
        request = module.AlterPartitionReassignmentsRequest(timeout=milliseconds(timeout), topics=topics)
        return {
            (topic.name, partition_result.partition_index): (
                int(partition_result.error_code),
                partition_result.error_message,
            )
            for topic in self.ask(45, 0, request).responses
            for partition_result in topic.partitions
        }

    def reassignments(self, topics: Mapping[str, Sequence[int]] | None = None) -> dict[tuple[str, int], Any]:
        """List reassignments: replicas, adding and removing."""
        module = _request(46, 0)
        named = (
            None
            if topics is None
            else tuple(
                module.ListPartitionReassignmentsTopics(name=name, partition_indexes=tuple(numbers))
                for name, numbers in topics.items()
            )
        )
        response = self.ask(46, 0, module.ListPartitionReassignmentsRequest(timeout=milliseconds(1000), topics=named))
        return {
            (topic.name, partition.partition_index): (
                partition.replicas,
                partition.adding_replicas,
                partition.removing_replicas,
            )
            for topic in response.topics
            for partition in topic.partitions
        }

    def elect(self, kind: int, keys: Sequence[tuple[str, int]] | None) -> Answers:
        """Elect leaders: 0 preferred, 1 unclean."""
        return {
            (topic.topic, result.partition_id): (int(result.error_code), result.error_message)
            for topic in self.election(kind, keys).replica_election_results
            for result in topic.partition_result
        }

    def election(self, kind: int, keys: Sequence[tuple[str, int]] | None, version: int = 2) -> Any:  # noqa: ANN401
        """Elect leaders, of all partitions with None; return the response."""
        module = _request(43, version)
        named = (
            None
            if keys is None
            else tuple(module.TopicPartitions(topic=topic, partitions=(partition,)) for topic, partition in keys)
        )
        kind_field = {} if version == 0 else {"election_type": kind}
        request = module.ElectLeadersRequest(topic_partitions=named, timeout=milliseconds(20_000), **kind_field)
        return self.ask(43, version, request)


def _request(api: int, version: int) -> Any:  # noqa: ANN401 - a module
    return importlib.import_module(f"kio.schema.{api_key_map[api]}.v{version}.request")
