"""Run one simulated cluster by its seed, or find the shortest scenario that still fails.

    .venv/bin/python -m tests.jobs.controller.model.replay SEED ROUNDS FAULT_SEED [--shorter] [--listen]

`FAULT_SEED` is the seed of the controller's faults; with `--listen` brokers propose ISRs to the controller. The
shortest scenario is found by running all scenarios that lack one event of it side by side, repeatedly: a simulation of
fifty clusters takes no longer than one of a single cluster.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace

from jobs.adapters.delta.warehouse import Warehouse
from tests.jobs.controller.model.clusters import SimulatedCluster
from tests.jobs.controller.model.scenarios import Scenario, draw_scenario
from tests.jobs.controller.model.simulation import Simulation, draw_faults, draw_listener

MAX_SHOWN = 3


def format_history(cluster: SimulatedCluster) -> str:
    """Return the history of a cluster with its faults."""
    script_ = replace(cluster.scenario, events=())
    return "\n".join([f"{script_}", *cluster.log, *(f"=> {add_fault}" for add_fault in cluster.faults)])


def format_failures(failing: Sequence[SimulatedCluster], simulation: int, rounds: int, *, listens: bool = False) -> str:
    """Return which clusters fail, with the shortest histories in full, and the command that runs one of them alone."""
    shown = sorted(failing, key=lambda cluster: len(cluster.log))
    lines = [f"{len(failing)} clusters fail"]
    lines += [f"seed {cluster.scenario.seed}: {cluster.faults[0]}" for cluster in shown]
    for cluster in shown[:MAX_SHOWN]:
        command = (
            f"python -m tests.jobs.controller.model.replay {cluster.scenario.seed} {rounds} {simulation} --shorter"
            f"{' --listen' * listens}"
        )
        lines += ["", f"--- seed {cluster.scenario.seed}; {command}", format_history(cluster)]
    return "\n".join(lines)


def run_scenarios(
    scenarios: Sequence[Scenario], rounds: int, simulation: int, *, listens: bool = False
) -> list[SimulatedCluster]:
    """Run scenarios in a simulation of their own; return all clusters."""
    with tempfile.TemporaryDirectory() as folder:
        listener = draw_listener(simulation) if listens else None
        whole = Simulation(Warehouse(folder, "model"), scenarios, rounds, draw_faults(simulation, rounds), listener)
        whole.run()
        return whole.clusters


def shrink(history: Scenario, rounds: int, simulation: int, *, listens: bool = False) -> Scenario:
    """Leave out events as long as any fault remains."""
    while history.events:
        variants = [history.without(index) for index in range(len(history.events))]
        removable = [
            index
            for index, cluster in enumerate(run_scenarios(variants, rounds, simulation, listens=listens))
            if cluster.faults
        ]
        if not removable:
            break
        without_all = replace(
            history, events=tuple(event for index, event in enumerate(history.events) if index not in removable)
        )
        (reduced,) = run_scenarios([without_all], rounds, simulation, listens=listens)
        history = without_all if reduced.faults else history.without(removable[0])
    return history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("seed", "rounds", "simulation"):
        parser.add_argument(name, type=int)
    parser.add_argument("--shorter", action="store_true")
    parser.add_argument("--listen", action="store_true")
    arguments = parser.parse_args()
    listens = arguments.listen
    history = draw_scenario(arguments.seed, arguments.rounds, proposes=listens)
    if arguments.shorter:
        history = shrink(history, arguments.rounds, arguments.simulation, listens=listens)
    (cluster,) = run_scenarios([history], arguments.rounds, arguments.simulation, listens=listens)
    print(format_history(cluster))  # noqa: T201 - the output of the script


if __name__ == "__main__":
    main()
