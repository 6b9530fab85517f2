"""By which protocol brokers run: whether `surveyor control` serves all that they would ask of their controller."""

import re
from collections.abc import Iterable
from typing import Final

from jobs.adapters.brokers.configs import read_broker_configs, read_overrides
from jobs.adapters.delta.warehouse import Row
from jobs.adapters.zookeeper.cluster import read_cluster
from jobs.adapters.zookeeper.connection import connected
from jobs.core.errors import RefusedError
from jobs.runtime.console import log
from jobs.runtime.progress import progress
from jobs.runtime.settings import Settings
from schemas.topic_configs import boolean

IBP: Final = "inter.broker.protocol.version"
_SHUTDOWN: Final = "controlled.shutdown.enable"
_ALTER_ISR_SINCE: Final = (2, 7)
"""From 2.7-IV2 on, which 2.7 alone means, brokers ask the controller for changes of ISRs; this one serves no API."""

CONFIG_TIMEOUT_SECONDS: Final = 20.0
"""Seconds that brokers have that did not tell their settings to the snapshot."""


def unsupported_protocols(configs: Iterable[Row]) -> dict[int, str | None]:
    """Brokers that ask their controller for what is not served here, and the protocol that they say they run by."""
    protocols = {row["broker_id"]: row["value"] for row in configs if row["name"] == IBP and not row["assumed"]}
    return {broker: value for broker, value in protocols.items() if _uses_alter_isr(value)}


def refuse_protocols(configs: list[Row]) -> None:
    """Refuse to be the controller of brokers that would wait for ever for what it does not serve."""
    protocols = unsupported_protocols(configs)
    newer = sorted(protocols)
    if newer:
        raise RefusedError(
            f"brokers {', '.join(map(str, newer))} run with {IBP} {protocols[newer[0]]}: from 2.7-IV2 on they ask the "
            "controller for changes of ISRs, and from 3.0 on for producer ids, which `surveyor control` does not "
            f"serve; set {IBP}=2.6 on all brokers, or let Kafka's controller be and use `surveyor reconcile`",
        )
    waiting = sorted(
        row["broker_id"]
        for row in configs
        if row["name"] == _SHUTDOWN and not row["assumed"] and boolean(row["value"]) is not False
    )
    if waiting:
        log(
            f"surveyor: brokers {', '.join(map(str, waiting))} will wait some 15 s for a controlled shutdown that is "
            f"not served; drain them first, or set {_SHUTDOWN}=false",
        )


def complete_configs(configs: list[Row], settings: Settings, allowed: frozenset[int]) -> list[Row]:
    """Return the settings of all registered brokers; ask those that have not told their protocol once more.

    A snapshot gives each broker little time, and a busy one, or one that has come since, is no reason to stay out of
    office. Shapes: rows of BROKER_CONFIGS in and out; brokers in `allowed` are not asked.
    Raises RefusedError where a broker says nothing, or that it runs by a protocol that is not served.
    """
    with connected(settings.zookeeper) as client:
        brokers = read_cluster(client, settings.zookeeper).brokers
        overrides, _ = read_overrides(client)
    told = _configs_of(configs) | allowed
    untold = [broker for broker in brokers if broker["broker_id"] not in told]
    if not untold:
        return configs
    ids = {broker["broker_id"] for broker in untold}
    with progress(f"asking brokers {', '.join(map(str, sorted(ids)))} for their settings"):
        answers = read_broker_configs(
            untold, settings.conf.command_config, overrides, CONFIG_TIMEOUT_SECONDS, CONFIG_TIMEOUT_SECONDS
        )
    _refuse_unanswered(ids - _configs_of(answers))
    refuse_protocols(answers)
    return [*(row for row in configs if row["broker_id"] not in ids), *answers]


def _configs_of(configs: list[Row]) -> set[int]:
    return {row["broker_id"] for row in configs if row["name"] == IBP and not row["assumed"]}


def _refuse_unanswered(untold: set[int]) -> None:
    """Refuse where a broker did not say by which protocol it runs: it may be one that is not served."""
    if untold:
        ids = ",".join(map(str, sorted(untold)))
        raise RefusedError(
            f"brokers {ids} did not tell their {IBP}: from 2.7-IV2 on they could not change ISRs any more; nothing "
            f"was written. Give a --command-config by which they answer, or --allow-silent {ids} if you know that it "
            "is older",
        )


def _uses_alter_isr(protocol: str | None) -> bool:
    """Tell whether brokers of this inter.broker.protocol.version leave ISRs to the controller.

    >>> [_uses_alter_isr(value) for value in ("2.6", "2.7-IV1", "2.7-IV2", "2.7", "3.9-IV0", None)]
    [False, False, True, True, True, True]
    """
    match = re.match(r"(\d+)\.(\d+)(?:-IV(\d+))?", protocol or "")
    if match is None:
        return True
    version = int(match[1]), int(match[2])
    early = version == _ALTER_ISR_SINCE and match[3] is not None and int(match[3]) <= 1
    return version >= _ALTER_ISR_SINCE and not early
