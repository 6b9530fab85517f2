"""Formatting of counts and lists for reasons, errors and the console.

This module does not need Spark, so every command can use the same wording.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

DRAINED_LEADS: Final = "no replica that is not drained can lead: drained broker "
"""Start of the part of a reason that names a drained broker as leader; the broker id follows."""

LINES_SHOWN: Final = 10
"""Lines of a list that are printed unless everything is requested."""

BROKERS_SHOWN: Final = 20
"""Brokers that get a line, or a part of one with figures."""

WAVES_SHOWN: Final = 20
"""Waves of a plan for which figures are printed."""

MAX_BROKERS_NAMED: Final = 10
"""Brokers named in a line."""

MAX_PARTITIONS_NAMED: Final = 10
"""Partitions named in a line or list."""


def pluralise(count: int, noun: str, singular_verb: str = "", plural_verb: str = "") -> str:
    """Format a count with its noun, and optionally a verb in the matching form.

    >>> [pluralise(count, "change") for count in (0, 1, 1200)]
    ['0 changes', '1 change', '1200 changes']
    >>> [pluralise(count, "partition", "goes offline", "go offline") for count in (1, 2)]
    ['1 partition goes offline', '2 partitions go offline']
    """
    does = singular_verb if count == 1 else plural_verb
    return f"{count} {noun}{'s' * (count != 1)}{' ' * bool(does)}{does}"


def plan_size(changes: int, operations: int) -> str:
    """Format the size of a plan; operations are not changes, and are counted separately.

    >>> plan_size(0, 1), plan_size(3, 1), plan_size(1, 0)
    ('1 operation', '3 changes, 1 operation', '1 change')
    """
    parts = [pluralise(changes, "change")] * bool(changes or not operations)
    return ", ".join([*parts, *[pluralise(operations, "operation")] * bool(operations)])


def join_words(words: Sequence[str]) -> str:
    """Join at least one word with commas and "and".

    >>> join_words(["records"]), join_words(["partitions", "records", "bytes"])
    ('records', 'partitions, records and bytes')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def join_ids(ids: Iterable[object]) -> str:
    """Join ids of brokers, partitions or waves with commas.

    >>> join_ids([3, 1]), join_ids([])
    ('3, 1', '')
    """
    return ", ".join(map(str, ids))


def by_reason(reasons: Mapping[int, str]) -> list[str]:
    """List each reason once, with the brokers that have it.

    >>> by_reason({1: "no token", 2: "timed out", 3: "no token"})
    ['brokers 1, 3: no token', 'broker 2: timed out']
    """
    brokers = dict[str, list[int]]()
    for broker, reason in reasons.items():
        brokers.setdefault(reason, []).append(broker)
    return [f"{'brokers' if len(ids) > 1 else 'broker'} {join_ids(ids)}: {reason}" for reason, ids in brokers.items()]


def with_others(first: str, count: int) -> str:
    """Name the first of `count` things, and how many others there are.

    >>> [with_others("t-0", count) for count in (1, 2, 3)]
    ['t-0', 't-0 and 1 other', 't-0 and 2 others']
    """
    return f"{first} and {pluralise(count - 1, 'other')}" if count > 1 else first


def partition_name(topic: str, partition: int) -> str:
    """Return how Kafka's tools name a partition.

    >>> partition_name("orders", 3)
    'orders-3'
    """
    return f"{topic}-{partition}"


def abbreviate(brokers: Sequence[object]) -> str:
    """Join at most MAX_BROKERS_NAMED broker ids and append how many more there are.

    >>> abbreviate([1, 2]), abbreviate(range(12))
    ('1, 2', '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more')
    """
    shown = join_ids(brokers[:MAX_BROKERS_NAMED])
    return f"{shown} and {len(brokers) - MAX_BROKERS_NAMED} more" if len(brokers) > MAX_BROKERS_NAMED else shown


def broker_list(brokers: Collection[int]) -> str:
    """Name brokers by their ids, the first MAX_BROKERS_NAMED of them.

    >>> broker_list([3]), broker_list({1, 2})
    ('broker 3', 'brokers 1, 2')
    """
    return f"broker{'s' * (len(brokers) != 1)} {abbreviate([*brokers])}"
