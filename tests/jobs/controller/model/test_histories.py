"""Random histories of many little clusters at once: what must hold at each write, and once all is quiet.

`make test` lives through some. As many as wanted, in archipelagos and in worlds of a few islands, where nobody else's
events wake the controller:

    HISTORIES=4000 .venv/bin/pytest -m torture tests/jobs/controller/model
"""

import os
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from jobs.adapters.delta.warehouse import Warehouse
from tests.jobs.controller.model.network import Network
from tests.jobs.controller.model.replay import format_failures
from tests.jobs.controller.model.scenarios import Event, Point, Scenario, draw_scenario
from tests.jobs.controller.model.simulation import Simulation, draw_faults

ISLANDS, ROUNDS = 24, 4
"""Of the run that is part of every test run. Rules look at each partition with all brokers, so that with twice as many
islands a decision takes more than twice as long."""

FAULT_SEED = 3
"""The seed of what befalls the controller in it: it crashes three times, once with nothing told of what it wrote."""

HISTORIES: Final = int(os.environ.get("HISTORIES", "0"))
LARGE, SMALL, LONG = 25, 3, 8
"""Islands of a large and of a small world, and the rounds of both."""


def test_histories(spark: SparkSession, tmp_path: Path) -> None:
    scenarios = [draw_scenario(seed, ROUNDS) for seed in range(ISLANDS)]
    simulation = Simulation(
        spark, Warehouse(str(tmp_path), "model"), scenarios, ROUNDS, draw_faults(FAULT_SEED, ROUNDS)
    )

    failing = simulation.run()

    assert simulation.controller_terms > 1, "the controller was never to end"
    assert not failing, format_failures(failing, FAULT_SEED, ROUNDS)


@pytest.mark.torture
@pytest.mark.skipif(not HISTORIES, reason="HISTORIES says how many are wanted")
@pytest.mark.parametrize("first", [*range(0, HISTORIES, LARGE), *range(HISTORIES, HISTORIES + HISTORIES // 10, SMALL)])
def test_as_many_histories_as_wanted(spark: SparkSession, tmp_path: Path, first: int) -> None:
    clusters = LARGE if first < HISTORIES else SMALL
    scenarios = [draw_scenario(seed, LONG) for seed in range(first, first + clusters)]

    failing = Simulation(spark, Warehouse(str(tmp_path), "model"), scenarios, LONG, draw_faults(first, LONG)).run()

    assert not failing, format_failures(failing, first, LONG)


def test_a_queue_that_swallows_notices_is_caught(spark: SparkSession, tmp_path: Path) -> None:
    """The model can fail: of two islands of the same history, one has a broker that hears nothing of an election."""
    history = Scenario(0, 3, {"a": {0: [0, 1, 2]}}, (Event(0, Point.BEFORE_CYCLE, "kill", (0,)),), frozenset({0}))
    deaf = Network({})
    simulation = Simulation(spark, Warehouse(str(tmp_path), "model"), [history, history], 1, network=deaf)
    accepts = deaf.accepts
    deaf.accepts = lambda broker: (
        accepts(broker) and not (broker == 12 and simulation.tree.get("/brokers/ids/10") is None)
    )

    (failing,) = simulation.run()

    assert failing.index == 1
    assert any("12 does not follow" in add_fault for add_fault in failing.faults)
