"""Validation of topic configs when a plan is made and again before a commit writes them.

In batch mode no broker validates what is written, and a broker fails on a value that it cannot parse. Kafka's
controller would refuse such a value, so it is refused early in admin mode too.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from jobs.core.errors import RefusedError
from schemas.enums import OperationKind
from schemas.rows import Operation
from schemas.topic_configs import TIERED, config_name_faults, conflicts, value_faults


def config_faults(config: Mapping[str, str], *, unknown_allowed: bool) -> Iterator[str]:
    """Return a message for each invalid name or value."""
    if not unknown_allowed:
        yield from (f"{fault}; --allow-unknown-config accepts it unchecked" for fault in config_name_faults(config))
    yield from value_faults(config)


def refuse_bad_configs(title: str, operations: Sequence[Operation]) -> None:
    """Raise RefusedError if a plan of any origin sets a config that Kafka would not accept."""
    for operation in operations:
        data = json.loads(operation.data)
        config = set_by(operation)
        unchecked = set(data.get("unknown", []))
        named = {name: value for name, value in config.items() if name not in unchecked}
        fault = next(config_faults(named, unknown_allowed=False), None)
        if fault is None and operation.kind == OperationKind.CREATE_TOPIC:
            fault = next(conflicts(config), None)
        if fault is not None:
            raise RefusedError(f"plan {title}, topic {operation.topic}: {fault}; nothing was written, plan again")


def tiered(operations: Sequence[Operation]) -> bool:
    """Whether a plan sets or deletes a config that only a broker with tiered storage can validate."""
    return any(TIERED in _configs(operation) for operation in operations)


def set_by(operation: Operation) -> dict[str, str]:
    """Return the configs that an operation sets."""
    return {name: value for name, value in _configs(operation).items() if value is not None}


def _configs(operation: Operation) -> dict[str, str | None]:
    data = json.loads(operation.data)
    where = {OperationKind.CREATE_TOPIC.value: "config", OperationKind.ALTER_CONFIG.value: "after"}
    configs: dict[str, str | None] = data.get(where.get(operation.kind, ""), {})
    return configs
