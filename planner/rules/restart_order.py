"""The order in which the brokers of a cluster restart, and which of them may restart at the same time.

Brokers that are down come first, because every partition with a replica on them has fewer replicas in sync until they
are back. Then the racks follow by name, and the controller comes last and alone, so that the controllership moves once.
Strimzi's KafkaRoller takes the same order. Brokers of one rack share a wave if no partition then has fewer in-sync
replicas than min.insync.replicas and the margin. In doing so all replicas count as in sync: a wave starts only when the
brokers that were down run again and the ISRs are full. In a KRaft cluster the leader of the quorum is the controller,
and a majority of the quorum remains in a wave of several voters.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from planner.rules.quorum import majority, may_restart_together
from planner.rules.restart_effect import effect_with_full_isr
from schemas.enums import RestartEffect


@dataclass(frozen=True, slots=True)
class InSyncNeed:
    """Requirement of partitions with equal replicas: how many of `replicas` must be in sync.

    `min_isr` is None if it is unknown; then no two of the replicas may restart at once. `in_sync` are the live members
    of the present ISR, none without a live leader; None means all replicas.
    """

    replicas: frozenset[int]
    min_isr: int | None
    in_sync: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class RestartStep:
    """The restart of one broker; `harmed` counts the partitions that it affects although all ISRs are full.

    `harmed_now` counts those that it affects with the present ISRs, while other brokers may be down. `loses_quorum`
    means that no majority of the quorum's voters remains although all others are up to date.
    """

    wave: int
    broker_id: int
    rack: str | None
    is_down: bool
    is_controller: bool
    harmed: Mapping[RestartEffect, int]
    harmed_now: Mapping[RestartEffect, int]
    loses_quorum: bool = False


def restart_order(  # noqa: PLR0913 - the facts that decide the order
    needs: Mapping[InSyncNeed, int],
    racks: Mapping[int, str | None],
    down: Collection[int],
    controller: int | None,
    *,
    margin: int = 0,
    voters: Collection[int] = (),
) -> list[RestartStep]:
    """Return a step for each broker in `racks`, waves from 1; `needs` counts partitions.

    `voters` are the node ids of a quorum, which may have nodes that are not brokers.

    >>> needs = {InSyncNeed(frozenset({1, 3, 5}), 2): 1, InSyncNeed(frozenset({2, 4, 5}), 2): 1}
    >>> steps = restart_order(needs, {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 9: None}, down=[9], controller=1)
    >>> [(step.wave, step.broker_id) for step in steps]
    [(1, 9), (2, 2), (3, 3), (3, 4), (4, 5), (5, 1)]
    """
    holders: dict[int, list[InSyncNeed]] = defaultdict(list)
    for need in needs:
        for broker in need.replicas:
            holders[broker].append(need)
    waves = [sorted(down)] if down else []
    for members in _racks(racks, {*down, controller}):
        waves += _waves_of_rack(members, holders, margin, voters)
    if controller is not None and controller in racks and controller not in down:
        waves.append([controller])
    return [
        RestartStep(
            number,
            broker,
            racks[broker],
            broker in down,
            broker == controller,
            {} if broker in down else _effect_counts(broker, holders[broker], needs, margin),
            {} if broker in down else _effect_counts(broker, holders[broker], needs, margin, with_present_isrs=True),
            broker not in down and broker in voters and majority(len(voters)) == len(voters),
        )
        for number, wave in enumerate(waves, 1)
        for broker in wave
    ]


def _racks(racks: Mapping[int, str | None], excluded: Collection[int | None]) -> Iterable[list[int]]:
    """Yield the brokers of each rack by its name; a broker without a rack is a rack of its own, after the others."""
    by_rack: dict[tuple[bool, str, int], list[int]] = defaultdict(list)
    for broker in sorted(racks):
        rack = racks[broker]
        if broker not in excluded:
            by_rack[(True, "", broker) if rack is None else (False, rack, 0)].append(broker)
    return (by_rack[rack] for rack in sorted(by_rack))


def _waves_of_rack(
    members: Sequence[int], holders: Mapping[int, Sequence[InSyncNeed]], margin: int, voters: Collection[int]
) -> list[list[int]]:
    """Put each broker into the first wave that it fits into."""
    waves: list[set[int]] = []
    for broker in members:
        possible = (wave for wave in waves if may_restart_together(voters, {*wave, broker}))
        wave = next((wave for wave in possible if _fits(wave, holders[broker], margin)), None)
        if wave is None:
            waves.append({broker})
        else:
            wave.add(broker)
    return [sorted(wave) for wave in waves]


def _fits(wave: set[int], needs: Sequence[InSyncNeed], margin: int) -> bool:
    """Return whether a broker with these partitions may restart together with a wave.

    A broker whose restart affects a partition even on its own shares a wave only with brokers that have no replica of
    it.
    """
    for need in needs:
        others = len(need.replicas & wave)
        if others and others + 1 > _may_be_down(need, margin):
            return False
    return True


def _may_be_down(need: InSyncNeed, margin: int) -> int:
    """Return how many replicas may be down at once; at least one, as each broker restarts at some time."""
    if need.min_isr is None:
        return 1
    return max(1, len(need.replicas) - max(1, need.min_isr + margin))


def _effect_counts(
    broker: int,
    broker_needs: Sequence[InSyncNeed],
    needs: Mapping[InSyncNeed, int],
    margin: int,
    *,
    with_present_isrs: bool = False,
) -> dict[RestartEffect, int]:
    """Count the partitions that a restart affects, with the present ISRs or with full ones."""
    counts: Counter[RestartEffect] = Counter()
    for need in broker_needs:
        in_sync = need.in_sync if with_present_isrs and need.in_sync is not None else need.replicas
        remaining = min(len(in_sync - {broker}), len(need.replicas - {broker}))
        effect = effect_with_full_isr(remaining, need.min_isr, margin)
        if effect is not None:
            counts[effect] += needs[need]
    return {effect: counts[effect] for effect in RestartEffect if counts[effect]}
