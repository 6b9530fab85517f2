"""What Kafka's own tests expect of a controller, row by row of `kafka_cases`, and the `regressions` beside it.

One world has them all, as a decision by Spark takes as long for one island as for fifty; a second one has those in
which the controller is killed in the midst.
"""

import pytest
from pyspark.sql import SparkSession

from jobs.adapters.delta.warehouse import Warehouse
from schemas.enums import NO_LEADER
from tests.jobs.controller.model.clusters import ELECT, REASSIGN, SimulatedCluster
from tests.jobs.controller.model.kafka_cases import (
    CASES,
    FAILOVER_CASES,
    FAILOVER_ROUND,
    REASSIGNMENT_CASES,
    REASSIGNMENT_SCENARIO,
    ROUNDS,
    SHUTDOWN_ORDER,
    Case,
)
from tests.jobs.controller.model.network import MAX_BROKERS
from tests.jobs.controller.model.regressions import REGRESSIONS
from tests.jobs.controller.model.replay import format_history
from tests.jobs.controller.model.scenarios import Event, Point, Scenario
from tests.jobs.controller.model.simulation import ControllerFault, Simulation


@pytest.fixture(scope="module")
def clusters(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, SimulatedCluster]:
    """All of them at rest, by name: Kafka's cases, what was found, and seed 003 with the controller on C."""
    scenarios = _scripts(CASES) | REGRESSIONS | {"moves": REASSIGNMENT_SCENARIO, "seed 003": SHUTDOWN_ORDER}
    simulation = Simulation(
        spark, Warehouse(str(tmp_path_factory.mktemp("model")), "model"), [*scenarios.values()], ROUNDS
    )
    simulation.run()
    return dict(zip(scenarios, simulation.clusters, strict=True))


@pytest.fixture(scope="module")
def failed_over(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, SimulatedCluster]:
    """Those in which one controller is killed and another one takes over; in seed 003, as B goes down."""
    scenarios = _scripts(FAILOVER_CASES) | {"seed 003": SHUTDOWN_ORDER}
    killed = {FAILOVER_ROUND: ControllerFault("killed", 1, late=False)}
    simulation = Simulation(
        spark, Warehouse(str(tmp_path_factory.mktemp("model")), "model"), [*scenarios.values()], ROUNDS, killed
    )
    simulation.run()
    assert simulation.controller_terms == 2
    return dict(zip(scenarios, simulation.clusters, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_what_kafka_expects_of_its_controller(clusters: dict[str, SimulatedCluster], name: str) -> None:
    assert _differs(CASES[name], clusters[name]) == [], format_history(clusters[name])


@pytest.mark.parametrize("name", REASSIGNMENT_CASES)
def test_what_kafka_expects_of_moves(clusters: dict[str, SimulatedCluster], name: str) -> None:
    assert _differs(REASSIGNMENT_CASES[name], clusters["moves"]) == [], format_history(clusters["moves"])


@pytest.mark.parametrize("name", FAILOVER_CASES)
def test_what_kafka_expects_when_its_controller_fails_over(failed_over: dict[str, SimulatedCluster], name: str) -> None:
    assert _differs(FAILOVER_CASES[name], failed_over[name]) == [], format_history(failed_over[name])


@pytest.mark.parametrize("name", REGRESSIONS)
def test_what_was_found_once_stays_mended(clusters: dict[str, SimulatedCluster], name: str) -> None:
    assert clusters[name].faults == [], format_history(clusters[name])


@pytest.mark.parametrize(("topic", "last"), [("a_then_b", 1), ("b_then_a", 2)])
def test_seed_003_what_goes_down_counts_and_not_where_the_controller_was(
    clusters: dict[str, SimulatedCluster], failed_over: dict[str, SimulatedCluster], topic: str, last: int
) -> None:
    """Kafka 2.0 left no leader and no ISR with the controller on C; on B, it left B as leader and ISR.

    Who led may have shrunk its ISR itself while nobody was the controller, so leader epochs may differ.
    """
    for cluster in (clusters["seed 003"], failed_over["seed 003"]):
        znode = cluster.state((cluster.topic(topic), 0))
        assert znode is not None
        assert (znode[0].leader, [*map(_local, znode[0].isr)]) == (NO_LEADER, [last]), format_history(cluster)
        assert cluster.faults == [], format_history(cluster)


def _scripts(cases: dict[str, Case]) -> dict[str, Scenario]:
    return {name: _script(case) for name, case in cases.items()}


def _script(case: Case) -> Scenario:
    events = tuple(Event(number, Point.BEFORE_CYCLE, kind, args) for number, kind, args in case.events)
    return Scenario(0, 3, {"a": case.replicas}, events, case.stay_dead, case.stay_failed)


def _differs(case: Case, cluster: SimulatedCluster) -> list[str]:
    """Say what is not as expected, and what breaks an invariant."""
    wrong = [*cluster.faults]
    for (name, partition), expected in case.states.items():
        znode = cluster.state((cluster.topic(name), partition))
        state = (
            None if znode is None else (_local(znode[0].leader), znode[0].leader_epoch, [*map(_local, znode[0].isr)])
        )
        if state != expected:
            wrong.append(f"{name}-{partition} is {state}, expected is {expected}")
        kept = [each.id for each in cluster.brokers.values() if (cluster.topic(name), partition) in each.logs]
        if expected is None and kept:
            wrong.append(f"{name}-{partition} still has logs, on {kept}")
    for (name, partition), replicas in case.assigned.items():
        assignment = cluster.assignment(cluster.topic(name))
        assert assignment is not None
        if [*map(_local, assignment.partitions[partition])] != replicas:
            wrong.append(f"{name}-{partition} is assigned as {assignment}, expected is {replicas}")
    if any(cluster.is_queued(cluster.topic(name)) for name in ("a", "b", "nothing")) != case.queued:
        wrong.append("the deletion is still queued" if not case.queued else "the deletion is not queued any more")
    moves = any(set(case.assigned.get(key, ())) > {*state[2]} for key, state in case.states.items() if state)
    if [*cluster.orders(ELECT)] or bool([*cluster.orders(REASSIGN)]) != (moves or case.is_asked):
        wrong.append(f"requests that stand: {[*cluster.orders(ELECT), *cluster.orders(REASSIGN)]}")
    return wrong


def _local(broker: int) -> int:
    return broker % MAX_BROKERS if broker >= 0 else broker
