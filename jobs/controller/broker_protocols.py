"""Which inter-broker protocol the brokers run, and whether `surveyor control` serves all requests of that protocol."""

import re
from collections.abc import Iterable
from typing import Final

from kazoo.client import KazooClient

from jobs.adapters.brokers.configs import read_broker_configs, read_overrides
from jobs.adapters.delta.warehouse import Row
from jobs.adapters.zookeeper.cluster import read_brokers
from jobs.adapters.zookeeper.connection import with_retries
from jobs.core.errors import RefusedError
from jobs.runtime.console import log
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from schemas.topic_configs import boolean

IBP: Final = "inter.broker.protocol.version"
_SHUTDOWN: Final = "controlled.shutdown.enable"
_ALTER_ISR_SINCE: Final = (2, 7)
"""First protocol version with AlterIsr: from 2.7-IV2 (which a plain "2.7" means) brokers ask the controller to change
ISRs. `surveyor control` does not serve that API.
"""

CONFIG_TIMEOUT_SECONDS: Final = 20.0
"""Seconds for the brokers that returned no configs at first to return them now."""


def unsupported_protocols(configs: Iterable[Row]) -> dict[int, str | None]:
    """Return the brokers whose protocol needs an API that is not served, each with its protocol version."""
    protocols = {row["broker_id"]: row["value"] for row in configs if row["name"] == IBP and not row["assumed"]}
    return {broker: value for broker, value in protocols.items() if _uses_alter_isr(value)}


def refuse_protocols(configs: list[Row]) -> None:
    """Raise RefusedError if some brokers would wait forever for requests that `surveyor control` does not serve."""
    protocols = unsupported_protocols(configs)
    unsupported = sorted(protocols)
    if unsupported:
        raise RefusedError(
            f"brokers {', '.join(map(str, unsupported))} run with {IBP} {protocols[unsupported[0]]}: from 2.7-IV2 on "
            "they ask the controller to change ISRs, and from 3.0 on for producer ids, which `surveyor control` does "
            f"not serve; set {IBP}=2.6 on all brokers, or keep Kafka's controller and use `surveyor reconcile`",
        )
    waiting = sorted(
        row["broker_id"]
        for row in configs
        if row["name"] == _SHUTDOWN and not row["assumed"] and boolean(row["value"]) is not False
    )
    if waiting:
        log(
            f"surveyor: brokers {', '.join(map(str, waiting))} will wait about 15 s for a controlled shutdown, which "
            f"is not served; drain them before you stop them, or set {_SHUTDOWN}=false",
        )


def complete_configs(configs: list[Row], settings: Settings, client: KazooClient, allowed: frozenset[int]) -> list[Row]:
    """Return the configs of all registered brokers, after asking those without a known protocol again.

    The first request gives each broker little time. A busy broker, or one that registered since, is no reason to refuse
    the take-over. `configs` and the result have the columns of BROKER_CONFIGS; brokers in `allowed` are not
    asked. Raises RefusedError if a broker does not answer, or runs a protocol that is not served.
    """
    known = _configs_of(configs) | allowed
    missing = [broker for broker in with_retries(lambda: read_brokers(client)) if broker.broker_id not in known]
    if not missing:
        return configs
    overrides, _ = with_retries(lambda: read_overrides(client))
    ids = {broker.broker_id for broker in missing}
    with progress(f"asking brokers {', '.join(map(str, sorted(ids)))} for their settings"):
        answered = read_broker_configs(
            missing, settings.conf.command_config, overrides, CONFIG_TIMEOUT_SECONDS, CONFIG_TIMEOUT_SECONDS
        )
    _refuse_unanswered(ids - _configs_of(answered))
    refuse_protocols(answered)
    return [*(row for row in configs if row["broker_id"] not in ids), *answered]


def _configs_of(configs: list[Row]) -> set[int]:
    return {row["broker_id"] for row in configs if row["name"] == IBP and not row["assumed"]}


def _refuse_unanswered(silent: set[int]) -> None:
    """Raise RefusedError if a broker has not returned its protocol version: it may be one that is not served."""
    if silent:
        ids = ",".join(map(str, sorted(silent)))
        raise RefusedError(
            f"brokers {ids} did not return their {IBP}: from 2.7-IV2 on they could no longer change ISRs; nothing "
            f"was written. Give a --command-config that they accept, or --allow-silent {ids} if you know that "
            "their version is older",
        )


def _uses_alter_isr(protocol: str | None) -> bool:
    """Whether brokers of this inter.broker.protocol.version leave changes of ISRs to the controller.

    >>> [_uses_alter_isr(value) for value in ("2.6", "2.7-IV1", "2.7-IV2", "2.7", "3.9-IV0", None)]
    [False, False, True, True, True, True]
    """
    match = re.match(r"(\d+)\.(\d+)(?:-IV(\d+))?", protocol or "")
    if match is None:
        return True
    version = int(match[1]), int(match[2])
    early = version == _ALTER_ISR_SINCE and match[3] is not None and int(match[3]) <= 1
    return version >= _ALTER_ISR_SINCE and not early
