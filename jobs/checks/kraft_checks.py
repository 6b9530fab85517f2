"""Checks of a KRaft cluster: its addresses, quorum, versions, permissions, clock and brokers. Nothing is changed.

They are a part of `surveyor doctor`. There is no finding on ZooKeeper or batch mode, such as on znodes, their ACLs and
control requests.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from jobs.adapters.brokers.admin_client import read_properties
from jobs.adapters.brokers.permission_refusal import NEEDS
from jobs.adapters.brokers.reported_configs import read_broker_configs
from jobs.adapters.clusters.interface import Cluster, LiveReading
from jobs.adapters.clusters.kraft import bootstrap_addresses
from jobs.adapters.kraft.doctor_requests import SupportedVersions, probe_addresses, read_supported_versions
from jobs.adapters.kraft.session import Quorum, read_from_broker
from jobs.checks.check_results import CheckResult, Checks, CheckStatus, run_guarded
from jobs.checks.cluster_checks import (
    clock_skew,
    history_results,
    missing_brokers,
    quarantine_advice,
    rack_result,
    remedies,
    returned_configs,
    see_status,
)
from jobs.core.option_sources import BOOTSTRAP_SERVERS, option_name
from jobs.core.units import format_duration
from jobs.runtime.pace import Clock
from jobs.runtime.settings import Settings
from jobs.snapshots.cluster_view import PARTITION, view_of_reading
from planner.rules.quorum import MAX_VOTER_LAG_MS, majority
from schemas.broker_config_defaults import KRAFT_DEFAULTS
from schemas.rows import Broker, Voter
from schemas.text import abbreviate, join_ids, pluralise
from schemas.topic_configs import MIN_ISR

ON_CLUSTER: Final = "DESCRIBE on the cluster"
"""The permission without which no partition is understood."""

_NEEDED: Final = re.compile(rf"{NEEDS} (\w+ on the \w+)")

GRANT: Final = (
    "kafka-acls --add --allow-principal User:NAME --operation Describe --operation DescribeConfigs --cluster --topic "
    "'*' grants all that reading needs; docs/kraft.md lists what each permission is for"
)
START_QUORUM: Final = "start the controllers; kafka-metadata-quorum describe --status shows what a broker knows of them"


def check_kraft(settings: Settings) -> Checks:
    """Run all checks of the cluster."""
    addresses = bootstrap_addresses(settings.address)
    properties = read_properties(settings.conf.command_config)
    seconds, faults = probe_addresses(addresses, properties, settings.pace.probe)
    yield reachability_result(addresses, seconds, faults)
    if not seconds:
        return
    answering = [address for address in addresses if address in seconds]
    yield from run_guarded("quorum", partial(_quorum, answering, properties, settings.pace.clock))
    yield from run_guarded("brokers", partial(_brokers, settings, properties))


def reachability_result(
    addresses: Sequence[str], seconds: Mapping[str, float], faults: Mapping[str, str]
) -> CheckResult:
    """Report which addresses answered, after how many `seconds`, and why others did not."""
    check = "reachability"
    failed = "; ".join(f"{address}: {faults[address]}" for address in addresses if address in faults)
    if not seconds:
        advice = f"check the addresses of {option_name(BOOTSTRAP_SERVERS)}; {remedies(faults.values())}"
        return CheckResult.fault(check, f"no broker answered: {failed}", advice)
    answering = f"{len(seconds)} of {len(addresses)} addresses answered"
    if faults:
        advice = f"{remedies(faults.values())}; or take its address out of {option_name(BOOTSTRAP_SERVERS)}"
        return CheckResult.warning(check, f"{answering}; {failed}", advice)
    return CheckResult.fine(check, f"{answering}, the last one after {max(seconds.values()) * 1000:.0f} ms")


def _quorum(addresses: Sequence[str], properties: dict[str, str], clock: Clock) -> Checks:
    before = clock.time()
    session = read_from_broker(addresses, properties, lambda session: session)
    after = clock.time()
    quorum = session.quorum
    if quorum is None:
        if not session.has_controller:
            yield CheckResult.fault("quorum", str(session.quorum_fault), START_QUORUM)
        return  # else it is a missing permission, which has a separate check
    yield quorum_result(quorum)
    theirs = None if quorum.leader_time_ms is None else quorum.leader_time_ms / 1000
    if skew := clock_skew(theirs, before, after, "that of the quorum's leader"):
        yield skew
    else:
        known = "as that of the quorum's leader"
        found = known if theirs is not None else "the brokers report no time to compare with"
        yield CheckResult.fine("clock", found)


def quorum_result(quorum: Quorum) -> CheckResult:
    """Report which voters are up to date; a voter that is not may be down.

    >>> voters = [Voter(voter_id=1, lag=0, lag_ms=0), Voter(voter_id=2, lag=81, lag_ms=90_000)]
    >>> quorum_result(Quorum(leader_id=1, leader_epoch=7, high_watermark=9, voters=voters)).found
    'leader 1, epoch 7; of 2 voters 2 are needed; not up to date: 2 (81 records and 90 s behind)'
    """
    has_times = any(voter.lag_ms is not None for voter in quorum.voters)  # since Kafka 3.3
    lagging = [
        voter for voter in quorum.voters if (has_times if voter.lag_ms is None else voter.lag_ms > MAX_VOTER_LAG_MS)
    ]
    needed = majority(len(quorum.voters))
    leader = f"leader {quorum.leader_id}, epoch {quorum.leader_epoch}"
    of_voters = f"of {pluralise(len(quorum.voters), 'voter')} {needed} {'are' if needed > 1 else 'is'} needed"
    if lagging:
        found = f"{leader}; {of_voters}; not up to date: {', '.join(map(_lag, lagging))}"
        advice = f"start {join_ids([voter.voter_id for voter in lagging])}, or see why; kafka-metadata-quorum "
        return CheckResult.warning("quorum", found, f"{advice}describe --replication shows the lag")
    state = "all are up to date" if has_times else "unknown whether they are up to date"
    return CheckResult.fine("quorum", f"{leader}; {of_voters}; {state}")


def _lag(voter: Voter) -> str:
    """Say how far a voter is behind; a voter that was down when the leader was elected has never caught up with it."""
    if voter.lag_ms is None:
        return f"{voter.voter_id} (never caught up with this leader)"
    records = "" if voter.lag is None else f"{voter.lag} records and "
    return f"{voter.voter_id} ({records}{format_duration(voter.lag_ms / 1000)} behind)"


def _brokers(settings: Settings, properties: dict[str, str]) -> Checks:
    with settings.connect() as cluster:
        reading = cluster.read_live(None, PARTITION)
        metadata = reading.metadata
        yield from run_guarded("history", partial(history_results, settings, metadata.cluster_id))
        yield _registered(settings, metadata.brokers)
        yield from rack_result(metadata.live_brokers, metadata.names)
        supported, _ = read_supported_versions(metadata.live_brokers, properties, settings.pace.probe)
        if supported:  # brokers that do not answer have a separate check
            yield version_result(supported, metadata.metadata_version)
        yield from permission_results(settings, reading)
        if warnings := view_of_reading(reading).throttle_warnings:
            advice = (
                "`surveyor status` and `cancel --throttles` do not include these throttles; "
                f"{remedies(reading.unread_broker_configs.values())}"
            )
            yield CheckResult.warning("throttles", "; ".join(warnings), advice)
        yield _settings(settings, cluster)


def _registered(settings: Settings, brokers: Sequence[Broker]) -> CheckResult:
    live = [row.broker_id for row in brokers if row.is_live]
    fenced = [row.broker_id for row in brokers if not row.is_live]
    missing = [broker for broker in missing_brokers(settings.warehouse, live) if broker not in fenced]
    found = f"{len(live)} live"
    if fenced:
        found += f"; fenced: {join_ids(fenced)}"
    if missing:
        found += f"; in the last snapshot, but not live: {join_ids(missing)}"
    if fenced or missing:
        return CheckResult.warning("brokers", found, see_status(settings))
    return CheckResult.fine("brokers", found)


def version_result(supported: Mapping[int, SupportedVersions], level: int | None) -> CheckResult:
    """Compare what brokers support; `level` is the finalized one of metadata.version.

    >>> old, new = (SupportedVersions(metadata_version=level, has_pages=level > 19) for level in (19, 25))
    >>> version_result({1: old, 2: old}, 19).found
    'metadata.version 19; all brokers support up to 19; before Kafka 3.8, without eligible leader replicas: 1, 2'
    >>> version_result({1: old, 2: new}, 19).found
    'metadata.version 19; brokers support up to 19 or 25'
    """
    highest = {row.metadata_version for row in supported.values() if row.metadata_version is not None}
    found = f"metadata.version {'not known' if level is None else level}"
    if len(highest) > 1:
        found += f"; brokers support up to {' or '.join(map(str, sorted(highest)))}"
        advice = "a rolling upgrade is in progress: finish it, then plan"
        return CheckResult.warning("versions", found, advice)
    if highest:
        found += f"; all brokers support up to {max(highest)}"
    if without := sorted(broker for broker, row in supported.items() if not row.has_pages):
        found += f"; before Kafka 3.8, without eligible leader replicas: {join_ids(without)}"
    return CheckResult.fine("versions", found)


def permission_results(settings: Settings, reading: LiveReading) -> Checks:
    """Name the permissions that reading lacks, by the refusals; what is not understood for another reason is apart."""
    refusals = [(row.path, row.reason) for row in reading.quarantine]
    refusals += [*reading.unread_broker_configs.items()]
    lacking: dict[str, list[str]] = {}
    others = list[str]()
    for where, reason in refusals:
        needed = _NEEDED.search(reason)
        if needed:
            lacking.setdefault(needed[1], []).append(where)
        else:
            others.append(f"{where}: {reason}")
    if lacking:
        status = CheckStatus.FAULT if ON_CLUSTER in lacking else CheckStatus.WARNING
        found = "; ".join(f"{permission} ({abbreviate(some)})" for permission, some in sorted(lacking.items()))
        yield CheckResult("permissions", status, f"missing: {found}", GRANT)
    else:
        yield CheckResult.fine("permissions", "none is missing that reading needs")
    if others:
        found = f"not understood: {abbreviate(others)}"
        yield CheckResult.warning("reading", found, quarantine_advice(settings))


def _settings(settings: Settings, cluster: Cluster) -> CheckResult:
    brokers, known = cluster.read_broker_settings()
    alive = [row for row in brokers if row.is_live]
    configs, why_not = read_broker_configs(
        alive, settings.conf.command_config, known.overrides, settings.pace.probe, defaults=known.defaults
    )
    silent = {row.broker_id: why_not.get(row.broker_id) for row in configs if row.assumed and row.name == MIN_ISR}
    return returned_configs(alive, silent, len(KRAFT_DEFAULTS), settings.pace.probe)
