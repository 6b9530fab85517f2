"""The model of the cluster during planning: brokers by index, replicas before and after as (slot, row).

In: Brokers, Partitions and a PlacementGoal. Rows are in the order of topic and partition, whatever the order of the
input, so the same cluster gives the same plan. The steps write into `after`; `before` never changes.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.placement.racks import NO_RACK, given_up, max_per_rack, racks_spanned
from planner.placement.removal_order import in_sync_mask, in_sync_to_keep, removal_ranks
from planner.placement.replica_arrays import arrivals, count_replicas
from planner.placement.types import (
    NO_BROKER,
    Bools,
    Ints,
    PlacementBrokers,
    PlacementError,
    PlacementGoal,
    PlacementPartitions,
)
from schemas import reasons
from schemas.enums import LintCode, RejectionCode
from schemas.text import pluralise

MAX_DENSE_ID: Final = 1 << 20
"""Broker ids below this are looked up in a table."""


@dataclass(slots=True, kw_only=True, eq=False)
class PlacementModel:
    """`racks` has one entry more than there are brokers: NO_RACK, which the index NO_BROKER (-1) finds."""

    ids: Ints
    racks: Ints
    rack_names: tuple[str, ...]
    live: Bools
    target: Bools
    may_receive: Bools
    """Targets that may get replicas they did not have; the other brokers only give, or keep what they have."""
    emptied: Bools
    given_up: Bools
    """Racks whose brokers are all emptied or dead, at least one of them emptied."""
    order: Ints
    topic: Ints
    partition: Ints
    before: Ints
    after: Ints
    factor: Ints
    movable: Bools
    held: Bools
    removal_rank: Ints
    """(slot of `before`, row): if a replica must leave, the highest rank leaves first."""
    in_sync_quota: Ints
    """By (slot, row) the replicas in sync of rows with a lagging replica; balancing does not move them."""
    lagging: Ints
    """By (slot, row) the replicas that are not in sync, NO_BROKER for others; elections do not make them leaders."""
    leader: Ints
    """The broker that leads each row before."""
    pinned: Ints
    """The broker that has to stay in its row, NO_BROKER if any may leave."""
    min_racks: Ints
    """Racks that each row must span.

    `forced_moves` lowers the number if racks are given up, and raises it if replicas move.
    """
    capacity: Ints
    """Replicas allowed in one rack of each row; `forced_moves` raises it if necessary, and lowers it if possible.
    """

    @property
    def size(self) -> int:
        return len(self.ids)

    def load(self) -> Ints:
        return count_replicas(self.after, self.size)


def model_of(brokers: PlacementBrokers, partitions: PlacementPartitions, goal: PlacementGoal) -> PlacementModel:
    order = np.lexsort((partitions.partition, partitions.topic))
    listed = partitions.replicas[order].T
    unknown = _unknown(brokers.ids, listed)
    by_id = np.argsort(brokers.ids, kind="stable")
    ids = np.concatenate([brokers.ids[by_id], unknown])
    no = np.zeros(len(unknown), dtype=bool)
    cordoned = np.zeros_like(brokers.live) if brokers.cordoned is None else brokers.cordoned
    live, target, emptied, cordoned = (
        np.concatenate([flag[by_id], no]) for flag in (brokers.live, brokers.target, brokers.emptied, cordoned)
    )
    names = tuple(sorted({rack for rack in brokers.racks if rack is not None}))
    racks = [NO_RACK if rack is None else names.index(rack) for rack in brokers.racks]
    before = broker_indexes(ids, listed, goal.replication_factor or 0)
    stuck = (before != NO_BROKER) & ~(live | emptied)[before]
    movable = partitions.movable[order]
    factor = (before != NO_BROKER).sum(axis=0)
    held = movable & stuck.any(axis=0)
    in_sync = in_sync_mask(partitions, order, len(before))
    if goal.replication_factor is not None:
        spare = ((before != NO_BROKER) & ~emptied[before]).sum(axis=0) - goal.replication_factor
        live_in_sync = (before != NO_BROKER) & in_sync & live[before]
        held &= (stuck.sum(axis=0) > spare) | ~live_in_sync.any(axis=0)  # else the dead ones leave
        factor = np.where(movable & ~held, goal.replication_factor, factor)
    rack_of = np.concatenate([np.array(racks, dtype=np.int64)[by_id], np.full(len(unknown) + 1, NO_RACK)])
    leaves = emptied & np.isin(np.arange(len(emptied)), before[:, movable])
    model = PlacementModel(
        ids=ids,
        racks=rack_of,
        rack_names=names,
        live=live,
        target=target & live & ~emptied,
        may_receive=target & live & ~(emptied | cordoned) & (np.isin(ids, list(goal.onto)) if goal.onto else True),
        emptied=emptied,
        given_up=given_up(rack_of[:-1], leaves, live & ~emptied, len(names)),
        order=order,
        topic=dense_numbers(partitions.topic[order]),
        partition=partitions.partition[order],
        before=before,
        after=before.copy(),
        factor=factor,
        movable=movable & ~held,
        held=held,
        removal_rank=removal_ranks(before, in_sync, live & ~emptied, target),
        in_sync_quota=in_sync_to_keep(before, in_sync),
        lagging=np.where(in_sync, NO_BROKER, before),
        leader=_leaders(ids, before, partitions, order),
        pinned=np.full(before.shape[1], NO_BROKER),
        min_racks=np.minimum(racks_spanned(rack_of[before]), factor),
        capacity=np.maximum(max_per_rack(rack_of[before]), 1),
    )
    _refuse_too_few_brokers(model)
    return model


def _leaders(ids: Ints, before: Ints, partitions: PlacementPartitions, order: Ints) -> Ints:
    """Return the leader of each row; the first replica of rows that none of their replicas leads."""
    first: Ints = before[0]
    if partitions.leader is None:
        return first
    held = np.append(ids, NO_BROKER)[before] == partitions.leader[order]
    leader: Ints = np.where(held.any(axis=0), before[held.argmax(axis=0), np.arange(before.shape[1])], first)
    return leader


def dense_numbers(ascending: Ints) -> Ints:
    """Number equal neighbours from zero.

    >>> dense_numbers(np.array([4, 4, 7, 9, 9]))
    array([0, 0, 1, 2, 2])
    """
    numbers: Ints = np.cumsum(np.diff(ascending, prepend=ascending[:1]) != 0)
    return numbers


def topic_load(model: PlacementModel, rows: Ints) -> tuple[Ints, Ints]:
    """Number the topics of `rows`; return the numbers, and by (topic, broker) the replicas of all partitions of the
    topic.
    """
    number = np.full(int(model.topic.max(initial=-1)) + 1, NO_BROKER)
    topics = np.unique(model.topic[rows])
    number[topics] = np.arange(len(topics))
    counted = number[model.topic] != NO_BROKER
    replicas = model.after[:, counted]
    keys = (number[model.topic[counted]] * model.size + replicas)[replicas != NO_BROKER]
    load: Ints = np.bincount(keys, minlength=len(topics) * model.size).reshape(len(topics), model.size)
    return number[model.topic[rows]], load


def _unknown(ids: Ints, listed: Ints) -> Ints:
    """Return broker ids in lists that no broker has, ascending."""
    return np.setdiff1d(_distinct(listed), np.append(ids, NO_BROKER))


def _distinct(listed: Ints) -> Ints:
    """Return distinct values; ids are mostly small, and counting those is faster than sorting."""
    if listed.size and listed.max() < MAX_DENSE_ID:
        return np.flatnonzero(np.bincount(listed.ravel() + 1)) - 1
    return np.unique(listed)


def broker_indexes(ids: Ints, listed: Ints, width: int) -> Ints:
    """Convert broker ids to indexes, padded to at least `width` replicas."""
    places = np.argsort(ids, kind="stable")
    if ids.max(initial=0) < MAX_DENSE_ID:
        index_of = np.full(int(ids.max(initial=0)) + 2, NO_BROKER)
        index_of[ids] = np.arange(len(ids))
        indexes = index_of[listed]  # index -1 (NO_BROKER) finds the last entry, NO_BROKER
    else:
        positions = places[np.searchsorted(ids[places], np.where(listed == NO_BROKER, ids[places[0]], listed))]
        indexes = np.where(listed == NO_BROKER, NO_BROKER, positions)
    room = max(width - len(listed), 0)
    return np.concatenate([indexes, np.full((room, indexes.shape[1]), NO_BROKER)])


def _refuse_too_few_brokers(model: PlacementModel) -> None:
    stays = (model.before != NO_BROKER) & (model.live & ~(model.emptied | model.may_receive))[model.before]
    has = model.may_receive.sum() + stays.sum(axis=0)
    refuse_rows(
        model,
        model.movable & (model.factor > has),
        reasons.MORE_REPLICAS.render(brokers=pluralise(int(model.may_receive.sum()), "broker")),
        "allow more brokers or ask for fewer replicas",
        RejectionCode.TOO_FEW_BROKERS,
    )


def refuse_rows(model: PlacementModel, rows: Bools, fault: str, advice: str, code: RejectionCode | LintCode) -> None:
    """Raise PlacementError if any row is marked; the error has all marked rows."""
    marked = np.flatnonzero(rows)
    if len(marked):
        inputs, reason = model.order[marked].tolist(), reasons.WOULD_HAVE.render(fault=fault, advice=advice)
        count = pluralise(len(marked), "partition")
        raise PlacementError(f"{count} would have {fault}", inputs, advice, code=code.value, reason=reason)


def copies_by_row(model: PlacementModel) -> Ints:
    """Return the number of replicas each row has to copy."""
    count: Ints = arrivals(model.before, model.after).sum(axis=0)
    return count


def copies(model: PlacementModel) -> int:
    return int(copies_by_row(model).sum())
