"""One island alone, by its seed; and the shortest history that still fails.

    .venv/bin/python -m tests.jobs.controller.model.replay SEED ROUNDS WORLD [--shorter]

`WORLD` is the seed of what befalls the controller. The shortest history is found by running all histories that lack one
event of it side by side, again and again: a world of fifty islands takes no longer than a world of one.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.spark.session import INTERPRETED, start_session
from tests.jobs.controller.model.clusters import SimulatedCluster
from tests.jobs.controller.model.scenarios import Scenario, draw_scenario
from tests.jobs.controller.model.simulation import Simulation, draw_faults

MAX_SHOWN = 3


def format_history(cluster: SimulatedCluster) -> str:
    """Tell the history of an island, with what befell it."""
    script_ = replace(cluster.scenario, events=())
    return "\n".join([f"{script_}", *cluster.log, *(f"=> {add_fault}" for add_fault in cluster.faults)])


def format_failures(failing: Sequence[SimulatedCluster], simulation: int, rounds: int) -> str:
    """Say which islands fail, the shortest histories first and whole, and how to run one of them alone."""
    some = sorted(failing, key=lambda cluster: len(cluster.log))
    lines = [f"{len(failing)} islands fail"]
    lines += [f"seed {cluster.scenario.seed}: {cluster.faults[0]}" for cluster in some]
    for cluster in some[:MAX_SHOWN]:
        command = (
            f"python -m tests.jobs.controller.model.replay {cluster.scenario.seed} {rounds} {simulation} --shorter"
        )
        lines += ["", f"--- seed {cluster.scenario.seed}; {command}", format_history(cluster)]
    return "\n".join(lines)


def run_scenarios(
    spark: SparkSession, scenarios: Sequence[Scenario], rounds: int, simulation: int
) -> list[SimulatedCluster]:
    """Run histories in a world of their own; return all islands."""
    with tempfile.TemporaryDirectory() as folder:
        whole = Simulation(spark, Warehouse(folder, "model"), scenarios, rounds, draw_faults(simulation, rounds))
        whole.run()
        return whole.clusters


def shrink(spark: SparkSession, history: Scenario, rounds: int, simulation: int) -> Scenario:
    """Leave out events as long as some fault stays."""
    while history.events:
        variants = [history.without(index) for index in range(len(history.events))]
        lean = [
            index for index, cluster in enumerate(run_scenarios(spark, variants, rounds, simulation)) if cluster.faults
        ]
        if not lean:
            break
        without_all = replace(
            history, events=tuple(each for index, each in enumerate(history.events) if index not in lean)
        )
        (together,) = run_scenarios(spark, [without_all], rounds, simulation)
        history = without_all if together.faults else history.without(lean[0])
    return history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("seed", "rounds", "world"):
        parser.add_argument(name, type=int)
    parser.add_argument("--shorter", action="store_true")
    given = parser.parse_args()
    spark = start_session("surveyor-model", {"spark.master": "local[2]", **INTERPRETED})
    history = draw_scenario(given.seed, given.rounds)
    if given.shorter:
        history = shrink(spark, history, given.rounds, given.simulation)
    (cluster,) = run_scenarios(spark, [history], given.rounds, given.simulation)
    print(format_history(cluster))  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
