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
from tests.jobs.controller.model.archipelago import World, ordeals
from tests.jobs.controller.model.islands import Island
from tests.jobs.controller.model.scripts import Script, script

MOST_SHOWN = 3


def told(island: Island) -> str:
    """Tell the history of an island, with what befell it."""
    script_ = replace(island.script, events=())
    return "\n".join([f"{script_}", *island.log, *(f"=> {fault}" for fault in island.faults)])


def reported(failing: Sequence[Island], world: int, rounds: int) -> str:
    """Say which islands fail, the shortest histories first and whole, and how to run one of them alone."""
    some = sorted(failing, key=lambda island: len(island.log))
    lines = [f"{len(failing)} islands fail"]
    lines += [f"seed {island.script.seed}: {island.faults[0]}" for island in some]
    for island in some[:MOST_SHOWN]:
        command = f"python -m tests.jobs.controller.model.replay {island.script.seed} {rounds} {world} --shorter"
        lines += ["", f"--- seed {island.script.seed}; {command}", told(island)]
    return "\n".join(lines)


def lived(spark: SparkSession, scripts: Sequence[Script], rounds: int, world: int) -> list[Island]:
    """Run histories in a world of their own; return all islands."""
    with tempfile.TemporaryDirectory() as folder:
        whole = World(spark, Warehouse(folder, "model"), scripts, rounds, ordeals(world, rounds))
        whole.run()
        return whole.islands


def shortest(spark: SparkSession, history: Script, rounds: int, world: int) -> Script:
    """Leave out events as long as some fault stays."""
    while history.events:
        variants = [history.without(index) for index in range(len(history.events))]
        lean = [index for index, island in enumerate(lived(spark, variants, rounds, world)) if island.faults]
        if not lean:
            break
        without_all = replace(
            history, events=tuple(each for index, each in enumerate(history.events) if index not in lean)
        )
        (together,) = lived(spark, [without_all], rounds, world)
        history = without_all if together.faults else history.without(lean[0])
    return history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("seed", "rounds", "world"):
        parser.add_argument(name, type=int)
    parser.add_argument("--shorter", action="store_true")
    given = parser.parse_args()
    spark = start_session("surveyor-model", {"spark.master": "local[2]", **INTERPRETED})
    history = script(given.seed, given.rounds)
    if given.shorter:
        history = shortest(spark, history, given.rounds, given.world)
    (island,) = lived(spark, [history], given.rounds, given.world)
    print(told(island))  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
