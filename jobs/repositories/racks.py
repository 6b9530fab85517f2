"""The racks of brokers as of a snapshot: also of brokers that are down, and of racks that were renamed."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from operator import attrgetter
from typing import Final

from jobs.adapters.delta.warehouse import Warehouse
from jobs.core.errors import SurveyorError, UnreadableError
from jobs.repositories.brokers_last_seen import brokers_last_seen
from jobs.repositories.snapshots import find_snapshot, rows_as_of
from schemas.metadata_names import MetadataNames
from schemas.rows import Broker, LastSeenBroker, Snapshot
from schemas.text import broker_list

RENAMED_WITHIN: Final = timedelta(days=7)
"""Time before a snapshot in which a new rack name of a broker shows that its rack was renamed: a roll takes days."""

MAX_VERSIONS_READ: Final = 50
"""Versions of the table `brokers` that are read for the names of racks, the newest ones."""


def rack_of_each(registered: Iterable[Broker], last_seen: Mapping[int, LastSeenBroker]) -> dict[int, str | None]:
    """Return the rack of each broker from its readable registration, else from the last one.

    A broker in neither has no entry: its rack is unknown, which differs from having no rack.

    >>> from datetime import datetime
    >>> from msgspec.structs import replace
    >>> registered = [Broker(broker_id=1, broker_epoch=9, rack="a", understood=True),
    ...     Broker(broker_id=2, broker_epoch=9, understood=False)]
    >>> seen = LastSeenBroker(snapshot_id=1, broker_id=2, broker_epoch=8, rack="b", last_seen_at=datetime(2026, 1, 1))
    >>> rack_of_each(registered, {2: seen, 3: replace(seen, rack=None)})
    {2: 'b', 3: None, 1: 'a'}
    """
    gone = {broker: row.rack for broker, row in last_seen.items()}
    return gone | {row.broker_id: row.rack for row in registered if row.understood}


@dataclass(frozen=True, slots=True, kw_only=True)
class Racks:
    """The racks of the brokers at a snapshot, one name for each.

    `rack_of`: by broker, as in `rack_of_each`. `usable`: brokers that are live and understood. `name_of`: the name that
    replaces another name of the same rack. `warnings`: reasons why a placement by racks may not be as expected.
    """

    rack_of: dict[int, str | None] = field(default_factory=dict)
    usable: list[int] = field(default_factory=list)
    name_of: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def known(self) -> dict[int, str]:
        """The rack of each broker that has one."""
        return {broker: rack for broker, rack in self.rack_of.items() if rack is not None}

    @property
    def parameter(self) -> dict[str, list[str]]:
        """The warnings as a parameter of a plan, nothing if there are none."""
        return {"rack_warnings": self.warnings} if self.warnings else {}


def racks_as_of(warehouse: Warehouse, snapshot: Snapshot) -> Racks:
    """Return the racks at a snapshot; names that brokers of one rack had before and after a change are one rack."""
    brokers = rows_as_of(warehouse, snapshot, Broker)
    racks = rack_of_each(brokers, brokers_last_seen(warehouse, snapshot))
    usable = [row.broker_id for row in brokers if row.understood and row.is_live]
    earlier = _earlier_racks(warehouse, snapshot) if any(racks.values()) else []
    name_of, moved = same_racks([*earlier, racks])
    names_in_use = {rack for rack in racks.values() if rack is not None}
    shared = Counter(_newest(name_of, rack) for rack in names_in_use)
    name_of = {rack: name for rack, name in name_of.items() if rack in names_in_use and shared[name] > 1}
    return Racks(
        rack_of={broker: rack and name_of.get(rack, rack) for broker, rack in racks.items()},
        usable=usable,
        name_of=name_of,
        warnings=[
            *filter(None, [mixed_racks({broker: racks[broker] for broker in usable}, snapshot.names)]),
            *(_renamed(rack, name) for rack, name in sorted(name_of.items())),
            *(_moved(broker, *names) for broker, names in sorted(moved.items()) if names_in_use.issuperset(names)),
        ],
    )


def same_racks(history: Sequence[Mapping[int, str | None]]) -> tuple[dict[str, str], dict[int, tuple[str, str]]]:
    """Return the newest name of each rack that was renamed, and the brokers that moved to another rack.

    `history` has the rack of each broker, oldest first. If a broker's new name was in use before, the broker moved.
    Else its rack has a new name, which its other brokers get when they are restarted.

    >>> same_racks([{1: "a", 2: "b", 4: "a"}, {1: "zone-a", 4: "a"}, {1: "zone-a", 2: "zone-b"}])
    ({'a': 'zone-a', 'b': 'zone-b'}, {})
    >>> same_racks([{1: "a", 2: "b", 4: "a"}, {1: "b"}])
    ({}, {1: ('a', 'b')})
    >>> same_racks([{1: "a"}, {1: "b"}, {1: "c"}])
    ({'a': 'c', 'b': 'c'}, {})
    """
    last: dict[int, str] = {}
    name_of: dict[str, str] = {}
    moved: dict[int, tuple[str, str]] = {}
    for racks in history:
        used = {*last.values(), *name_of.values()}
        for broker, rack in racks.items():
            old = last.get(broker, rack)
            if rack is None or old is None or _newest(name_of, old) == _newest(name_of, rack):
                continue
            if rack in used:
                moved[broker] = old, rack
            else:
                name_of[_newest(name_of, old)] = rack
        last |= {broker: rack for broker, rack in racks.items() if rack is not None}
    return {rack: _newest(name_of, rack) for rack in name_of}, moved


def _newest(name_of: Mapping[str, str], rack: str) -> str:
    while rack in name_of:
        rack = name_of[rack]
    return rack


def _earlier_racks(warehouse: Warehouse, snapshot: Snapshot) -> list[dict[int, str | None]]:
    """Return the racks in the snapshots of the last RENAMED_WITHIN, oldest first, each version of the table once."""
    until = ("snapshot_id", "<", snapshot.snapshot_id)
    recent = warehouse.typed_rows(Snapshot, until, ("taken_at", ">=", snapshot.taken_at - RENAMED_WITHIN))
    with_brokers = [row for row in recent if Broker.TABLE in row.versions]
    by_version = {row.versions[Broker.TABLE]: row for row in sorted(with_brokers, key=attrgetter("snapshot_id"))}
    racks = list[dict[int, str | None]]()
    for row in [*by_version.values()][-MAX_VERSIONS_READ:]:
        with suppress(UnreadableError):  # removed by something other than vacuum
            racks.append({broker.broker_id: broker.rack for broker in rows_as_of(warehouse, row, Broker)})
    return racks


def _renamed(rack: str, name: str) -> str:
    return (
        f"rack {rack} is now named {name}, by the snapshots of brokers that were restarted: both count as one rack for "
        f"{RENAMED_WITHIN.days} days; if {name} is another rack, plan with --disable-rack-aware until then"
    )


def _moved(broker: int, before: str, after: str) -> str:
    return (
        f"broker {broker} moved from rack {before} to rack {after}, and other brokers had that name before: the two "
        "count as different racks; if they are one, wait until all brokers have its new name, then plan again"
    )


def rack_gap(rack_of: Mapping[int, str | None]) -> str | None:
    """Name the brokers without a rack while others have one, None if all or none have one.

    >>> rack_gap({1: "a", 2: "b", 4: None, 5: None}), rack_gap({1: None})
    ('brokers 4, 5 have no rack, brokers 1, 2 do', None)
    """
    without = [broker for broker, rack in sorted(rack_of.items()) if rack is None]
    others = sorted(rack_of.keys() - set(without))
    if not without or not others:
        return None
    have = "have" if len(without) > 1 else "has"
    do = "do" if len(others) > 1 else "does"
    return f"{broker_list(without)} {have} no rack, {broker_list(others)} {do}"


def mixed_racks(rack_of: Mapping[int, str | None], names: MetadataNames) -> str | None:
    """Warn of live brokers without a rack while others have one, None if there are none.

    Kafka's controller refuses such topics with ZooKeeper (`AdminUtils.assignReplicasToBrokers`); in KRaft it treats no
    rack as one more rack.

    >>> from schemas.metadata_names import IN_KRAFT
    >>> mixed_racks({1: "a", 2: None}, IN_KRAFT) # doctest: +NORMALIZE_WHITESPACE
    'broker 2 has no rack, broker 1 does: plans leave no partition in fewer racks for a broker without one;
    set broker.rack there and restart, or plan with --disable-rack-aware'
    """
    if not (gap := rack_gap(rack_of)):
        return None
    fails = ", and Kafka creates no topic by itself (Not all brokers have rack information)" * names.has_znodes
    return (
        f"{gap}: plans leave no partition in fewer racks for a broker without one{fails}; set broker.rack there and "
        "restart, or plan with --disable-rack-aware"
    )


def racks_of_snapshot(warehouse: Warehouse, snapshot_id: int) -> tuple[dict[int, str], list[int]]:
    """Return the known rack of each broker in a snapshot, and its live brokers; nothing if the snapshot was dropped."""
    try:
        racks = racks_as_of(warehouse, find_snapshot(warehouse, snapshot_id))
    except SurveyorError:
        return {}, []
    return racks.known, racks.usable
