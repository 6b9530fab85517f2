"""Settings of brokers that decide whether they can migrate to KRaft, requested from each broker.

Corresponds to `KafkaConfig.validateValues` of Kafka 3.9. The release of a broker is the default of its
inter.broker.protocol.version, which DescribeConfigs returns as a synonym.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kafka.admin import ConfigResourceType
from kafka.errors import for_code
from kafka.protocol.admin import DescribeConfigsRequest

from jobs.adapters.brokers.admin_client import read_properties
from jobs.adapters.brokers.fanout import Ask, ask_brokers
from schemas.broker_config_names import AUTHORIZER, CONTROL_PLANE_LISTENER, PROTOCOL_VERSION
from schemas.response_codes import NO_ERROR
from schemas.rows import Broker

BROKER_ID: Final = "broker.id"
LOG_DIR, LOG_DIRS = "log.dir", "log.dirs"
MIGRATION_ENABLED: Final = "zookeeper.metadata.migration.enable"

_NAMES: Final = (PROTOCOL_VERSION, BROKER_ID, LOG_DIR, LOG_DIRS, CONTROL_PLANE_LISTENER, AUTHORIZER, MIGRATION_ENABLED)
_DEFAULT: Final = 5
"""`ConfigSource.DEFAULT_CONFIG`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationConfig:
    """Configs that one broker returned; a value is None if it is not set, or unknown to the broker's release."""

    protocol: str | None
    """Its inter.broker.protocol.version."""
    release: str | None
    """The latest inter.broker.protocol.version of its release."""
    broker_id: str | None
    log_dirs: int
    control_plane: str | None = None
    authorizer: str | None = None
    enabled: bool = False
    """Whether zookeeper.metadata.migration.enable is set."""


def read_migration_configs(
    brokers: Sequence[Broker], command_config: Path | None, seconds: float
) -> tuple[dict[int, MigrationConfig], dict[int, str]]:
    """Ask all brokers at the same time, for at most `seconds`; return their settings, and why others are missing."""
    return ask_brokers(brokers, read_properties(command_config), seconds, _ask)


def _ask(ask: Ask, broker: Broker) -> MigrationConfig:
    resources = [(ConfigResourceType.BROKER, str(broker.broker_id), list(_NAMES))]
    response = ask(DescribeConfigsRequest(resources=resources, include_synonyms=True))
    (result,) = response.results
    if result.error_code != NO_ERROR:
        raise for_code(result.error_code)
    return _config({config.name: config for config in result.configs})


def _config(configs: dict[str, Any]) -> MigrationConfig:
    values = {name: config.value or None for name, config in configs.items()}
    synonyms = configs[PROTOCOL_VERSION].synonyms if PROTOCOL_VERSION in configs else ()
    default = next((synonym.value for synonym in synonyms if synonym.source == _DEFAULT), None)
    folders = values.get(LOG_DIRS) or values.get(LOG_DIR) or ""
    return MigrationConfig(
        protocol=values.get(PROTOCOL_VERSION),
        release=default,
        broker_id=values.get(BROKER_ID),
        log_dirs=len([folder for folder in folders.split(",") if folder.strip()]),
        control_plane=values.get(CONTROL_PLANE_LISTENER),
        authorizer=values.get(AUTHORIZER),
        enabled=values.get(MIGRATION_ENABLED) == "true",
    )
