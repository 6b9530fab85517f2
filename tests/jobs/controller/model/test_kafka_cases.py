"""What Kafka's own tests expect of a controller, case by case of `kafka_cases`, and the `regressions`.

One simulation runs them all, as a decision by Spark takes as long for one cluster as for fifty; a second one runs those
in which the controller is killed.
"""

import pytest

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
def clusters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SimulatedCluster]:
    """All clusters once they are quiet, by name: Kafka's cases, regressions, and the shutdown order."""
    scenarios = _scenarios(CASES) | REGRESSIONS | {"moves": REASSIGNMENT_SCENARIO, "shutdown order": SHUTDOWN_ORDER}
    simulation = Simulation(Warehouse(str(tmp_path_factory.mktemp("model")), "model"), [*scenarios.values()], ROUNDS)
    simulation.run()
    return dict(zip(scenarios, simulation.clusters, strict=True))


@pytest.fixture(scope="module")
def failover_clusters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SimulatedCluster]:
    """Those in which one controller is killed and another takes over, for the shutdown order when B goes down."""
    scenarios = _scenarios(FAILOVER_CASES) | {"shutdown order": SHUTDOWN_ORDER}
    killed = {FAILOVER_ROUND: ControllerFault("killed", 1, late=False)}
    simulation = Simulation(
        Warehouse(str(tmp_path_factory.mktemp("model")), "model"), [*scenarios.values()], ROUNDS, killed
    )
    simulation.run()
    assert simulation.controller_terms == 2
    return dict(zip(scenarios, simulation.clusters, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_kafka_controller_case(clusters: dict[str, SimulatedCluster], name: str) -> None:
    assert _differences(CASES[name], clusters[name]) == [], format_history(clusters[name])


@pytest.mark.parametrize("name", REASSIGNMENT_CASES)
def test_kafka_reassignment_case(clusters: dict[str, SimulatedCluster], name: str) -> None:
    assert _differences(REASSIGNMENT_CASES[name], clusters["moves"]) == [], format_history(clusters["moves"])


@pytest.mark.parametrize("name", FAILOVER_CASES)
def test_kafka_failover_case(failover_clusters: dict[str, SimulatedCluster], name: str) -> None:
    assert _differences(FAILOVER_CASES[name], failover_clusters[name]) == [], format_history(failover_clusters[name])


@pytest.mark.parametrize("name", REGRESSIONS)
def test_regression(clusters: dict[str, SimulatedCluster], name: str) -> None:
    assert clusters[name].faults == [], format_history(clusters[name])


@pytest.mark.parametrize(("topic", "last"), [("a_then_b", 1), ("b_then_a", 2)])
def test_shutdown_order_is_independent_of_the_controller(
    clusters: dict[str, SimulatedCluster], failover_clusters: dict[str, SimulatedCluster], topic: str, last: int
) -> None:
    """Kafka 2.0 left no leader and no ISR with the controller on C; on B, it left B as leader and ISR.

    A leader may have shrunk its ISR itself while there was no controller, so leader epochs may differ.
    """
    for cluster in (clusters["shutdown order"], failover_clusters["shutdown order"]):
        znode = cluster.state((cluster.topic(topic), 0))
        assert znode is not None
        assert (znode[0].leader, [*map(_local, znode[0].isr)]) == (NO_LEADER, [last]), format_history(cluster)
        assert cluster.faults == [], format_history(cluster)


def _scenarios(cases: dict[str, Case]) -> dict[str, Scenario]:
    return {name: _scenario(case) for name, case in cases.items()}


def _scenario(case: Case) -> Scenario:
    events = tuple(Event(number, Point.BEFORE_CYCLE, kind, args) for number, kind, args in case.events)
    return Scenario(0, 3, {"a": case.replicas}, events, case.stay_dead, case.stay_failed)


def _differences(case: Case, cluster: SimulatedCluster) -> list[str]:
    """Return what differs from the expectation, and violated invariants."""
    differences = [*cluster.faults]
    for (name, partition), expected in case.states.items():
        znode = cluster.state((cluster.topic(name), partition))
        state = (
            None if znode is None else (_local(znode[0].leader), znode[0].leader_epoch, [*map(_local, znode[0].isr)])
        )
        if state != expected:
            differences.append(f"{name}-{partition} is {state}, expected is {expected}")
        kept = [broker.id for broker in cluster.brokers.values() if (cluster.topic(name), partition) in broker.logs]
        if expected is None and kept:
            differences.append(f"{name}-{partition} still has logs, on {kept}")
    for (name, partition), replicas in case.assigned.items():
        assignment = cluster.assignment(cluster.topic(name))
        assert assignment is not None
        if [*map(_local, assignment.partitions[partition])] != replicas:
            differences.append(f"{name}-{partition} is assigned as {assignment}, expected is {replicas}")
    if any(cluster.is_queued(cluster.topic(name)) for name in ("a", "b", "nothing")) != case.queued:
        differences.append("the deletion is still queued" if not case.queued else "the deletion is not queued any more")
    moves = any(set(case.assigned.get(key, ())) > {*state[2]} for key, state in case.states.items() if state)
    if [*cluster.orders(ELECT)] or bool([*cluster.orders(REASSIGN)]) != (moves or case.has_request):
        differences.append(f"remaining requests: {[*cluster.orders(ELECT), *cluster.orders(REASSIGN)]}")
    return differences


def _local(broker: int) -> int:
    return broker % MAX_BROKERS if broker >= 0 else broker
