"""Which inter-broker protocol the brokers run, and whether `surveyor control` serves all requests of that protocol."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from kazoo.client import KazooClient

from jobs.adapters.brokers.reported_configs import read_broker_configs
from jobs.adapters.zookeeper.broker_overrides import read_overrides
from jobs.adapters.zookeeper.cluster_state import read_brokers
from jobs.adapters.zookeeper.connection import with_retries
from jobs.core.errors import RefusedError
from jobs.core.option_sources import COMMAND_CONFIG, option_name
from jobs.runtime.console import log
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from schemas.broker_config_defaults import DEFAULTS
from schemas.broker_config_names import PROTOCOL_VERSION
from schemas.inter_broker_protocol import Protocol
from schemas.rows import BrokerConfig
from schemas.text import join_ids
from schemas.topic_configs import boolean

_SHUTDOWN: Final = "controlled.shutdown.enable"
ALTER_ISR_SINCE: Final = Protocol(2, 7, 2)
"""First protocol version in which brokers ask the controller to change ISRs (AlterPartition)."""


def unsupported_protocols(configs: Iterable[BrokerConfig]) -> dict[int, str | None]:
    """Return the brokers whose protocol needs an API that is not served, each with its protocol version."""
    return {broker: value for broker, value in _protocols(configs).items() if _uses_alter_isr(value)}


def earliest_protocol(configs: Iterable[BrokerConfig], brokers: Collection[int]) -> Protocol | None:
    """Return the earliest protocol version of these brokers, None if a broker's version is unknown."""
    protocols = {broker: Protocol.parse(value) for broker, value in _protocols(configs).items()}
    versions = [protocols.get(broker) for broker in brokers]
    return None if not versions or None in versions else min(version for version in versions if version)


def _protocols(configs: Iterable[BrokerConfig]) -> dict[int, str | None]:
    return {row.broker_id: row.value for row in configs if row.name == PROTOCOL_VERSION and not row.assumed}


def refuse_protocols(configs: list[BrokerConfig]) -> None:
    """Raise RefusedError if some brokers would wait forever for requests that `surveyor control` does not serve."""
    protocols = unsupported_protocols(configs)
    unsupported = sorted(protocols)
    if unsupported:
        raise RefusedError(
            f"brokers {join_ids(unsupported)} run with {PROTOCOL_VERSION} {protocols[unsupported[0]]}: from 2.7-IV2 on "
            "they ask the controller to change ISRs, and from 3.0 on for producer ids; give --listen HOST:PORT, where "
            f"they can reach this process, or set {PROTOCOL_VERSION}=2.6 on all brokers, or keep Kafka's controller "
            "and use `surveyor reconcile`",
        )
    waiting = sorted(
        row.broker_id
        for row in configs
        if row.name == _SHUTDOWN and not row.assumed and boolean(row.value) is not False
    )
    if waiting:
        log(
            f"surveyor: brokers {join_ids(waiting)} will wait about 15 s for a controlled shutdown, which "
            f"is served with --listen only; drain them before you stop them, or set {_SHUTDOWN}=false",
        )


def complete_configs(
    configs: list[BrokerConfig],
    settings: Settings,
    client: KazooClient,
    allowed: frozenset[int],
    *,
    is_serving: bool = False,
    defaults: Mapping[str, str | None] = DEFAULTS,
) -> list[BrokerConfig]:
    """Return the configs of all registered brokers, after asking those without a known protocol again.

    The first request gives each broker little time. A busy broker, or one that registered since, does not prevent the
    take-over. `configs` and the result have the columns of BROKER_CONFIGS; brokers in `allowed` are not
    asked. `defaults` has the names that get a row. Without `is_serving` raises RefusedError if a broker does not
    respond, or runs a protocol whose requests are not served.
    """
    with_configs = _configs_of(configs) | allowed
    missing = [broker for broker in with_retries(lambda: read_brokers(client)) if broker.broker_id not in with_configs]
    if not missing:
        return configs
    overrides, _ = with_retries(lambda: read_overrides(client))
    ids = {broker.broker_id for broker in missing}
    with progress(f"asking brokers {join_ids(sorted(ids))} for their configs"):
        responded, _ = read_broker_configs(
            missing,
            settings.conf.command_config,
            overrides,
            settings.pace.configs_again,
            settings.pace.configs_again,
            defaults=defaults,
        )
    if not is_serving:
        _refuse_silent(ids - _configs_of(responded))
        refuse_protocols(responded)
    return [*(row for row in configs if row.broker_id not in ids), *responded]


def _configs_of(configs: list[BrokerConfig]) -> set[int]:
    return {*_protocols(configs)}


def _refuse_silent(silent: set[int]) -> None:
    """Raise RefusedError if a broker has not returned its protocol version: it may be one that is not served."""
    if silent:
        ids = ",".join(map(str, sorted(silent)))
        raise RefusedError(
            f"brokers {ids} did not return their {PROTOCOL_VERSION}: from 2.7-IV2 on they could no longer change ISRs; "
            f"nothing was written. Name a user that they accept in {option_name(COMMAND_CONFIG)}, or give --listen "
            f"HOST:PORT to receive their requests, or --allow-silent {ids} if their version is older",
        )


def _uses_alter_isr(protocol: str | None) -> bool:
    """Return whether brokers of this inter.broker.protocol.version leave changes of ISRs to the controller.

    >>> [_uses_alter_isr(value) for value in ("2.6", "2.7-IV1", "2.7-IV2", "2.7", "3.9-IV0", None)]
    [False, False, True, True, True, True]
    """
    version = Protocol.parse(protocol)
    return version is None or version >= ALTER_ISR_SINCE
