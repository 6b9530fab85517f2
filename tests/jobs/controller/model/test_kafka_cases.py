"""What Kafka's own tests expect of a controller, row by row of `kafka_cases`, and the `regressions` beside it.

One world has them all, as a decision by Spark takes as long for one island as for fifty; a second one has those in
which the controller is killed in the midst.
"""

import pytest
from pyspark.sql import SparkSession

from jobs.adapters.delta.warehouse import Warehouse
from schemas.enums import NO_LEADER
from tests.jobs.controller.model.archipelago import Ordeal, World
from tests.jobs.controller.model.islands import ELECT, REASSIGN, Island
from tests.jobs.controller.model.kafka_cases import CASES, FAIL_OVERS, FAILS_OVER, MOVES, MOVING, ROUNDS, SEED_003, Case
from tests.jobs.controller.model.network import MOST_BROKERS
from tests.jobs.controller.model.regressions import REGRESSIONS
from tests.jobs.controller.model.replay import told
from tests.jobs.controller.model.scripts import Event, Point, Script


@pytest.fixture(scope="module")
def islands(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Island]:
    """All of them at rest, by name: Kafka's cases, what was found, and seed 003 with the controller on C."""
    scripts = _scripts(CASES) | REGRESSIONS | {"moves": MOVING, "seed 003": SEED_003}
    world = World(spark, Warehouse(str(tmp_path_factory.mktemp("model")), "model"), [*scripts.values()], ROUNDS)
    world.run()
    return dict(zip(scripts, world.islands, strict=True))


@pytest.fixture(scope="module")
def failed_over(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Island]:
    """Those in which one controller is killed and another one takes over; in seed 003, as B goes down."""
    scripts = _scripts(FAIL_OVERS) | {"seed 003": SEED_003}
    killed = {FAILS_OVER: Ordeal("killed", 1, late=False)}
    world = World(spark, Warehouse(str(tmp_path_factory.mktemp("model")), "model"), [*scripts.values()], ROUNDS, killed)
    world.run()
    assert world.offices == 2
    return dict(zip(scripts, world.islands, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_what_kafka_expects_of_its_controller(islands: dict[str, Island], name: str) -> None:
    assert _differs(CASES[name], islands[name]) == [], told(islands[name])


@pytest.mark.parametrize("name", MOVES)
def test_what_kafka_expects_of_moves(islands: dict[str, Island], name: str) -> None:
    assert _differs(MOVES[name], islands["moves"]) == [], told(islands["moves"])


@pytest.mark.parametrize("name", FAIL_OVERS)
def test_what_kafka_expects_when_its_controller_fails_over(failed_over: dict[str, Island], name: str) -> None:
    assert _differs(FAIL_OVERS[name], failed_over[name]) == [], told(failed_over[name])


@pytest.mark.parametrize("name", REGRESSIONS)
def test_what_was_found_once_stays_mended(islands: dict[str, Island], name: str) -> None:
    assert islands[name].faults == [], told(islands[name])


@pytest.mark.parametrize(("topic", "last"), [("a_then_b", 1), ("b_then_a", 2)])
def test_seed_003_what_goes_down_counts_and_not_where_the_controller_was(
    islands: dict[str, Island], failed_over: dict[str, Island], topic: str, last: int
) -> None:
    """Kafka 2.0 left no leader and no ISR with the controller on C; on B, it left B as leader and ISR.

    Who led may have shrunk its ISR itself while nobody was the controller, so leader epochs may differ.
    """
    for island in (islands["seed 003"], failed_over["seed 003"]):
        znode = island.state((island.topic(topic), 0))
        assert znode is not None
        assert (znode[0].leader, [*map(_local, znode[0].isr)]) == (NO_LEADER, [last]), told(island)
        assert island.faults == [], told(island)


def _scripts(cases: dict[str, Case]) -> dict[str, Script]:
    return {name: _script(case) for name, case in cases.items()}


def _script(case: Case) -> Script:
    events = tuple(Event(number, Point.BEFORE, kind, args) for number, kind, args in case.events)
    return Script(0, 3, {"a": case.replicas}, events, case.stay_dead, case.stay_failed)


def _differs(case: Case, island: Island) -> list[str]:
    """Say what is not as expected, and what breaks an invariant."""
    wrong = [*island.faults]
    for (name, partition), expected in case.states.items():
        znode = island.state((island.topic(name), partition))
        state = (
            None if znode is None else (_local(znode[0].leader), znode[0].leader_epoch, [*map(_local, znode[0].isr)])
        )
        if state != expected:
            wrong.append(f"{name}-{partition} is {state}, expected is {expected}")
        kept = [each.id for each in island.brokers.values() if (island.topic(name), partition) in each.logs]
        if expected is None and kept:
            wrong.append(f"{name}-{partition} still has logs, on {kept}")
    for (name, partition), replicas in case.assigned.items():
        assignment = island.assignment(island.topic(name))
        assert assignment is not None
        if [*map(_local, assignment.partitions[partition])] != replicas:
            wrong.append(f"{name}-{partition} is assigned as {assignment}, expected is {replicas}")
    if any(island.is_queued(island.topic(name)) for name in ("a", "b", "nothing")) != case.queued:
        wrong.append("the deletion is still queued" if not case.queued else "the deletion is not queued any more")
    moves = any(set(case.assigned.get(key, ())) > {*state[2]} for key, state in case.states.items() if state)
    if [*island.orders(ELECT)] or bool([*island.orders(REASSIGN)]) != (moves or case.is_asked):
        wrong.append(f"requests that stand: {[*island.orders(ELECT), *island.orders(REASSIGN)]}")
    return wrong


def _local(broker: int) -> int:
    return broker % MOST_BROKERS if broker >= 0 else broker
