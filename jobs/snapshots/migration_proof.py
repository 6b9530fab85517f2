"""Metadata that a migration to KRaft lost or changed, found by comparing a snapshot before it with one after it.

A migration must keep topics, their ids and configs, partitions with their replicas in order, the members of each ISR,
and the settings of brokers; leader epochs never go back, as followers truncate their logs by them. Leaders, their
later epochs, the controller and endpoints may change, as brokers restart several times. A partition that had a leader
must have one. After a rollback the controller's epoch must not be earlier than the epoch of any state.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.arrow_rows import values_of
from jobs.core.errors import UsageError
from jobs.repositories.controller_epochs import epoch_regression_message, later_states_message
from jobs.repositories.snapshots import PARTITION, rows_as_of, table_as_of
from jobs.snapshots.diff import Difference, differences
from schemas.broker_config_defaults import VERSION_PREFIX
from schemas.broker_config_names import CONTROL_PLANE_LISTENER, PROTOCOL_VERSION
from schemas.enums import NO_CONTROLLER, PartitionState, SecurityKind
from schemas.rows import BrokerConfig, QuarantinedZnode, SecurityEntry, Snapshot

MAY_CHANGE: Final = frozenset(
    {
        *("controller_id", "controller_epoch", "broker_epoch", "endpoints", "understood"),
        "leader",
    }
)
"""Columns that a migration or the restarts during it change."""

NOT_CARRIED: Final = frozenset(
    {
        *(CONTROL_PLANE_LISTENER, PROTOCOL_VERSION, "zookeeper.session.timeout.ms"),
        *("inter.broker.listener.name", "security.inter.broker.protocol"),
    }
)
"""Settings of brokers that mean nothing in KRaft, or that the procedure of a migration changes."""

COUNTS: Final = {"acls": "ACLs", "quotas": "quotas", "scram_credentials": "SCRAM credentials"}
"""Columns of SNAPSHOTS that count what no table has in full."""

KINDS: Final = {"acls": SecurityKind.ACL, "quotas": SecurityKind.QUOTA, "scram_credentials": SecurityKind.SCRAM}
"""Counted kinds, as in SECURITY."""

DIGESTS: Final = {"acls": "acls_digest", "quotas": "quotas_digest", "scram_credentials": "scram_digest"}
"""Columns with the digest of the entries that another column counts."""


@dataclass(frozen=True, slots=True)
class MigrationProof:
    """The differences that a migration must not make, and the values that could not be compared."""

    differences: list[Difference]
    unknown: list[str]
    """Descriptions of values that are unknown before or after."""
    deleted_topics: list[str]
    """Topics that were queued for deletion before and are gone."""
    faults: list[str] = field(default_factory=list)
    """Reasons why a cluster whose migration was rolled back elects no leaders, each with its remedy."""

    @property
    def is_proved(self) -> bool:
        """Whether everything is still there and known, and the cluster can elect leaders."""
        return not (self.differences or self.unknown or self.faults)


def prove(warehouse: Warehouse, before: Snapshot, after: Snapshot, *, is_rolled_back: bool = False) -> MigrationProof:
    """Compare a snapshot from ZooKeeper with one from KRaft, or from ZooKeeper after a rollback.

    Raise UsageError if a snapshot is from the wrong source, or `after` is not the newer one.
    """
    for snapshot, is_kraft in ((before, False), (after, not is_rolled_back)):
        if snapshot.is_of_kraft != is_kraft:
            source = "ZooKeeper, too, as the migration was rolled back" if is_rolled_back else "KRaft"
            expected = f"BEFORE is a snapshot from ZooKeeper and AFTER one from {source}"
            raise UsageError(f"snapshot {snapshot.snapshot_id} is from {_MEDIUM[not is_kraft]}; {expected}")
    if after.snapshot_id <= before.snapshot_id:
        raise UsageError(
            f"AFTER, snapshot {after.snapshot_id}, is not newer than BEFORE, snapshot {before.snapshot_id}"
        )
    topics = table_as_of(warehouse, before, "topics", ("deletion_requested", "=", True), columns=["topic"])
    deleted = {*topics["topic"].to_pylist()}
    found = [
        difference
        for difference in differences(warehouse, before, after)
        if not (_may_change(difference) or _concerns_topics(difference, deleted))
    ]
    configs, unknown_configs = _broker_configs(warehouse, before, after)
    counts, unknown_counts = _counts(before, after, _differing_entries(warehouse, before, after))
    signs = [f"whether the rollback is complete: {after.migration}"] if is_rolled_back and after.migration else []
    if is_rolled_back and after.controller_epoch is None:
        signs.append(f"the controller epoch in snapshot {after.snapshot_id}")
    if before.migration:
        signs.append(f"what the migration had changed before snapshot {before.snapshot_id}: {before.migration}")
    ids = [Difference("cluster changed", "cluster", "cluster_id", before.cluster_id, after.cluster_id)]
    found = [*ids * (before.cluster_id != after.cluster_id), *found]
    unread = _unread_on_both_sides(warehouse, before, after)
    unknown = [*signs, *unread, *unknown_configs, *unknown_counts]
    faults = [*_election_faults(warehouse, before, after)] if is_rolled_back else []
    return MigrationProof([*found, *configs, *counts], unknown, sorted(deleted), faults)


def _election_faults(warehouse: Warehouse, before: Snapshot, after: Snapshot) -> Iterator[str]:
    """Describe why no leader can be elected, of some partitions or of any (`PartitionStateMachine.doElectLeader`)."""
    if after.controller_id == NO_CONTROLLER:
        yield "no broker is the controller, and no leader can be elected: start the brokers, then: surveyor doctor"
    epoch = after.controller_epoch
    if epoch is None:
        return
    later = ("controller_epoch", ">", epoch)
    states = table_as_of(warehouse, after, "partitions", later, columns=[*PARTITION, "controller_epoch"])
    if states.num_rows:
        rows = list(values_of(states, *PARTITION, "controller_epoch"))
        yield f"{later_states_message(epoch, rows)}: surveyor reconcile --apply"
    elif set_back := epoch_regression_message(epoch, before.controller_epoch or 0):
        yield f"{set_back}; a take-over with a later epoch repairs it: surveyor reconcile --apply"


_MEDIUM: Final = {False: "ZooKeeper", True: "KRaft"}


def _may_change(difference: Difference) -> bool:
    before, after = difference.before, difference.after
    match difference.column:
        case "isr":  # in any order
            return {*(before or ())} == {*(after or ())}
        case "partition_state":  # a partition that was led before has no leader
            return bool(after != PartitionState.OFFLINE)
        case "leader_epoch":
            return before is None or (after is not None and after >= before)
        case column:
            return column in MAY_CHANGE and difference.what not in {"broker gone", "broker joined"}


def _concerns_topics(difference: Difference, topics: set[str]) -> bool:
    """Return whether the difference is one of these topics or of a partition of them."""
    if difference.what.startswith("partition "):
        return difference.subject.rpartition("-")[0] in topics
    return difference.what.startswith("topic ") and difference.subject in topics


def _unread_on_both_sides(warehouse: Warehouse, before: Snapshot, after: Snapshot) -> list[str]:
    """Return what is in quarantine before and after, so that it does not differ and was not compared."""
    old, new = ({row.path for row in rows_as_of(warehouse, snapshot, QuarantinedZnode)} for snapshot in (before, after))
    return [f"{path} before and after" for path in sorted(old & new)]


def _broker_configs(warehouse: Warehouse, before: Snapshot, after: Snapshot) -> tuple[list[Difference], list[str]]:
    """Compare the settings that brokers returned; the settings of a broker that returned none are unknown.

    That also holds for a broker that returned none on either side, which has assumed settings only.
    """
    old_configs, new_configs = (_returned(warehouse, snapshot) for snapshot in (before, after))
    asked = {*old_configs, *new_configs}
    for snapshot in (before, after):
        asked |= {row.broker_id for row in rows_as_of(warehouse, snapshot, BrokerConfig, ("assumed", "=", True))}
    unknown = [
        f"settings of broker {broker} {side}"
        for side, configs in (("before", old_configs), ("after", new_configs))
        for broker in sorted(asked - configs.keys())
    ]
    rows = [
        Difference("broker config", f"broker {broker}", name, value, new_configs[broker][name])
        for broker in sorted(old_configs.keys() & new_configs.keys())
        for name, value in sorted(old_configs[broker].items())
        if name in new_configs[broker] and new_configs[broker][name] != value
    ]
    return rows, unknown


def _returned(warehouse: Warehouse, snapshot: Snapshot) -> dict[int, dict[str, str | None]]:
    """Return the settings of each broker that it returned itself, without versions of APIs."""
    configs: dict[int, dict[str, str | None]] = {}
    for row in rows_as_of(warehouse, snapshot, BrokerConfig, ("assumed", "=", False)):
        if row.name not in NOT_CARRIED and not row.name.startswith(VERSION_PREFIX):
            configs.setdefault(row.broker_id, {})[row.name] = row.value
    return configs


def _differing_entries(warehouse: Warehouse, before: Snapshot, after: Snapshot) -> dict[str, list[Difference]]:
    """Return the differing resources, entities and users by kind; none if a snapshot of an older version has no list.

    A difference has the numbers of entries or, if they are equal, the digests.
    """
    if not all(SecurityEntry.TABLE in snapshot.versions for snapshot in (before, after)):
        return {}
    old, new = (
        {(row.kind, row.subject): row for row in rows_as_of(warehouse, snapshot, SecurityEntry)}
        for snapshot in (before, after)
    )
    nouns = {KINDS[column].value: noun for column, noun in COUNTS.items()}
    found: dict[str, list[Difference]] = defaultdict(list)
    for kind, subject in sorted(old.keys() | new.keys()):
        then, now = (rows.get((kind, subject)) for rows in (old, new))
        for column in ("entries", "digest"):
            values = [None if row is None else getattr(row, column) for row in (then, now)]
            if values[0] != values[1]:
                found[kind].append(Difference("content", f"{nouns[kind]} of {subject}", column, *values))
                break
    return found


def _counts(
    before: Snapshot, after: Snapshot, entries: Mapping[str, list[Difference]]
) -> tuple[list[Difference], list[str]]:
    """Compare numbers and digests; `entries` are the differences that are known in detail, by kind."""
    rows: list[Difference] = []
    unknown: list[str] = []
    for column, noun in COUNTS.items():
        old, new = getattr(before, column), getattr(after, column)
        if old == 0 and new is None:
            continue  # as without an authorizer, and only an authorizer lists ACLs: there was nothing to lose
        if old is None or new is None:
            unknown.append(f"number of {noun} {'before' if old is None else 'after'}")
        elif old != new:
            rows += [Difference("count", noun, column, old, new), *entries.get(KINDS[column], ())]
        elif old:
            old, new = getattr(before, DIGESTS[column]), getattr(after, DIGESTS[column])
            if old is None or new is None:
                unknown.append(f"content of {noun} {'before' if old is None else 'after'}")
            elif old != new:
                rows += entries.get(KINDS[column]) or [Difference("content", noun, DIGESTS[column], old, new)]
    return rows, unknown
