"""The resync of the resident controller: every few minutes it reads the whole cluster, also if no watch has fired.

It reads one part at a time, with a cycle between two parts: a million partitions take half a minute, and a partition
that loses its leader in the meantime must not wait for that.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from jobs.adapters.zookeeper.cluster_state import BROKER_IDS, TOPICS
from jobs.controller.controller_context import ControllerContext
from jobs.controller.metadata_reader import MetadataReader, topics_in_paths
from jobs.controller.pending_work import DueWork

RESYNC_INTERVAL_SECONDS: Final = 300.0
"""Seconds from the start of a resync to the start of the next."""


@dataclass(slots=True)
class Resync:
    """Reads the cluster again, part by part."""

    reader: MetadataReader
    context: ControllerContext
    partitions_per_cycle: int = 5_000
    """Partitions that are read at once, which takes some tenths of a second."""
    monotonic: Callable[[], float] = time.monotonic
    _due_at: float = field(default_factory=lambda: time.monotonic() + RESYNC_INTERVAL_SECONDS)
    _remaining_topics: list[str] = field(default_factory=list)
    """Topics still to be read, in descending order."""

    @property
    def is_under_way(self) -> bool:
        return bool(self._remaining_topics)

    def begin_at_once(self) -> None:
        """Start a resync with the next part, because nothing that was read lately is reliable."""
        self._due_at, self._remaining_topics = self.monotonic(), []

    def next_topics(self, fired: Collection[str]) -> Collection[str]:
        """Queue the topics among these paths if there are too many to read at once; return all other paths.

        This happens after a lost connection, when all watches count as fired.
        """
        topics = topics_in_paths(fired)
        if sum(len(self.context.of_topic(topic)) for topic in topics) <= self.partitions_per_cycle:
            return fired
        self._remaining_topics = sorted(topics.union(self._remaining_topics), reverse=True)
        return [path for path in fired if not topics_in_paths([path])]

    def read_next_part(self) -> DueWork | None:
        """Read the next part, and return what changed; None if no resync is due."""
        if self._remaining_topics:
            return DueWork(self.reader.refresh_topics(self._take_next_part()))
        if self.monotonic() < self._due_at:
            return None
        self._due_at = self.monotonic() + RESYNC_INTERVAL_SECONDS
        self.reader.watches.watch_all()
        changes = self.reader.refresh({BROKER_IDS, TOPICS})
        self._remaining_topics = sorted(self.context.topics, reverse=True)
        return changes

    def _take_next_part(self) -> list[str]:
        part: list[str] = []
        partitions = 0
        while self._remaining_topics and partitions < self.partitions_per_cycle:
            part.append(self._remaining_topics.pop())
            partitions += len(self.context.of_topic(part[-1]))
        return part
