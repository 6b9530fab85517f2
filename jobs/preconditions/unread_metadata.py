"""The topics and partitions of a plan's snapshot that are not understood, so that the plan does not cover them.

If an earlier snapshot has such a partition, the plan rejects it by name. Otherwise the partition is in no table, and a
broker may hold replicas of it although every count shows the broker as empty.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.rows import HIDDEN_TOPICS, PlanRecord, QuarantinedZnode
from schemas.text import join_words, pluralise

QUARANTINE_COMMAND: Final = "`surveyor show quarantine`"

MAX_NAMED: Final = 10
"""Topics and partitions that a warning names unless all are requested; quarantine has them all."""

_EXPLICIT: Final = {"targets", "rollback_of"}
"""Parameters of reassignments that name their partitions one by one."""


@dataclass(frozen=True, slots=True)
class UnreadMetadata:
    """Names of undecodable topics and partitions, in order; `in_part` are topics with other, decodable partitions."""

    topics: Sequence[str] = ()
    partitions: Sequence[str] = ()
    in_part: frozenset[str] = frozenset()
    may_lack_topics: bool = False
    """Whether a KRaft cluster may have further topics, which this client may not describe."""

    def __bool__(self) -> bool:
        return bool(self.topics or self.partitions or self.may_lack_topics)

    def sentence(self, *, everything: bool = False) -> str:
        """Return what is not understood.

        >>> UnreadMetadata(["a", "b"], ["c-0"], frozenset({"b"})).sentence()
        '2 topics and 1 partition are not understood (a, b in part, c-0)'
        >>> UnreadMetadata(["a"]).sentence()
        '1 topic is not understood (a)'
        >>> UnreadMetadata(may_lack_topics=True).sentence()
        'topics that this client may not describe may be missing'
        """
        hidden = ["topics that this client may not describe may be missing"] if self.may_lack_topics else []
        return ", and ".join([*self._named(everything=everything), *hidden])

    def _named(self, *, everything: bool) -> Iterator[str]:
        if not (self.topics or self.partitions):
            return
        counted = [
            pluralise(len(names), noun)
            for names, noun in ((self.topics, "topic"), (self.partitions, "partition"))
            if names
        ]
        names = [f"{topic} in part" if topic in self.in_part else topic for topic in self.topics]
        names += self.partitions
        shown = names if everything else names[:MAX_NAMED]
        more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
        verb = "is" if len(names) == 1 else "are"
        yield f"{join_words(counted)} {verb} not understood ({', '.join(shown)}{more})"

    @property
    def is_one(self) -> bool:
        return len(self.topics) + len(self.partitions) == 1 and not self.may_lack_topics


def unread_among(rows: Sequence[QuarantinedZnode], in_part: Collection[str] = ()) -> UnreadMetadata:
    """Name the topics and partitions in quarantine; of the topics `in_part`, other partitions are understood."""
    topics = unread_topics(rows)
    states = {partition for row in rows if (partition := row.one_partition)}
    partitions = [f"{topic}-{number}" for topic, number in sorted(states, key=_in_order) if topic not in topics]
    hidden = any(row.path == HIDDEN_TOPICS for row in rows)
    return UnreadMetadata(topics, partitions, frozenset(in_part), may_lack_topics=hidden)


def unread_topics(rows: Sequence[QuarantinedZnode]) -> list[str]:
    """Name the topics that are in quarantine as a whole."""
    return sorted({topic for row in rows if (topic := row.whole_topic)})


def _in_order(partition: tuple[str, str]) -> tuple[str, int, str]:
    topic, number = partition
    return topic, int(number) if number.isdecimal() else -1, number


def depends_on_unread(plan: PlanRecord) -> bool:
    """Return whether a plan answers for brokers or for all partitions, and so for those that are not understood."""
    is_explicit = plan.traits.is_of_named_topics or _EXPLICIT & plan.options.keys() or plan.options.get("partitions")
    return not is_explicit


def unread_warnings(plan: PlanRecord, unread: UnreadMetadata, *, everything: bool = False) -> list[str]:
    """Warn of metadata that a plan could not read, and of the consequences for the brokers it concerns."""
    if not unread or not depends_on_unread(plan):
        return []
    meaning = _meaning(plan, unread)
    return [f"{unread.sentence(everything=everything)}: {meaning}; {QUARANTINE_COMMAND}"]


def _meaning(plan: PlanRecord, unread: UnreadMetadata) -> str:
    parameters = plan.options
    them = "it" if unread.is_one else "them"
    if plan.traits.drains:
        some = them if unread.is_one else "some of them"
        return f"{_brokers(parameters['brokers'])} may still lead {some}"
    emptied = [*parameters.get("remove_brokers", []), *(old for old, _ in parameters.get("replace", []))]
    if emptied:
        return f"{_brokers(emptied)} may still hold replicas of {them}"
    if plan.traits.moves_replicas:
        return f"no replica of {them} is counted or moved"
    return f"nothing is planned for {them}"


def _brokers(ids: Sequence[int]) -> str:
    """Name brokers.

    >>> _brokers([2]), _brokers([2, 3, 4])
    ('broker 2', 'brokers 2, 3 and 4')
    """
    return f"broker{'s' * (len(ids) != 1)} {join_words([str(broker) for broker in ids])}"
