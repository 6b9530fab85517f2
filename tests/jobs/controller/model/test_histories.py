"""Random histories of many simulated clusters: invariants at each write, and once all is quiet.

`make test` runs some of them. To run more, in large simulations and in small ones, where events of other clusters do
not wake the controller:

    HISTORIES=4000 .venv/bin/pytest -m torture tests/jobs/controller/model
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest

from jobs.adapters.delta.warehouse import Warehouse
from jobs.controller.broker_apis.isr_changes import IsrChanges
from jobs.controller.broker_apis.isr_writer import IsrWriter
from planner.rules.alter_partition import IsrCandidates, IsrError, IsrProposal, IsrVerdict, check_proposal
from schemas.partition_info import PartitionInfo
from schemas.rows import Key
from tests.jobs.controller.model.leaders import NONE
from tests.jobs.controller.model.network import Network
from tests.jobs.controller.model.replay import format_failures
from tests.jobs.controller.model.scenarios import Event, Point, Scenario, draw_scenario
from tests.jobs.controller.model.simulation import PROTOCOLS, Listener, Simulation, draw_faults, draw_listener

CLUSTERS, ROUNDS = 24, 4
"""Clusters and rounds of the run that is part of every test run.

Rules join each partition with all brokers, so that with twice as many clusters a decision takes more than twice as
long.
"""

FAULT_SEED = 3
"""The seed of the controller's faults in it: it crashes three times, once before it has sent what it wrote."""

HISTORIES: Final = int(os.environ.get("HISTORIES", "0"))
LARGE_SIMULATION, SMALL_SIMULATION, LONG_ROUNDS = 25, 3, 8
"""Clusters of a large and of a small simulation, and the rounds of both."""


def test_histories(tmp_path: Path) -> None:
    scenarios = [draw_scenario(seed, ROUNDS) for seed in range(CLUSTERS)]
    simulation = Simulation(Warehouse(str(tmp_path), "model"), scenarios, ROUNDS, draw_faults(FAULT_SEED, ROUNDS))

    failing = simulation.run()

    assert simulation.controller_terms > 1, "no controller ended"
    assert not failing, format_failures(failing, FAULT_SEED, ROUNDS)


@pytest.mark.parametrize(("protocol", "version"), PROTOCOLS)
def test_histories_with_proposed_isrs(tmp_path: Path, protocol: str, version: int) -> None:
    """Brokers propose ISRs to the controller, as at their default protocol."""
    first = version * CLUSTERS
    scenarios = [draw_scenario(seed, ROUNDS, proposes=True) for seed in range(first, first + CLUSTERS)]
    faults, listener = draw_faults(FAULT_SEED, ROUNDS), Listener(protocol, version, FAULT_SEED)
    simulation = Simulation(Warehouse(str(tmp_path), "model"), scenarios, ROUNDS, faults, listener)

    failing = simulation.run()

    assert simulation.oracle.codes[NONE] > 0, "no leader proposed an ISR"
    assert not failing, format_failures(failing, FAULT_SEED, ROUNDS, listens=True)


def test_unchecked_proposal_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle can fail: of a controller that accepts each proposal for a partition with a state."""
    monkeypatch.setattr(
        "jobs.controller.broker_apis.isr_writer.check_proposal",
        lambda _, row, *__, **___: IsrVerdict(IsrError.NONE, changes=row is not None and row.state_version is not None),
    )
    scenarios = [draw_scenario(seed, ROUNDS, proposes=True) for seed in range(CLUSTERS)]
    listener = Listener("3.9", 3, FAULT_SEED)

    failing = Simulation(Warehouse(str(tmp_path), "model"), scenarios, ROUNDS, listener=listener).run()

    assert any("no leader has proposed" in fault for cluster in failing for fault in cluster.faults)


def _let_stopping_brokers_join(monkeypatch: pytest.MonkeyPatch) -> None:
    def candidates(changes: IsrChanges) -> IsrCandidates:
        return IsrCandidates({row.broker_id: row.zk_broker_epoch for row in [*changes.context.brokers.values()]})

    monkeypatch.setattr(IsrChanges, "candidates", candidates)


def _refuse_without_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    read = IsrWriter._read  # noqa: SLF001

    def read_unless_refused(writer: IsrWriter, proposals: Sequence[IsrProposal]) -> dict[Key, PartitionInfo | None]:
        known = {proposal.key: writer._row(proposal.key) for proposal in proposals}  # noqa: SLF001
        rows, candidates = read(writer, proposals), writer.candidates()
        for entry in proposals:
            if check_proposal(entry, known[entry.key], candidates, version=3).error is not IsrError.NONE:
                rows[entry.key] = known[entry.key]
        return rows

    monkeypatch.setattr(IsrWriter, "_read", read_unless_refused)


def _leave_reassignments(monkeypatch: pytest.MonkeyPatch) -> None:
    publish = IsrChanges.publish
    monkeypatch.setattr(
        IsrChanges,
        "publish",
        lambda changes: publish(changes) - changes.context.moving - changes.context.requested_partitions,
    )


@pytest.mark.parametrize(
    ("plant", "fault"),
    [
        (_let_stopping_brokers_join, "brokers join the ISR that shut down"),
        (_refuse_without_reading, "gets error 41 for"),
        (_leave_reassignments, "its move never ends"),
    ],
)
def test_planted_faults_are_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], fault: str
) -> None:
    plant(monkeypatch)
    scenarios = [draw_scenario(seed, ROUNDS, proposes=True) for seed in range(CLUSTERS)]
    listener = Listener("3.9", 3, FAULT_SEED)

    failing = Simulation(Warehouse(str(tmp_path), "model"), scenarios, ROUNDS, listener=listener).run()

    assert any(fault in found for cluster in failing for found in cluster.faults)


@pytest.mark.torture
@pytest.mark.skipif(not HISTORIES, reason="set HISTORIES to the number of histories")
@pytest.mark.parametrize(
    "first", [*range(0, HISTORIES, LARGE_SIMULATION), *range(HISTORIES, HISTORIES + HISTORIES // 10, SMALL_SIMULATION)]
)
@pytest.mark.parametrize("listens", [False, True])
def test_many_histories(tmp_path: Path, first: int, listens: bool) -> None:  # noqa: FBT001 - a parameter of the test
    clusters = LARGE_SIMULATION if first < HISTORIES else SMALL_SIMULATION
    scenarios = [draw_scenario(seed, LONG_ROUNDS, proposes=listens) for seed in range(first, first + clusters)]
    listener = draw_listener(first) if listens else None

    failing = Simulation(
        Warehouse(str(tmp_path), "model"), scenarios, LONG_ROUNDS, draw_faults(first, LONG_ROUNDS), listener
    ).run()

    assert not failing, format_failures(failing, first, LONG_ROUNDS, listens=listens)


def test_lost_notice_is_detected(tmp_path: Path) -> None:
    """The model can fail: of two clusters with the same scenario, one has a broker that misses an election."""
    history = Scenario(0, 3, {"a": {0: [0, 1, 2]}}, (Event(0, Point.BEFORE_CYCLE, "kill", (0,)),), frozenset({0}))
    network = Network({})
    simulation = Simulation(Warehouse(str(tmp_path), "model"), [history, history], 1, network=network)
    accepts = network.accepts
    network.accepts = lambda broker: (
        accepts(broker) and not (broker == 12 and simulation.tree.get("/brokers/ids/10") is None)
    )

    (failing,) = simulation.run()

    assert failing.index == 1
    assert any("12 does not follow" in add_fault for add_fault in failing.faults)
