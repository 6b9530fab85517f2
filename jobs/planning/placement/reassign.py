"""`surveyor plan reassign`: one command for all questions about where replicas should live.

Corresponds to kafka-reassign-partitions. Targets come from a file as they are, or from the optimiser; either way they
pass the lint, and a plan that fails it is stored as refused with its faults as rejections. Under caps the changes come
in waves: one row a partition and wave, each starting where the one before ended.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from jobs.basics.errors import ExitCode, UsageError
from jobs.planning.placement.given_targets import BACK, BY_FILE, from_file, from_snapshot
from jobs.planning.placement.lint import Lint, Targets
from jobs.planning.placement.questions import Asked, Limits, ask
from jobs.planning.placement.size_file import read_size_file
from jobs.planning.placement.solution import placed
from jobs.planning.placement.weights import Weights
from jobs.planning.plan import Planned, Planner, Planning, question, report_plan
from jobs.records.snapshots import SnapshotTables
from jobs.runtime.settings import Settings
from planner.placement.waves import Caps

_GIVEN: Final[Mapping[str, Callable[[Any, Limits], Planner]]] = {BY_FILE: from_file, BACK: from_snapshot}
"""Questions whose answer is taken as it is."""

BY_TOPICS: Final = "--topics-to-move-json-file"


@question
def reassign(
    settings: Settings,
    *,
    reassignment_json_file: Annotated[
        Path | None,
        typer.Option(help="Targets, as kafka-reassign-partitions reads them; taken as they are."),
    ] = None,
    topics_to_move_json_file: Annotated[
        Path | None,
        typer.Option(help="Topics to spread evenly over --broker-list, as kafka-reassign-partitions reads them."),
    ] = None,
    broker_list: Annotated[str | None, typer.Option(help="Broker ids, by comma: all that may hold them.")] = None,
    add_brokers: Annotated[
        str | None, typer.Option(help="New brokers, by comma, to get their even share; others only give.")
    ] = None,
    remove_brokers: Annotated[str | None, typer.Option(help="Brokers, by comma, dead ones too, to empty.")] = None,
    replace: Annotated[str | None, typer.Option(help="7=107[,...]: what 7 holds goes to 107 where it can.")] = None,
    replication_factor: Annotated[int | None, typer.Option(min=1, help="Replicas of each partition.")] = None,
    rebalance: Annotated[bool, typer.Option("--rebalance", help="Make replicas and leaders even.")] = False,
    fix_racks: Annotated[
        bool, typer.Option("--fix-racks", help="Spread replicas over as many racks as can be.")
    ] = False,
    to_snapshot: Annotated[int | None, typer.Option(help="Back to the replicas that this snapshot shows.")] = None,
    topics: Annotated[str | None, typer.Option(help="Only topics whose whole name matches this regex.")] = None,
    exclude: Annotated[str | None, typer.Option(help="But not those whose whole name matches this one.")] = None,
    max_moves: Annotated[int | None, typer.Option(min=0, help="Copy at most this many replicas.")] = None,
    reorder_leaders: Annotated[
        bool,
        typer.Option("--reorder-leaders", help="Even out leaders also where no replica moves; --rebalance does."),
    ] = False,
    disable_rack_aware: Annotated[bool, typer.Option("--disable-rack-aware", help="Ignore racks.")] = False,
    sizes: Annotated[
        Path | None,
        typer.Option(help="Balance bytes: CSV or JSON of topic, partition, bytes of one replica."),
    ] = None,
    by_size: Annotated[bool, typer.Option("--by-size", help="Balance bytes, as `surveyor sizes` found them.")] = False,
    max_moves_per_broker: Annotated[
        int | None,
        typer.Option(min=1, help="Waves: copy at most this many replicas to, and take as many from, a broker at once."),
    ] = None,
    one_replica_at_a_time: Annotated[
        bool, typer.Option("--one-replica-at-a-time", help="Waves: replace one replica of a partition at once.")
    ] = False,
    planning: Planning,
) -> ExitCode:
    """Plan where replicas live, by exactly one question: a file, brokers, a replication factor, evenness, racks, ..."""
    option, value = _only_one(
        {
            BY_FILE: reassignment_json_file,
            BY_TOPICS: topics_to_move_json_file,
            "--add-brokers": add_brokers,
            "--remove-brokers": remove_brokers,
            "--replace": replace,
            "--replication-factor": replication_factor,
            "--rebalance": rebalance or None,
            "--fix-racks": fix_racks or None,
            BACK: to_snapshot,
        },
    )
    if (option == BY_TOPICS) != (broker_list is not None):
        raise UsageError(f"{BY_TOPICS} and --broker-list go together")
    limits = Limits(
        topics=topics,
        exclude=exclude,
        max_moves=max_moves,
        rack_aware=not disable_rack_aware,
        reorder=reorder_leaders,
        brokers=broker_list,
        caps=Caps(moves_per_broker=max_moves_per_broker, one_at_a_time=one_replica_at_a_time),
    )
    weights = _weights(option, sizes, by_size=by_size)
    planner = _GIVEN[option](value, limits) if option in _GIVEN else _optimised(ask(option, value, limits), weights)
    return report_plan(settings, planning, planner)


def _only_one(asked: Mapping[str, Any]) -> tuple[str, Any]:
    given = {option: value for option, value in asked.items() if value is not None}
    if len(given) != 1:
        found = f"not {' and '.join(given)}" if given else "none was given"
        raise UsageError(f"say exactly one of {', '.join(asked)}: {found}")
    return next(iter(given.items()))


def _weights(option: str, sizes: Path | None, *, by_size: bool) -> Weights | None:
    """Read where sizes come from; None where replicas are counted, not bytes."""
    if sizes is None and not by_size:
        return None
    if sizes is not None and by_size:
        raise UsageError("--sizes and --by-size exclude each other: a file, or what `surveyor sizes` found")
    if option in _GIVEN:
        raise UsageError(f"{option} is taken as it is: leave out --sizes and --by-size")
    return Weights() if sizes is None else Weights(path=sizes, file=read_size_file(sizes))


def _optimised(asked: Asked, weights: Weights | None) -> Planner:
    wanted = asked.wanted
    factor = wanted.question.replication_factor is not None
    lint = Lint(factor_may_change=factor, rack_aware=wanted.rack_aware, leaves_out=True)

    def planner(at: SnapshotTables) -> Planned:
        asked.refuse_unable(at)
        answer = placed(at, wanted, weights)
        faults = replace(lint, given_up=answer.given_up).faults(at, answer.targets).localCheckpoint()
        parameters = {**asked.parameters, "figures": answer.figures}
        return Targets(rows=answer.targets, parameters=parameters, held=answer.held).planned(at, faults)

    return planner
