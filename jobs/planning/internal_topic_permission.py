"""The permission `--allow-internal`, without which no plan changes topics in which Kafka or a tool keeps its state."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from jobs.core.errors import RefusedError
from schemas.internal_topics import owner_of

ALLOW_INTERNAL: Final = "--allow-internal"


@dataclass(frozen=True, slots=True)
class InternalTopics:
    """The internal topics of a cluster, and whether --allow-internal is given."""

    allowed: bool = False
    declared: Sequence[str] = ()
    """Names and regexes of the conf, in addition to those that Surveyor knows."""

    @property
    def parameters(self) -> dict[str, bool]:
        """The permission as a plan's parameter."""
        return {"allow_internal": True} if self.allowed else {}

    def faults(self, topics: Sequence[str], risk: str) -> Iterator[str]:
        """Yield why the internal ones among the topics are not changed, unless that is allowed."""
        for topic in () if self.allowed else topics:
            if (owner := owner_of(topic, self.declared)) is not None:
                yield f"topic {topic} is internal to {owner}: {risk}; leave it out, or add {ALLOW_INTERNAL}"

    def refuse(self, topics: Sequence[str], risk: str) -> None:
        """Raise RefusedError with the faults of all topics."""
        if faults := list(self.faults(topics, risk)):
            raise RefusedError("\n  ".join(faults))


NOT_ALLOWED: Final = InternalTopics()
