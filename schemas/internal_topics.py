"""Topics in which Kafka and the tools around it keep their own state, by name.

Every plan that may lose such state refuses these topics without --allow-internal. Kafka itself only knows
`Topic.INTERNAL_TOPICS`; the other names are the defaults of the tools, and those that their documentation uses. A conf
may declare more (`internal_topics`).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from schemas.topic_configs import MIN_ISR, POLICY, UNCLEAN_ELECTION, same_value, whole_number

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Kafka's own topics (`Topic.INTERNAL_TOPICS`); their partition count determines where groups and transactions are."""

INTERNAL_PREFIX: Final = "__"
"""Prefix of topic names that by convention belong to Kafka or to tools around it."""

METADATA_TOPIC: Final = "__cluster_metadata"
"""KRaft's log; no topic may have this name."""

DECLARED: Final = "internal_topics in the conf"

_COMPACT: Final = {POLICY: "compact"}

_CONNECT: Final = r"(.*[-._])?connect([-._].*)?[-._](config|offset|status)(e?s)?([-._]storage)?([-._]topic)?"
_MIRROR: Final = (
    r"mm2-(configs|offsets|status|offset-syncs)[-._].+[-._]internal|.+[-._]checkpoints[-._]internal|(.+\.)?heartbeats"
    r"|mirrormaker2?-.*(configs|offsets|status)"
)
_STREAMS: Final = (
    r".+-(changelog|repartition)"
    r"|.+-(SUBSCRIPTION|subscription)-(REGISTRATION|RESPONSE|registration|response)(-.+)?-topic"
)

_OWNERS: Final[Sequence[tuple[str, str, Mapping[str, str]]]] = (
    (r"__consumer_offsets", "Kafka", _COMPACT),
    (
        r"__transaction_state",
        "Kafka",
        _COMPACT | {"compression.type": "uncompressed", MIN_ISR: "2", UNCLEAN_ELECTION: "false"},
    ),
    (r"__share_group_state", "Kafka", {POLICY: "delete", "retention.ms": "-1"}),
    (METADATA_TOPIC, "Kafka", {}),
    (r"_{0,2}schemas", "Schema Registry", _COMPACT),
    (_CONNECT, "Kafka Connect", _COMPACT),
    (_MIRROR, "MirrorMaker 2", _COMPACT),
    (r"_confluent-ksql-.+", "ksqlDB", {}),
    (r"_confluent[-_.].+", "Confluent Platform", {}),
    (r"__(CruiseControl|KafkaCruiseControl).*|strimzi\.cruisecontrol\..+", "Cruise Control", {}),
    (_STREAMS, "Kafka Streams", {}),
    (rf"{INTERNAL_PREFIX}.+", f"Kafka or a tool around it (names that begin with {INTERNAL_PREFIX})", {}),
)
"""Names, owner, and the configs without which the owner loses state; the first match counts.

The configs of Kafka's own topics are those that brokers create them with (`OffsetConfig`, `TransactionStateManager`,
`ShareCoordinatorService`). A value of min.insync.replicas is the least, as far as there are replicas.
"""


def owner_of(topic: str, declared: Sequence[str] = ()) -> str | None:
    """Return the owner of an internal topic, None for any other; `declared` has names and regexes of whole names.

    >>> [owner_of(name) for name in ("_schemas", "docker-connect-offsets", "a-changelog", "orders", "connect-orders")]
    ['Schema Registry', 'Kafka Connect', 'Kafka Streams', None, None]
    >>> owner_of("team-registry", ["team-.*"])
    'internal_topics in the conf'
    """
    if any(topic == name or re.fullmatch(name, topic) for name in declared):
        return DECLARED
    return next((owner for pattern, owner, _ in _OWNERS if re.fullmatch(pattern, topic)), None)


def pattern_of_internal(declared: Sequence[str] = ()) -> str:
    """Return a regex that the names of internal topics match, as `owner_of`, for engines that search in a text."""
    patterns = [*map(re.escape, declared), *declared, *(pattern for pattern, _, _ in _OWNERS)]
    return f"^({'|'.join(f'({pattern})' for pattern in patterns)})$"


def unmet_configs(topic: str, config: Mapping[str, str | None], replicas: int | None) -> dict[str, str]:
    """Return the configs that an internal topic needs and `config` does not have; `replicas` of a partition, if known.

    >>> unmet_configs("__consumer_offsets", {}, 3), unmet_configs("connect-configs", {"cleanup.policy": "compact"}, 3)
    ({'cleanup.policy': 'compact'}, {})
    >>> unmet_configs("__transaction_state", {"cleanup.policy": "compact", "min.insync.replicas": "3"}, 3)
    {'compression.type': 'uncompressed', 'unclean.leader.election.enable': 'false'}
    """
    required = next((configs for pattern, _, configs in _OWNERS if re.fullmatch(pattern, topic)), {})
    unmet = {name: value for name, value in required.items() if not same_value(name, config.get(name), value)}
    least = min(int(required.get(MIN_ISR, 0)), replicas or 1)
    if MIN_ISR in unmet and (whole_number(config.get(MIN_ISR)) or 0) >= least:
        del unmet[MIN_ISR]
    return unmet if MIN_ISR not in unmet else unmet | {MIN_ISR: str(least)}
