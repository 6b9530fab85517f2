"""`surveyor plan`: compute a plan on Spark from a snapshot and store it for review; no cluster is written to."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from jobs.core.errors import ExitCode, UsageError
from jobs.plan_topics import assign, config, delete, expand
from jobs.runtime.completion import brokers as known_brokers
from jobs.runtime.completion import by_comma, snapshots
from jobs.runtime.help_pages import HelpPage
from jobs.runtime.lazy_commands import HELP
from jobs.runtime.options import AllowUnclean, Requests, Throttle, check_throttle
from jobs.runtime.plan_options import PlanOptions, question
from jobs.runtime.settings import Settings
from schemas.enums import DrainMode

Brokers = Annotated[
    str,
    typer.Option(help="Broker ids, by comma; several are one decision.", autocompletion=by_comma(known_brokers)),
]

BY_TOPICS: Final = "--topics-to-move-json-file"


@question
def reconcile(
    settings: Settings,
    *,
    allow_unclean: AllowUnclean = False,
    requests: Requests = False,
    options: PlanOptions,
) -> ExitCode:
    """Plan what is due after failures: dead leaders replaced, dead followers out of the ISR, first leaders."""
    from jobs.planning.plan import report_plan
    from jobs.planning.reconcile import plan_reconcile

    return report_plan(settings, options, lambda at: plan_reconcile(at, allow_unclean=allow_unclean, requests=requests))


@question
def elect(
    settings: Settings,
    *,
    preferred: Annotated[bool, typer.Option("--preferred", help="Give leadership back to preferred replicas.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Replace leaders that are not alive, as reconcile would.")
    ] = False,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="The same; where no ISR member is alive, by an election that may lose data."),
    ] = False,
    path_to_json_file: Annotated[
        Path | None,
        typer.Option(
            help="Only these partitions, as kafka-leader-election reads them "
            "[default: those of brokers above the threshold; those without a live leader].",
        ),
    ] = None,
    imbalance_threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Preferred: for brokers whose ratio is strictly above [default: 0.1]."),
    ] = None,
    max_elections: Annotated[
        int | None,
        typer.Option(min=1, help="Preferred: plan so many at most, those for the worst brokers first."),
    ] = None,
    stable_for: Annotated[
        int | None,
        typer.Option(min=1, help="Preferred: only where the replica has been in the ISR in the last K snapshots."),
    ] = None,
    settle: Annotated[
        str | None,
        typer.Option(help="Preferred: not onto brokers that joined less than this before the snapshot: 10m, 2h."),
    ] = None,
    options: PlanOptions,
) -> ExitCode:
    """Plan elections that find a leader; the others are rejections."""
    from jobs.core.units import parse_seconds
    from jobs.planning.elect import OfflineRequest, PreferredRequest
    from jobs.planning.plan import report_plan
    from jobs.runtime.input_files import read_election

    _refuse_unclear({"--preferred": preferred, "--offline": offline, "--unclean": unclean})
    limits = {"--max-elections": max_elections, "--stable-for": stable_for, "--settle": settle}
    if not preferred:
        _refuse_for_others({"--imbalance-threshold": imbalance_threshold, **limits})
    partitions = None if path_to_json_file is None else read_election(path_to_json_file)
    request: PreferredRequest | OfflineRequest
    if preferred:
        request = PreferredRequest(
            partitions=partitions,
            threshold=settings.conf.imbalance_threshold if imbalance_threshold is None else imbalance_threshold,
            max_elections=max_elections,
            stable_for=stable_for,
            settle_seconds=None if settle is None else parse_seconds("--settle", settle),
        )
    else:
        request = OfflineRequest(partitions=partitions, unclean=unclean)
    return report_plan(settings, options, request.plan)


def _refuse_unclear(elections: dict[str, bool]) -> None:
    named = [flag for flag, given in elections.items() if given]
    if len(named) != 1:
        instead = f", not {' and '.join(named)}" if named else ""
        raise UsageError(f"say which election, exactly one of {', '.join(elections)}{instead}")


def _refuse_for_others(flags: dict[str, object]) -> None:
    named = [flag for flag, value in flags.items() if value is not None]
    if named:
        raise UsageError(f"{', '.join(named)}: only with --preferred; leave out what the other elections do not ask")


@question
def drain(
    settings: Settings,
    *,
    brokers: Brokers,
    mode: Annotated[
        DrainMode,
        typer.Option(
            help="admin: Kafka's controller lives; the brokers come last in the order of replicas, no data moves, "
            "preferred elections follow, and it lasts until undrain. resident: for a Surveyor that stays the "
            "controller; controlled shutdown: leaders move, the brokers leave the ISRs and stop the replicas that "
            "follow; it ends when another controller takes over, and a commit that hands back refuses it.",
        ),
    ] = DrainMode.ADMIN,
    allow_offline: Annotated[
        bool,
        typer.Option("--allow-offline", help="Plan although partitions go offline when the brokers stop."),
    ] = False,
    options: PlanOptions,
) -> ExitCode:
    """Plan that brokers lead nothing, as before they are shut down; refused where partitions would go offline."""
    from jobs.planning.drain import drain_planner
    from jobs.planning.plan import report_plan
    from jobs.runtime.input_files import parse_broker_ids

    planner = drain_planner(settings, sorted(parse_broker_ids(brokers)), mode, allow_offline=allow_offline)
    return report_plan(settings, options, planner)


@question
def undrain(
    settings: Settings,
    *,
    brokers: Brokers,
    options: PlanOptions,
) -> ExitCode:
    """Plan that drained brokers lead again: the order of replicas, or the replicas running, as before the drain."""
    from jobs.planning.drain import undrain_planner
    from jobs.planning.plan import report_plan
    from jobs.runtime.input_files import parse_broker_ids

    planner = undrain_planner(settings, sorted(parse_broker_ids(brokers)))
    return report_plan(settings, options, planner)


@question
def recover(
    settings: Settings,
    *,
    allow_unclean: Annotated[
        bool,
        typer.Option("--allow-unclean", help="Allow unclean elections, which lose data, for all offline partitions."),
    ] = False,
    partition: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC-N", help="Allow an unclean election for this one; may be repeated."),
    ] = None,
    options: PlanOptions,
) -> ExitCode:
    """Plan leaders for offline partitions; of unclean candidates the one that may lose least, only where allowed."""
    from jobs.planning.plan import report_plan
    from jobs.planning.recover import parse_partitions, recover_planner

    planner = recover_planner(parse_partitions(partition or []), allow_unclean=allow_unclean)
    return report_plan(settings, options, planner)


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
    broker_list: Annotated[
        str | None,
        typer.Option(help="Broker ids, by comma: all that may hold them.", autocompletion=by_comma(known_brokers)),
    ] = None,
    add_brokers: Annotated[
        str | None,
        typer.Option(
            help="New brokers, by comma, to get their even share; others only give.",
            autocompletion=by_comma(known_brokers),
        ),
    ] = None,
    remove_brokers: Annotated[
        str | None,
        typer.Option(help="Brokers, by comma, dead ones too, to empty.", autocompletion=by_comma(known_brokers)),
    ] = None,
    replace: Annotated[str | None, typer.Option(help="7=107[,...]: what 7 holds goes to 107 where it can.")] = None,
    replication_factor: Annotated[int | None, typer.Option(min=1, help="Replicas of each partition.")] = None,
    rebalance: Annotated[bool, typer.Option("--rebalance", help="Make replicas and leaders even.")] = False,
    fix_racks: Annotated[
        bool, typer.Option("--fix-racks", help="Spread replicas over racks, as many and as evenly as can be.")
    ] = False,
    to_snapshot: Annotated[
        int | None,
        typer.Option(help="Back to the replicas that this snapshot shows.", autocompletion=snapshots),
    ] = None,
    topics: Annotated[
        str | None, typer.Option(help="Only topics of this name, or whose whole name matches this regex.")
    ] = None,
    exclude: Annotated[
        str | None, typer.Option(help="But not those of this name, or whose whole name matches this regex.")
    ] = None,
    max_moves: Annotated[int | None, typer.Option(min=0, help="Copy at most this many replicas.")] = None,
    reorder_leaders: Annotated[
        bool,
        typer.Option("--reorder-leaders", help="Even out leaders also where no replica moves; --rebalance does."),
    ] = False,
    skip_elections: Annotated[
        bool,
        typer.Option("--skip-elections", help="Plan no last wave that elects the replicas that moves make preferred."),
    ] = False,
    disable_rack_aware: Annotated[bool, typer.Option("--disable-rack-aware", help="Ignore racks.")] = False,
    allow_below_min_isr: Annotated[
        bool,
        typer.Option("--allow-below-min-isr", help="Plan lists that become shorter than min.insync.replicas."),
    ] = False,
    skip_unsafe: Annotated[
        bool,
        typer.Option("--skip-unsafe", help="Leave out what the lint finds a fault in; else all is refused."),
    ] = False,
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
    throttle: Throttle = None,
    options: PlanOptions,
) -> ExitCode:
    """Plan where replicas live, by exactly one question: a file, brokers, a replication factor, evenness, racks, ..."""
    from jobs.planning.placement.explicit_targets import BACK, BY_FILE
    from jobs.planning.placement.placement_options import PlacementLimits
    from jobs.planning.placement.reassign import reassign_planner
    from jobs.planning.plan import report_plan
    from planner.placement.waves import WaveLimits

    check_throttle(throttle, settings.conf.throttle)
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
    limits = PlacementLimits(
        topics=topics,
        exclude=exclude,
        max_moves=max_moves,
        rack_aware=not disable_rack_aware,
        reorder=reorder_leaders,
        elect=not skip_elections,
        brokers=broker_list,
        caps=WaveLimits(moves_per_broker=max_moves_per_broker, one_at_a_time=one_replica_at_a_time),
        allow_below_min_isr=allow_below_min_isr,
        skip_unsafe=skip_unsafe,
    )
    planner = reassign_planner(option, value, limits, sizes, by_size=by_size)
    return report_plan(settings, options, planner)


def _only_one(questions: Mapping[str, Any]) -> tuple[str, Any]:
    given = {option: value for option, value in questions.items() if value is not None}
    if len(given) != 1:
        instead = f"not {' and '.join(given)}" if given else "none was given"
        raise UsageError(f"say exactly one of {', '.join(questions)}: {instead}")
    return next(iter(given.items()))


EXAMPLES: Final = """\
Examples:
  surveyor plan reconcile --name repair
  surveyor plan elect --preferred --refresh --name balance
  surveyor plan drain --brokers 2 --name drain-2
  surveyor plan reassign --add-brokers 4,5 --max-moves-per-broker 2 --name grow
  surveyor plan assign --topic orders --partitions 12 --replication-factor 3
"""

PAGE: Final = {
    "Who leads": (reconcile, elect, recover, drain, undrain),
    "Where replicas live": (reassign,),
    "Topics": (assign, expand, config, delete),
}

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Compute a plan from a snapshot; nothing is written to the cluster.",
    epilog=EXAMPLES,
    context_settings=HELP,
    cls=HelpPage,
)
for part, questions in PAGE.items():
    for ask in questions:
        app.command(rich_help_panel=part)(ask)


if __name__ == "__main__":
    app()
