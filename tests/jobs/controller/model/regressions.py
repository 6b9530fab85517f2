"""Scenarios that the model has found to fail, minimised; each failed before the bug was fixed.

They run in `test_kafka_cases`, together with Kafka's cases: one more simulation would take as long as all of them.
"""

from typing import Final

from tests.jobs.controller.model.scenarios import Event, Point, Scenario

BEFORE_CYCLE: Final = Point.BEFORE_CYCLE

REGRESSIONS: Final = {
    "a leader that bounces before its notification is sent the ISR that it wrote": Scenario(
        0,
        3,
        {"a": {0: [0, 1]}},
        (
            Event(0, BEFORE_CYCLE, "kill", (1,)),
            Event(2, BEFORE_CYCLE, "start", (1,)),
            Event(3, BEFORE_CYCLE, "bounce", (0,)),
        ),
    ),
    "a replica whose log dir failed is removed without a stop": Scenario(
        1,
        3,
        {"a": {0: [0, 1]}},
        (
            Event(0, BEFORE_CYCLE, "fail_dir", (1, 0)),
            Event(0, BEFORE_CYCLE, "fail_dir", (1, 1)),
            Event(0, BEFORE_CYCLE, "fail_dir", (1, 2)),
            Event(2, BEFORE_CYCLE, "reassign", ("a", 0, [0, 2])),
        ),
        stay_failed=True,
    ),
    "a restarted broker is sent moving partitions of a topic that is queued for deletion": Scenario(
        2,
        3,
        {"a": {0: [0, 1]}},
        (
            Event(0, BEFORE_CYCLE, "lag", (2,)),
            Event(0, BEFORE_CYCLE, "reassign", ("a", 0, [0, 2])),
            Event(2, BEFORE_CYCLE, "delete", ("a",)),
            Event(3, BEFORE_CYCLE, "bounce", (2,)),
        ),
    ),
    "a partition added to a topic that is being deleted is deleted with it": Scenario(
        3,
        3,
        {"a": {0: [0, 1]}},
        (
            # after all events of the other clusters, because each registration resends the deletion to all brokers
            Event(6, BEFORE_CYCLE, "stall", (1,)),
            Event(6, BEFORE_CYCLE, "delete", ("a",)),
            Event(7, BEFORE_CYCLE, "grow", ("a", [0, 1])),
        ),
    ),
    "a partition whose state was corrupt and then vanishes is not new": Scenario(
        4,
        3,
        {"a": {0: [0, 1]}},
        (
            Event(0, BEFORE_CYCLE, "create", ("b", {0: [0, 1]})),
            Event(0, BEFORE_CYCLE, "garble", ("b", 0)),
            Event(2, BEFORE_CYCLE, "vanish", ("b", 0)),
            Event(3, BEFORE_CYCLE, "grow", ("b", [1, 0])),
        ),
    ),
    "a replica whose log dir failed before it was sent a stop is not waited for": Scenario(
        5,
        3,
        {"a": {0: [0, 1]}},
        (
            Event(0, BEFORE_CYCLE, "stall", (1,)),
            Event(0, BEFORE_CYCLE, "fail_dir", (1, 2)),
            Event(0, BEFORE_CYCLE, "reassign", ("a", 0, [0])),
        ),
        stay_failed=True,
    ),
    "a replica whose broker bounces after the stop is stopped again before its removal": Scenario(
        6,
        3,
        {"a": {0: [0, 1]}},
        (
            Event(0, BEFORE_CYCLE, "stall", (1,)),
            Event(0, BEFORE_CYCLE, "reassign", ("a", 0, [0])),
            Event(4, BEFORE_CYCLE, "stall", (1,)),
            # while other clusters elect uncleanly, which a bounce in this one must not affect
            Event(5, BEFORE_CYCLE, "bounce", (1,)),
        ),
    ),
    "a broker that deleted a topic does not start it again when asked for its log dirs": Scenario(
        7,
        3,
        {"a": {0: [0, 1]}},
        (
            Event(0, BEFORE_CYCLE, "stall", (0,)),
            Event(0, BEFORE_CYCLE, "delete", ("a",)),
            Event(2, BEFORE_CYCLE, "fail_dir", (1, 0)),
            Event(2, BEFORE_CYCLE, "bounce", (1,)),
        ),
    ),
    "a broker that deleted a topic is not sent its ISR after a late notification": Scenario(
        8,
        3,
        {"a": {0: [0, 1, 2]}},
        (
            # after all registrations in other clusters, because each of them resends the deletion
            Event(5, BEFORE_CYCLE, "stall", (2,)),
            Event(5, BEFORE_CYCLE, "lag", (1,)),
            Event(6, BEFORE_CYCLE, "delete", ("a",)),
            Event(7, BEFORE_CYCLE, "stall", (2,)),
        ),
    ),
    "a running leader overwrites a corrupt state with its own": Scenario(
        9,
        3,
        {"a": {0: [0, 1]}},
        (
            Event(0, BEFORE_CYCLE, "create", ("b", {0: [0, 1]})),
            Event(3, BEFORE_CYCLE, "vanish", ("b", 0)),
            Event(3, BEFORE_CYCLE, "garble", ("b", 0)),
            Event(3, BEFORE_CYCLE, "kill", (1,)),
        ),
    ),
    "a move continues while an overriding request waits for its target": Scenario(
        10,
        3,
        {"a": {0: [0, 1]}},
        (
            Event(0, BEFORE_CYCLE, "lag", (2,)),
            Event(0, BEFORE_CYCLE, "reassign", ("a", 0, [0, 2])),
            Event(3, BEFORE_CYCLE, "lag", (2,)),
            Event(5, BEFORE_CYCLE, "reassign", ("a", 0, [7])),
        ),
    ),
    "a broker that restarted during a deletion is sent the topic when the deletion is withdrawn": Scenario(
        11,
        3,
        {"a": {0: [0, 1, 2]}},
        (
            Event(0, BEFORE_CYCLE, "kill", (2,)),
            Event(1, BEFORE_CYCLE, "delete", ("a",)),
            Event(3, BEFORE_CYCLE, "bounce", (0,)),
            Event(5, BEFORE_CYCLE, "keep", ("a",)),
        ),
    ),
    "a topic that was kept when half deleted can be deleted": Scenario(
        12,
        3,
        {"a": {0: [0, 1, 2]}},
        (
            # after all registrations in other clusters, because each of them resends the deletion
            Event(5, BEFORE_CYCLE, "stall", (2,)),
            Event(5, BEFORE_CYCLE, "delete", ("a",)),
            Event(6, BEFORE_CYCLE, "keep", ("a",)),
            Event(7, BEFORE_CYCLE, "delete", ("a",)),
        ),
    ),
    "a request that fails after a broker failure is retried": Scenario(
        13,
        3,
        {"a": {0: [0, 1, 2]}},
        (
            Event(3, BEFORE_CYCLE, "fail", (1, 4, False)),
            Event(3, BEFORE_CYCLE, "kill", (0,)),
        ),
        frozenset({0}),
    ),
    "a partition that fails in a request is retried": Scenario(
        14,
        3,
        {"a": {0: [0, 1, 2], 1: [0, 1, 2]}},
        (
            Event(3, BEFORE_CYCLE, "fail", (1, 1, True)),
            Event(3, BEFORE_CYCLE, "kill", (0,)),
        ),
        frozenset({0}),
    ),
    "a deletion that fails is retried": Scenario(
        15,
        3,
        {"a": {0: [0, 1, 2]}, "b": {0: [0, 1]}},
        (
            Event(3, BEFORE_CYCLE, "fail", (1, 2, True)),
            Event(3, BEFORE_CYCLE, "delete", ("a",)),
            Event(4, BEFORE_CYCLE, "fail", (0, 3, False)),
            Event(4, BEFORE_CYCLE, "delete", ("b",)),
        ),
    ),
    "a failed stop of a leaving replica is retried": Scenario(
        16,
        3,
        {"a": {0: [0, 1]}},
        (
            Event(3, BEFORE_CYCLE, "reassign", ("a", 0, [1])),
            Event(4, BEFORE_CYCLE, "fail", (0, 2, True)),
        ),
    ),
    "a broker that fails to handle the live brokers is sent the full state": Scenario(
        17,
        4,
        {"a": {0: [0, 1, 2]}},
        (
            Event(2, BEFORE_CYCLE, "kill", (0,)),
            Event(3, BEFORE_CYCLE, "reassign", ("a", 0, [3, 1, 2])),
            Event(5, BEFORE_CYCLE, "fail", (1, 1, False)),
            Event(5, BEFORE_CYCLE, "start", (0,)),
        ),
    ),
    "the full state sent to a broker does not start a replica that it stops": Scenario(
        18,
        3,
        {"a": {0: [2, 1]}},
        (
            Event(2, BEFORE_CYCLE, "reassign", ("a", 0, [2])),
            Event(2, BEFORE_CYCLE, "bounce", (0,)),
            Event(3, BEFORE_CYCLE, "fail", (1, 1, False)),
        ),
    ),
}
