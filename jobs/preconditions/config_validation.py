"""Validation of topic configs when a plan is made and again before a commit writes them.

In batch mode no broker validates what is written, and a broker fails on a value that it cannot parse. Kafka's
controller would refuse such a value, so it is refused early in admin mode too.
"""

from collections.abc import Iterator, Mapping, Sequence

from jobs.core.errors import RefusedError
from schemas.enums import OperationKind
from schemas.operation_data import AlteredConfig, CheckedConfig, CreatedTopic, data_of
from schemas.rows import Operation
from schemas.text import pluralise
from schemas.topic_configs import (
    MIN_ISR,
    TIERED,
    UNCLEAN_ELECTION,
    boolean,
    config_name_faults,
    conflicts,
    value_faults,
    whole_number,
)


def config_faults(config: Mapping[str, str], *, unknown_allowed: bool) -> Iterator[str]:
    """Return a message for each invalid name or value."""
    if not unknown_allowed:
        yield from (f"{fault}; --allow-unknown-config accepts it unchecked" for fault in config_name_faults(config))
    yield from value_faults(config)


def refuse_bad_configs(title: str, operations: Sequence[Operation]) -> None:
    """Raise RefusedError if a plan of any origin sets a config that Kafka would not accept."""
    for operation in operations:
        config, unchecked = configs_set_by(operation), checked_config(operation).unknown
        named = {name: value for name, value in config.items() if name not in unchecked}
        fault = next(config_faults(named, unknown_allowed=False), None)
        if fault is None and operation.kind == OperationKind.CREATE_TOPIC:
            fault = next(conflicts(config), None)
        if fault is not None:
            raise RefusedError(f"plan {title}, topic {operation.topic}: {fault}; nothing was written, plan again")


def config_risks(topic: str, data: CheckedConfig, replicas: int | None) -> Iterator[str]:
    """Yield the risks of the values that an operation sets; `replicas` is the least of a partition, if known."""
    config = {name: value for name, value in data.values.items() if value is not None}
    if boolean(config.get(UNCLEAN_ELECTION)):
        yield (
            f"topic {topic}: with {UNCLEAN_ELECTION}=true Kafka elects replicas that are not in sync, which "
            "loses the records they lack; if no in-sync replica is live, it does so at once"
        )
    if replicas is not None and (whole_number(config.get(MIN_ISR)) or 0) > replicas:
        yield (
            f"topic {topic}: {MIN_ISR}={config[MIN_ISR]} with {pluralise(replicas, 'replica')}: acks=all "
            "writes will all fail"
        )


def needs_tiered_storage(operations: Sequence[Operation]) -> bool:
    """Return whether a plan sets or deletes a config that only a broker with tiered storage can validate."""
    return any(TIERED in checked_config(operation).values for operation in operations)


def configs_set_by(operation: Operation) -> dict[str, str]:
    """Return the configs that an operation sets."""
    return {name: value for name, value in checked_config(operation).values.items() if value is not None}


def checked_config(operation: Operation) -> CheckedConfig:
    """Return what an operation sets and deletes with the remarks on it; nothing for operations without configs."""
    if operation.kind == OperationKind.CREATE_TOPIC:
        return data_of(operation, CreatedTopic)
    return data_of(operation, AlteredConfig) if operation.kind == OperationKind.ALTER_CONFIG else CheckedConfig()
