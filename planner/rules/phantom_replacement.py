"""Replaces replicas on the controller, which brokers list among themselves although it stores nothing.

A broker assigns the replicas of an auto-created topic to any live broker of its metadata
(`AutoTopicCreationManager.createTopicsInZk`). A controller that brokers send requests to is among them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence


def without_phantom(
    assignment: Mapping[int, Sequence[int]], phantom: int, racks: Mapping[int, str | None]
) -> dict[int, list[int]]:
    """Return the replicas of the partitions that name the phantom, with another broker in its place.

    `assignment`: all partitions of a topic. `racks`: the brokers that may get a replica. Of the brokers without a
    replica of the partition, those in a rack of their own come first, then the one with the fewest replicas of the
    topic at that place, which keeps preferred leaders even, and then the one with the fewest replicas. If every broker
    has a replica, the list gets shorter. A partition that would have no replica is left out.

    >>> without_phantom({0: [9, 1], 1: [1, 2], 2: [2, 9]}, 9, {1: None, 2: None, 3: None})
    {0: [3, 1], 2: [2, 3]}
    >>> without_phantom({0: [1, 9, 2]}, 9, {1: None, 2: None})
    {0: [1, 2]}
    """
    places = [(place, broker) for replicas in assignment.values() for place, broker in enumerate(replicas)]
    at_place, in_all = Counter(places), Counter(broker for _, broker in places)
    replaced = {}
    for partition, replicas in sorted(assignment.items()):
        if phantom not in replicas:
            continue
        place = replicas.index(phantom)
        others = [broker for broker in replicas if broker != phantom]
        used_racks = {racks.get(broker) for broker in others} - {None}
        candidates = sorted(
            (racks[broker] in used_racks, at_place[place, broker], in_all[broker], broker)
            for broker in racks
            if broker not in others and broker != phantom
        )
        if candidates:
            replacement = candidates[0][-1]
            at_place[place, replacement] += 1
            in_all[replacement] += 1
            others.insert(place, replacement)
        if others:
            replaced[partition] = others
    return replaced
