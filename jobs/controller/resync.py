"""The audit of a controller that stays: everything is read again every few minutes, whatever watches said.

It is read a part at a time, and a cycle comes between two parts: a million partitions take half a minute, and who loses
its leader meanwhile must not wait for it. Out: what is not as it was known.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from jobs.adapters.zookeeper.cluster import BROKER_IDS, TOPICS
from jobs.controller.context import ControllerContext
from jobs.controller.metadata_reader import MetadataChanges, MetadataReader, topics_in_paths

RESYNC_INTERVAL_SECONDS: Final = 300.0
"""Seconds from the beginning of an audit to the next."""

TOPICS_PER_CYCLE: Final = 5_000
"""Partitions that are read at once: some tenths of a second."""


@dataclass(slots=True)
class Resync:
    """Reads everything again, part by part."""

    reader: MetadataReader
    context: ControllerContext
    _due_at: float = field(default_factory=lambda: time.monotonic() + RESYNC_INTERVAL_SECONDS)
    _left: list[str] = field(default_factory=list)
    """Topics to be read yet, in descending order."""

    @property
    def is_under_way(self) -> bool:
        return bool(self._left)

    def begin_at_once(self) -> None:
        """Begin with the next part, from the beginning: nothing that was read lately can be relied on."""
        self._due_at, self._left = time.monotonic(), []

    def next_topics(self, fired: Collection[str]) -> Collection[str]:
        """Take over topics that watches named, where they are too many to be read at once; return all other paths.

        So it is once a connection was lost, as all watches count as having fired then.
        """
        topics = topics_in_paths(fired)
        if sum(len(self.context.of_topic(topic)) for topic in topics) <= TOPICS_PER_CYCLE:
            return fired
        self._left = sorted(topics.union(self._left), reverse=True)
        return [path for path in fired if not topics_in_paths([path])]

    def proceed(self) -> MetadataChanges | None:
        """Read the next part; None where no audit is due."""
        if self._left:
            return MetadataChanges(self.reader.refresh_topics(self._next_part()))
        if time.monotonic() < self._due_at:
            return None
        self._due_at = time.monotonic() + RESYNC_INTERVAL_SECONDS
        self.reader.watches.watch_all()
        seen = self.reader.refresh({BROKER_IDS, TOPICS})
        self._left = sorted(self.context.topics, reverse=True)
        return seen

    def _next_part(self) -> list[str]:
        part: list[str] = []
        partitions = 0
        while self._left and partitions < TOPICS_PER_CYCLE:
            part.append(self._left.pop())
            partitions += len(self.context.of_topic(part[-1]))
        return part
