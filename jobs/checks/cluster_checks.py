"""Checks of ZooKeeper and KRaft clusters alike: clock, brokers, racks, configs and the history of snapshots."""

import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Final

from jobs.adapters.brokers.fanout import NO_RESPONSE
from jobs.adapters.brokers.permission_refusal import NEEDS
from jobs.adapters.delta.warehouse import Warehouse
from jobs.checks.check_results import CheckResult, Checks
from jobs.core.errors import SurveyorError
from jobs.core.option_sources import COMMAND_CONFIG, option_name
from jobs.repositories.racks import mixed_racks
from jobs.repositories.snapshots import live_brokers_as_of, other_cluster
from jobs.repositories.warehouse_status import warehouse_status_if_readable
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import command_line
from schemas.metadata_names import MetadataNames
from schemas.rows import Broker
from schemas.text import join_ids, pluralise

CLOCK_WARNING_SECONDS: Final = 2.0
"""Seconds by which two clocks may differ."""

SET_CLOCK: Final = "set this machine's clock: ages of snapshots and plans are computed with it"


def see_status(settings: Settings) -> str:
    """Advise to look at what is due."""
    return f"run `{command_line(settings, 'status')}` to see what is due"


def quarantine_advice(settings: Settings) -> str:
    """Advise to store, and then to show, what is not understood."""
    return f"{command_line(settings, 'snapshot')}; {command_line(settings, 'show', 'quarantine')}"


def clock_skew(theirs: float | None, before: float, after: float, owner: str) -> CheckResult | None:
    """Compare a clock that was read between two times of ours; return None if it does not differ, or is unknown.

    >>> clock_skew(100.0, 95.0, 95.5, "ZooKeeper's").found
    "4 s behind ZooKeeper's"
    >>> clock_skew(100.0, 103.0, 103.5, "ZooKeeper's").found
    "3 s ahead of ZooKeeper's"
    >>> clock_skew(100.0, 99.0, 101.0, "ZooKeeper's")
    """
    if theirs is None:
        return None
    if theirs - after > CLOCK_WARNING_SECONDS:
        return CheckResult.warning("clock", f"{theirs - after:.0f} s behind {owner}", SET_CLOCK)
    if before - theirs > CLOCK_WARNING_SECONDS:
        return CheckResult.warning("clock", f"{before - theirs:.0f} s ahead of {owner}", SET_CLOCK)
    return None


def missing_brokers(warehouse: Warehouse, live: Collection[int]) -> list[int]:
    """Return the brokers that were live in the last snapshot, and are not now; none without a snapshot."""
    with suppress(SurveyorError):  # the tables have separate findings
        snapshot = warehouse_status_if_readable(warehouse).snapshot
        if snapshot:
            return sorted({row.broker_id for row in live_brokers_as_of(warehouse, snapshot)}.difference(live))
    return []


_REMEDIES: Final[Sequence[tuple[str, str]]] = (
    (rf"{NEEDS}|Authorization", "grant that permission to the user of {command_config}"),
    (r"certificate|TLS|SSL|security\.protocol", "correct security.protocol and ssl.* in {command_config}"),
    (r"Authentication|SASL|sasl|token|ticket|keytab", "correct the user and the credentials in {command_config}"),
    (
        r"ECONNREFUSED|Connection refused|ConnectionRefused",
        "start the broker, or correct its address: the host answers, and no process listens at that port",
    ),
    (
        r"DNS|Name or service|name resolution|getaddrinfo|nodename",
        "correct the host name in the address (advertised.listeners of the broker), or the DNS of this host",
    ),
    (
        r"no answer|not answer|in time|timed out|Timeout",
        "check that the broker's process responds, and that no firewall drops packets from here",
    ),
    (
        r"disconnected|closed|reset|unreachable|EOF|no route",
        "check the route from here and the broker's log: a listener of another security.protocol closes connections",
    ),
)
"""Patterns of the reasons why a broker did not answer, and what helps; the first that matches counts."""


def remedies(reasons: Iterable[str]) -> str:
    """Return what helps against these reasons why brokers did not answer, each remedy once.

    >>> [remedies([reason]).partition(",")[0] for reason in ("111 ECONNREFUSED", "DNS Resolution failure")]
    ['start the broker', 'correct the host name in the address (advertised.listeners of the broker)']
    """
    found = dict.fromkeys(
        next((advice for pattern, advice in _REMEDIES if re.search(pattern, reason)), "see the log of the broker")
        for reason in reasons
    )
    return "; ".join(found).format(command_config=option_name(COMMAND_CONFIG))


def rack_result(brokers: Sequence[Broker], names: MetadataNames) -> Checks:
    """Check whether all live brokers have a rack, or none."""
    if mixed := mixed_racks({row.broker_id: row.rack for row in brokers if row.understood}, names):
        found, _, advice = mixed.partition("; ")
        yield CheckResult.warning("racks", found, advice)


def returned_configs(
    brokers: Sequence[Broker], silent: dict[int, str | None], assumed: int, seconds: float
) -> CheckResult:
    """Return whether brokers returned their configs.

    `silent` has the brokers that did not within `seconds`, with the reason if it is known; `assumed` is the number of
    settings for which Kafka's defaults are assumed then.
    """
    if not silent:
        return CheckResult.fine("settings", f"{pluralise(len(brokers), 'broker')} returned their configs")
    failure = next((f" ({reason})" for reason in silent.values() if reason is not None), " (though asked)")
    return CheckResult.warning(
        "settings",
        f"{len(silent)} of {pluralise(len(brokers), 'broker')} did not return their configs within "
        f"{seconds:g} s: {join_ids(sorted(silent))}{failure}",
        f"Kafka's defaults are assumed ({assumed} names); "
        + remedies(reason or NO_RESPONSE for reason in silent.values()),
    )


def history_results(settings: Settings, cluster_id: str | None) -> Checks:
    """Check whether the snapshots under the cluster's name are of another cluster; if so, new ones are refused."""
    message = None
    with suppress(SurveyorError):  # the tables have separate findings
        message = other_cluster(settings.warehouse, cluster_id, settings.address)
    if message:
        yield CheckResult.fault("history", message)
