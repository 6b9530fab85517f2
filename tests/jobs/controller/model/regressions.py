"""Histories that the model has found to go wrong, as short as they get: each failed before it was mended.

They are run in `test_kafka_cases`, beside Kafka's: one world more would take as long as all of them.
"""

from typing import Final

from tests.jobs.controller.model.scenarios import Event, Point, Scenario

BEFORE_CYCLE: Final = Point.BEFORE_CYCLE

REGRESSIONS: Final = {
    "a leader that bounces before it notified is told of the ISR that it wrote": Scenario(
        0,
        3,
        {"a": {0: [0, 1]}},
        (
            Event(0, BEFORE_CYCLE, "kill", (1,)),
            Event(2, BEFORE_CYCLE, "start", (1,)),
            Event(3, BEFORE_CYCLE, "bounce", (0,)),
        ),
    ),
    "a replica whose log dir failed need not stop before it is forgotten": Scenario(
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
    "who restarts is told of what moves, though its topic is queued for deletion": Scenario(
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
            # after all that the other islands do: whenever a broker registers, everybody is told anew
            Event(6, BEFORE_CYCLE, "stall", (1,)),
            Event(6, BEFORE_CYCLE, "delete", ("a",)),
            Event(7, BEFORE_CYCLE, "grow", ("a", [0, 1])),
        ),
    ),
    "a state that was illegible when its topic was first seen, and then goes, is not that of a new partition": Scenario(
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
    "a replica whose log dir failed, and that is told to stop before it could say so, is not waited for": Scenario(
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
    "who bounces after it has stopped is stopped once more before it is forgotten": Scenario(
        6,
        3,
        {"a": {0: [0, 1]}},
        (
            Event(0, BEFORE_CYCLE, "stall", (1,)),
            Event(0, BEFORE_CYCLE, "reassign", ("a", 0, [0])),
            Event(4, BEFORE_CYCLE, "stall", (1,)),
            # while others elect uncleanly: that somebody bounces elsewhere is nothing to them
            Event(5, BEFORE_CYCLE, "bounce", (1,)),
        ),
    ),
    "who has deleted a topic does not begin it anew, whatever it is asked about its log dirs": Scenario(
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
    "who has deleted a topic is not told of its ISR, though that was notified late": Scenario(
        8,
        3,
        {"a": {0: [0, 1, 2]}},
        (
            # after others have registered: with each that does, a deletion is told anew
            Event(5, BEFORE_CYCLE, "stall", (2,)),
            Event(5, BEFORE_CYCLE, "lag", (1,)),
            Event(6, BEFORE_CYCLE, "delete", ("a",)),
            Event(7, BEFORE_CYCLE, "stall", (2,)),
        ),
    ),
    "a leader that runs writes its own state in the place of one that is illegible": Scenario(
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
    "a move goes on while a request in its place waits for its target": Scenario(
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
    "who restarted while a topic waited for its deletion is told of it once it is kept": Scenario(
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
    "a topic that was kept half deleted can be deleted": Scenario(
        12,
        3,
        {"a": {0: [0, 1, 2]}},
        (
            # after others have registered: with each that does, a deletion is told anew
            Event(5, BEFORE_CYCLE, "stall", (2,)),
            Event(5, BEFORE_CYCLE, "delete", ("a",)),
            Event(6, BEFORE_CYCLE, "keep", ("a",)),
            Event(7, BEFORE_CYCLE, "delete", ("a",)),
        ),
    ),
    "who fails over what it is told after a failure is told again": Scenario(
        13,
        3,
        {"a": {0: [0, 1, 2]}},
        (
            Event(3, BEFORE_CYCLE, "fail", (1, 4, False)),
            Event(3, BEFORE_CYCLE, "kill", (0,)),
        ),
        frozenset({0}),
    ),
    "who fails over one partition is told of it again": Scenario(
        14,
        3,
        {"a": {0: [0, 1, 2], 1: [0, 1, 2]}},
        (
            Event(3, BEFORE_CYCLE, "fail", (1, 1, True)),
            Event(3, BEFORE_CYCLE, "kill", (0,)),
        ),
        frozenset({0}),
    ),
    "who fails over a deletion is told of it again": Scenario(
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
    "who fails to stop a replica that leaves is asked again": Scenario(
        16,
        3,
        {"a": {0: [0, 1]}},
        (
            Event(3, BEFORE_CYCLE, "reassign", ("a", 0, [1])),
            Event(4, BEFORE_CYCLE, "fail", (0, 2, True)),
        ),
    ),
    "who fails over who is alive is told everything again": Scenario(
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
    "who is introduced again while it stops a replica is told nothing that starts it": Scenario(
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
