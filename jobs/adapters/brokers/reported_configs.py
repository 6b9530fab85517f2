"""Broker settings and API versions, which ZooKeeper does not store; they are requested from each broker.

Corresponds to `KafkaConfig`, `DynamicBrokerConfig` and ApiVersions. Only the names in `broker_config_defaults` are
requested and stored, so secrets never are. A broker that does not answer gets Kafka's defaults, marked as assumed.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from kafka.admin import ConfigResourceType
from kafka.errors import for_code
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.api_key import ApiKey
from kafka.protocol.metadata import ApiVersionsRequest

from jobs.adapters.brokers.admin_client import read_properties
from jobs.adapters.brokers.fanout import Ask, ask_brokers
from schemas.broker_config_defaults import (
    APIS,
    DEFAULTS,
    KAFKA_DEFAULTS,
    VERSION_PREFIX,
    BrokerSettings,
    Overrides,
    stored_settings,
    version_name,
)
from schemas.response_codes import NO_ERROR
from schemas.rows import Broker, BrokerConfig
from schemas.topic_configs import parsed

BROKER_TIMEOUT_SECONDS: Final = 2.0
"""Seconds that one broker may take to return its configs; a healthy broker takes a hundredth of it.

Up to MAX_CONNECTIONS brokers of `fanout` are asked at the same time, so this also bounds the whole."""


def read_broker_configs(
    brokers: Sequence[Broker],
    command_config: Path | None,
    overrides: Overrides,
    timeout_seconds: float,
    broker_timeout: float = BROKER_TIMEOUT_SECONDS,
    *,
    defaults: Mapping[str, str | None] = DEFAULTS,
) -> tuple[list[BrokerConfig], dict[int, str]]:
    """Request settings and versions from every broker in parallel.

    `brokers` are rows of BROKERS. Return rows of BROKER_CONFIGS without snapshot id, one per broker and name, in order,
    and the reasons why brokers did not answer, by broker id. `timeout_seconds` bounds the whole and `broker_timeout`
    one broker. `defaults` has the names that get a row. For a name that a broker does not return, the value is its
    dynamic override, else the default, marked as assumed. Raise UsageError for an invalid client.properties; a failing
    broker raises nothing.
    """
    names = {name: None for name in (*KAFKA_DEFAULTS, *defaults) if not name.startswith(VERSION_PREFIX)}
    responses, failures = ask_brokers(
        brokers,
        read_properties(command_config),
        timeout_seconds,
        partial(_ask, [*names]),
        broker_timeout=broker_timeout,
    )
    ids = sorted({broker.broker_id for broker in brokers})
    rows = [row for broker_id in ids for row in _rows(broker_id, responses.get(broker_id, {}), overrides, defaults)]
    return rows, failures


def _rows(
    broker_id: int, settings: BrokerSettings, overrides: Overrides, defaults: Mapping[str, str | None]
) -> Iterator[BrokerConfig]:
    overridden = {**stored_settings(overrides.get(None, {})), **stored_settings(overrides.get(broker_id, {}))}
    read = {name: value for name, value in overridden.items() if value is not None}
    values = {name: None if value is None else parsed(value) for name, value in {**read, **settings}.items()}
    for name, default in defaults.items():
        assumed = name not in values
        yield BrokerConfig(broker_id=broker_id, name=name, value=values.get(name, default), assumed=assumed)


def _ask(names: Sequence[str], ask: Ask, broker: Broker) -> BrokerSettings:
    """Ask one broker for its versions, and for its settings, which it may refuse."""
    settings = _versions(ask(ApiVersionsRequest(max_version=2)))
    # any error costs only this broker's settings
    with suppress(Exception):
        settings |= _settings(_described(ask, broker, names), names)
    return settings


def _described(ask: Ask, broker: Broker, names: Iterable[str]) -> Any:  # noqa: ANN401 - kafka-python is untyped
    resources = [(ConfigResourceType.BROKER, str(broker.broker_id), [*names])]
    return ask(DescribeConfigsRequest(resources=resources))


def _versions(response: Any) -> BrokerSettings:  # noqa: ANN401 - kafka-python is untyped
    highest = {api.api_key: str(api.max_version) for api in response.api_keys}
    return {version_name(api): highest.get(ApiKey[api].value) for api in APIS}


def _settings(response: Any, names: Container[str]) -> BrokerSettings:  # noqa: ANN401
    """Return the requested settings; raise the broker's error if it refuses them or has another id."""
    (result,) = response.results
    if result.error_code != NO_ERROR:
        raise for_code(result.error_code)
    return {config.name: config.value for config in result.configs if config.name in names}
