"""min.insync.replicas of brokers and topics, in plain Python.

Corresponds to `LogConfig`, which falls back to the config of the leader's broker. Plain-Python counterpart of
`planner.columns.derived_columns`; a change of one needs the other.
"""

from collections.abc import Iterable, Mapping

from schemas.rows import BrokerConfig
from schemas.topic_configs import DEFAULT_MIN_ISR, MIN_ISR, whole_number

TopicConfig = Mapping[str, str | None] | None
"""The config of a topic; None if it cannot be read, with None for a value that cannot be read."""


def known_min_isr(configs: Iterable[BrokerConfig]) -> dict[int, int]:
    """Return the default min.insync.replicas of each broker whose default is known, by rows of BROKER_CONFIGS."""
    values = {row.broker_id: whole_number(row.value) for row in configs if row.name == MIN_ISR and not row.assumed}
    return {broker: value for broker, value in values.items() if value is not None}


def default_min_isr(configs: Iterable[BrokerConfig]) -> int:
    """Return the largest known default of a broker, else Kafka's own default."""
    return max(known_min_isr(configs).values(), default=DEFAULT_MIN_ISR)


def min_isr_of(config: TopicConfig, default: int) -> int:
    """Return the min.insync.replicas of a topic: its own if it can be read, else the brokers' `default`.

    >>> [min_isr_of(config, 2) for config in ({"min.insync.replicas": "3"}, {"min.insync.replicas": "x"}, {}, None)]
    [3, 2, 2, 2]
    """
    override = whole_number((config or {}).get(MIN_ISR))
    return default if override is None else override


def certain_min_isr(config: TopicConfig, default: int | None) -> int | None:
    """Return the min.insync.replicas of a topic, None if it is unknown; `default` is that of the brokers, if known.

    >>> certain_min_isr({"min.insync.replicas": "3"}, 2), certain_min_isr({}, 2)
    (3, 2)
    >>> certain_min_isr({"min.insync.replicas": "x"}, 2), certain_min_isr(None, 2)
    (None, None)
    """
    if config is None:
        return None
    return whole_number(config[MIN_ISR]) if MIN_ISR in config else default
