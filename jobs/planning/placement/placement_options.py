"""The goals and limits of `plan reassign` for the optimiser, read from the command line.

Contradictory options raise UsageError.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from jobs.core.errors import RefusedError, UsageError
from jobs.planning.internal_topic_permission import NOT_ALLOWED, InternalTopics
from jobs.planning.placement.optimise import PlacementRequest
from jobs.planning.placement.partition_arrays import Scope
from jobs.planning.planning_tables import PlanningTables, since_snapshot
from jobs.repositories.drained_brokers import drained_brokers
from jobs.repositories.log_dirs import cordoned_brokers
from jobs.repositories.snapshots import live_brokers_as_of, refuse_empty
from jobs.runtime.input_files import parse_broker_ids, parse_replacements, read_topics_to_move
from planner.placement.types import EVEN_WITHIN, PlacementGoal
from planner.placement.waves import WaveLimits
from schemas.text import join_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementLimits:
    """Limits that can be given with every goal."""

    topics: str | None = None
    exclude: str | None = None
    max_moves: int | None = None
    rack_aware: bool = True
    reorder: bool = False
    """--reorder-leaders"""
    elect: bool = True
    """Not --skip-elections"""
    brokers: str | None = None
    """--broker-list"""
    within: float | None = None
    """--within"""
    even_within: float = EVEN_WITHIN
    """The share if --within is not given."""
    caps: WaveLimits = field(default_factory=WaveLimits)
    allow_below_min_isr: bool = False
    internal: InternalTopics = NOT_ALLOWED
    skip_unsafe: bool = False

    @property
    def permissions(self) -> dict[str, bool]:
        """The permissions of the lint as a plan's parameters, without those that are not set."""
        given = {"allow_below_min_isr": self.allow_below_min_isr, "skip_unsafe": self.skip_unsafe}
        return {key: True for key, permitted in given.items() if permitted} | self.internal.parameters

    @property
    def parameters(self) -> dict[str, Any]:
        """The limits as a plan's parameters."""
        given = {
            "topics": self.topics,
            "exclude": self.exclude,
            "max_moves": self.max_moves,
            "within": self.within,
            "reorder_leaders": self.reorder or None,
            "skip_elections": None if self.elect else True,
        }
        limits = {key: limit for key, limit in given.items() if limit is not None} | stated_caps(self.caps)
        return {**limits, **self.permissions, "rack_aware": self.rack_aware}

    def scope(self, named: frozenset[str] | None = None) -> Scope:
        return Scope(named=named, topics=_regex("--topics", self.topics), exclude=_regex("--exclude", self.exclude))


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedRequest:
    """A request, its parameters in the plan, and the option and brokers that will take replicas."""

    request: PlacementRequest
    parameters: dict[str, Any]
    taking: tuple[str, frozenset[int]] = ("", frozenset())
    limits: PlacementLimits = field(default_factory=PlacementLimits)

    def refuse_unable(self, tables: PlanningTables) -> None:
        """Raise RefusedError if a broker that will take replicas cannot, by the snapshot."""
        refuse_empty(tables.snapshot, topics=True)
        option, ids = self.taking
        understood = {row.broker_id: row.understood for row in live_brokers_as_of(tables.warehouse, tables.snapshot)}
        drained, cordoned = drained_brokers(tables.warehouse), cordoned_brokers(tables.warehouse)
        live = join_ids(sorted(understood)) or "none"
        for broker in sorted(ids):
            if broker not in understood:
                where = f"snapshot {tables.snapshot.snapshot_id}; live are {live}"
                age = since_snapshot(tables, ids - understood.keys())
                raise RefusedError(f"{option}: broker {broker} is not live in {where}; {age}")
            if not understood[broker]:
                name, reason = tables.snapshot.names.broker(broker), "`surveyor show quarantine` shows why"
                raise RefusedError(f"{option}: {name} is not understood, so it gets no replicas; {reason}")
            if broker in drained:
                raise RefusedError(f"{option}: broker {broker} is drained; undrain it first")
            if broker in cordoned:
                reason = "all its log dirs are cordoned, so it takes no new replicas; change cordoned.log.dirs"
                raise RefusedError(f"{option}: broker {broker}: {reason}, then run `surveyor sizes`")


def read_request(option: str, value: Any, limits: PlacementLimits) -> StatedRequest:  # noqa: ANN401 - as the option gives it
    """Read one goal; `option` is its name on the command line."""
    read = _READERS[option](value, limits)
    return StatedRequest(
        request=replace(read.request, caps=limits.caps, elects=limits.elect),
        parameters={**read.parameters, **limits.parameters},
        taking=read.taking,
        limits=limits,
    )


def stated_caps(caps: WaveLimits) -> dict[str, Any]:
    """Return the wave limits that are set, as a plan's parameters."""
    given = {"max_moves_per_broker": caps.moves_per_broker, "one_replica_at_a_time": caps.one_at_a_time or None}
    return {key: cap for key, cap in given.items() if cap is not None}


def _request(limits: PlacementLimits, **goal: Any) -> PlacementRequest:  # noqa: ANN401 - fields of PlacementGoal
    within = limits.even_within if limits.within is None else limits.within
    return PlacementRequest(
        goal=PlacementGoal(max_moves=limits.max_moves, within=within, **{"reorder": limits.reorder, **goal}),
        scope=limits.scope(),
        rack_aware=limits.rack_aware,
    )


def _move_topics(path: Path, limits: PlacementLimits) -> StatedRequest:
    topics, brokers = read_topics_to_move(path), parse_broker_ids(limits.brokers or "", "--broker-list")
    request = _spread(limits, frozenset(brokers), frozenset(topics))
    parameters = {"topics_to_move": sorted(topics), "broker_list": sorted(brokers)}
    return StatedRequest(request=request, parameters=parameters, taking=("--broker-list", frozenset(brokers)))


def _onto(value: str, limits: PlacementLimits) -> StatedRequest:
    brokers = frozenset(parse_broker_ids(value, "--onto"))
    return StatedRequest(
        request=_spread(limits, brokers), parameters={"onto": sorted(brokers)}, taking=("--onto", brokers)
    )


def _spread(limits: PlacementLimits, brokers: frozenset[int], topics: frozenset[str] | None = None) -> PlacementRequest:
    """Return the request to spread topics over brokers, and to leave none of their replicas on others."""
    return replace(_request(limits, even=True), only=brokers, scope=limits.scope(topics))


def _add(value: str, limits: PlacementLimits) -> StatedRequest:
    brokers = sorted(parse_broker_ids(value, "--add-brokers"))
    request = _request(limits, even=True, onto=frozenset(brokers))
    return StatedRequest(
        request=request, parameters={"add_brokers": brokers}, taking=("--add-brokers", frozenset(brokers))
    )


def _remove(value: str, limits: PlacementLimits) -> StatedRequest:
    brokers = sorted(parse_broker_ids(value, "--remove-brokers"))
    request = _request(limits)
    return StatedRequest(request=_emptying(request, frozenset(brokers)), parameters={"remove_brokers": brokers})


def _replace(value: str, limits: PlacementLimits) -> StatedRequest:
    pairs = parse_replacements(value)
    request = _request(limits, replacements=tuple(pairs))
    return StatedRequest(
        request=_emptying(request, frozenset(old for old, _ in pairs)),
        parameters={"replace": [list(pair) for pair in pairs]},
        taking=("--replace", frozenset(new for _, new in pairs)),
    )


def _emptying(request: PlacementRequest, brokers: frozenset[int]) -> PlacementRequest:
    return PlacementRequest(goal=request.goal, emptied=brokers, scope=request.scope, rack_aware=request.rack_aware)


def _factor(value: int, limits: PlacementLimits) -> StatedRequest:
    return StatedRequest(request=_request(limits, replication_factor=value), parameters={"replication_factor": value})


def _rebalance(value: bool, limits: PlacementLimits) -> StatedRequest:  # noqa: FBT001 - as the flag is
    return StatedRequest(request=_request(limits, even=value, reorder=True), parameters={"rebalance": value})


def _fix_racks(value: bool, limits: PlacementLimits) -> StatedRequest:  # noqa: FBT001 - as the flag is
    if not limits.rack_aware:
        raise UsageError("--fix-racks and --disable-rack-aware contradict each other")
    return StatedRequest(request=_request(limits, fix_racks=value), parameters={"fix_racks": value})


_READERS: Final[Mapping[str, Callable[[Any, PlacementLimits], StatedRequest]]] = {
    "--topics-to-move-json-file": _move_topics,
    "--onto": _onto,
    "--add-brokers": _add,
    "--remove-brokers": _remove,
    "--replace": _replace,
    "--replication-factor": _factor,
    "--rebalance": _rebalance,
    "--fix-racks": _fix_racks,
}


def _regex(option: str, text: str | None) -> re.Pattern[str] | None:
    """Read a regular expression for topics; topic names have no comma."""
    if text is not None and "," in re.sub(r"\{[^}]*\}|\[[^]]*\]", "", text):
        instead = "|".join(part.strip() for part in text.split(","))
        raise UsageError(f"{option} {text!r}: expected one regular expression, as in {instead!r}")
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise UsageError(f"{option} {text!r} is not a regular expression: {error}") from None
