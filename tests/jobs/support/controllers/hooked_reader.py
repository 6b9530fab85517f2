"""A reader of a resident controller, whose readings a test replaces: to act between two of them, or to fail."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any

from jobs.controller.metadata_reader import MetadataReader
from jobs.controller.pending_work import DueWork
from schemas.rows import Key

Hooks = dict[str, Callable[..., Any]]
"""By reading, a function that is called in its place, with the reading and its arguments."""


class HookedReader(MetadataReader):
    """A reader with hooks."""

    def __init__(self, *parts: Any) -> None:  # noqa: ANN401 - those of a reader
        super().__init__(*parts)
        self.hooks: Hooks = defaultdict(lambda: _call)

    def refresh_partitions(self, keys: Iterable[Key]) -> set[Key]:
        found: set[Key] = self.hooks["refresh_partitions"](super().refresh_partitions, keys)
        return found

    def _requests(self, changes: DueWork) -> None:
        self.hooks["_requests"](super()._requests, changes)

    def _topics(self, changes: DueWork, reread: Collection[str]) -> None:
        self.hooks["_topics"](super()._topics, changes, reread)


def _call(read: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - as the reading
    return read(*arguments)
