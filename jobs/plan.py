"""`surveyor plan`: compute a plan from a snapshot on Spark and store it for review; with --apply, also commit it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from jobs.core.errors import UsageError
from jobs.plan_commit import plan_and_commit
from jobs.plan_topics import assign, config, delete, expand
from jobs.runtime.command_pages import CommandLine
from jobs.runtime.console import CommandResult
from jobs.runtime.help_pages import HelpPage
from jobs.runtime.options import AllowUnclean, Requests, Throttle, check_throttle, command
from jobs.runtime.plan_options import PlanOptions, plan_command, plan_command_of_one_cluster
from jobs.runtime.settings import Settings
from jobs.runtime.suggestions import stated_command, warn_of_old_spelling
from schemas.enums import DrainMode

if TYPE_CHECKING:
    from jobs.planning.placement.placement_options import PlacementLimits
    from jobs.planning.placement.reassign import BalancedBy, BudgetPlanner

Brokers = Annotated[
    str,
    typer.Option(help="Comma-separated broker ids, planned together."),
]

ElectionFile = Annotated[
    Path | None,
    typer.Option(help="Elect only for these partitions, in the format of kafka-leader-election."),
]

TOPICS_FILE: Final = "--topics-to-move-json-file"


@plan_command
def reconcile(
    settings: Settings,
    *,
    allow_unclean: AllowUnclean = False,
    requests: Requests = False,
    options: PlanOptions,
) -> CommandResult:
    """Plan repairs after failures: replace leaders that are not live, shrink ISRs, elect first leaders."""
    from jobs.planning.reconcile import plan_reconcile

    return plan_and_commit(
        settings, options, lambda tables: plan_reconcile(tables, allow_unclean=allow_unclean, requests=requests)
    )


@plan_command
def elect(
    settings: Settings,
    *,
    preferred: Annotated[bool, typer.Option("--preferred", help="Elect preferred replicas, the default.")] = False,
    offline: Annotated[bool, typer.Option("--offline", hidden=True)] = False,
    unclean: Annotated[bool, typer.Option("--unclean", hidden=True)] = False,
    path_to_json_file: ElectionFile = None,
    imbalance_threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Brokers whose imbalance ratio is strictly above this [default: 0.1]."),
    ] = None,
    max_elections: Annotated[
        int | None,
        typer.Option(min=1, help="Plan at most this many, for the most imbalanced brokers first."),
    ] = None,
    stable_for: Annotated[
        int | None,
        typer.Option(min=1, help="Require the replica to be in the ISR in the last N snapshots."),
    ] = None,
    settle: Annotated[
        str | None,
        typer.Option(help="Skip brokers that joined less than this before the snapshot, as 10m, 2h."),
    ] = None,
    by_load: Annotated[
        bool,
        typer.Option(
            "--by-load",
            help="Even bytes out and CPU by the order of replicas, and elect the first ones; copies nothing.",
        ),
    ] = False,
    options: PlanOptions,
) -> CommandResult:
    """Plan elections of preferred replicas, of brokers above the threshold or of given partitions."""
    from jobs.core.units import parse_seconds
    from jobs.planning.preferred_election import PreferredRequest
    from jobs.runtime.input_files import read_election

    del preferred  # there is no other kind
    if by_load:
        return _elect_by_load(settings, options)
    if offline or unclean:
        return _recover_by_old_spelling(settings, path_to_json_file, options, unclean=unclean)
    request = PreferredRequest(
        partitions=None if path_to_json_file is None else read_election(path_to_json_file),
        threshold=settings.conf.imbalance_threshold if imbalance_threshold is None else imbalance_threshold,
        max_elections=max_elections,
        stable_for=stable_for,
        settle_seconds=None if settle is None else parse_seconds("--settle", settle),
    )
    return plan_and_commit(settings, options, request.plan)


def _elect_by_load(settings: Settings, options: PlanOptions) -> CommandResult:
    """Plan the order of replicas that evens loads without a copy, and the elections of the first ones."""
    from jobs.planning.placement.measured_loads import EVEN_WITHIN, MeasuredLoads
    from jobs.planning.placement.placement_options import PlacementLimits
    from jobs.planning.placement.reassign import BalancedBy, reassign_planner

    others = ("offline", "unclean", "path_to_json_file", "imbalance_threshold", "max_elections", "stable_for", "settle")
    unusable = [settings.given_options[name][0] for name in others if name in settings.given_options]
    if unusable:
        raise UsageError(f"{', '.join(unusable)}: not with --by-load, which changes the preferred replicas")
    limits = PlacementLimits(even_within=EVEN_WITHIN)
    by = BalancedBy(loads=MeasuredLoads(settings=settings, copy=False))
    return plan_and_commit(settings, options, reassign_planner("--rebalance", value=True, limits=limits, by=by))


def _recover_by_old_spelling(
    settings: Settings, election_file: Path | None, options: PlanOptions, *, unclean: bool
) -> CommandResult:
    """Plan as `plan recover` for `plan elect` with --offline or --unclean, its spellings in earlier releases."""
    of_preferred = ("preferred", "imbalance_threshold", "max_elections", "stable_for", "settle")
    unusable = [settings.given_options[name][0] for name in of_preferred if name in settings.given_options]
    if unusable:
        raise UsageError(f"{', '.join(unusable)}: only for elections of preferred replicas")
    command = str(options.command).replace(" elect", " recover", 1).replace(" --offline", "")
    command = command.replace(" --unclean", " --allow-unclean")
    warn_of_old_spelling(f"plan elect {'--unclean' if unclean else '--offline'}", command)
    return _recovery(settings, [], election_file, replace(options, command=command), allow_unclean=unclean)


@plan_command_of_one_cluster
def drain(
    settings: Settings,
    *,
    brokers: Brokers,
    mode: Annotated[
        DrainMode,
        typer.Option(
            help="admin: move the brokers to the end of the replica lists and elect preferred leaders; lasts until "
            "undrain. resident: controlled shutdown by `surveyor control`; ends when another controller takes over.",
        ),
    ] = DrainMode.ADMIN,
    allow_offline: Annotated[
        bool,
        typer.Option("--allow-offline", help="Plan even if partitions go offline when the brokers stop."),
    ] = False,
    options: PlanOptions,
) -> CommandResult:
    """Plan to move leadership off brokers, such as before a shutdown."""
    from jobs.planning.drain import drain_planner
    from jobs.runtime.input_files import parse_broker_ids

    planner = drain_planner(sorted(parse_broker_ids(brokers)), mode, allow_offline=allow_offline)
    return plan_and_commit(settings, options, planner)


@plan_command_of_one_cluster
def undrain(
    settings: Settings,
    *,
    brokers: Brokers,
    options: PlanOptions,
) -> CommandResult:
    """Plan to undo a drain: restore the replica order, or restart the stopped replicas."""
    from jobs.planning.drain import undrain_planner
    from jobs.runtime.input_files import parse_broker_ids

    planner = undrain_planner(sorted(parse_broker_ids(brokers)))
    return plan_and_commit(settings, options, planner)


@plan_command
def recover(
    settings: Settings,
    *,
    allow_unclean: Annotated[
        bool,
        typer.Option("--allow-unclean", help="Allow unclean elections, which lose data, for all offline partitions."),
    ] = False,
    partition: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC-N", help="Allow an unclean election for this partition; may be repeated."),
    ] = None,
    path_to_json_file: ElectionFile = None,
    options: PlanOptions,
) -> CommandResult:
    """Plan leaders for offline partitions; unclean elections only if allowed, by least data loss."""
    return _recovery(settings, partition or [], path_to_json_file, options, allow_unclean=allow_unclean)


def _recovery(
    settings: Settings,
    allowed: Sequence[str],
    election_file: Path | None,
    options: PlanOptions,
    *,
    allow_unclean: bool,
) -> CommandResult:
    from jobs.planning.recover import parse_partition_names, recover_planner
    from jobs.runtime.input_files import read_election

    only = None if election_file is None else read_election(election_file)
    return plan_and_commit(
        settings, options, recover_planner(parse_partition_names(allowed), only, allow_unclean=allow_unclean)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignOptions:
    """The options of `plan reassign`: one goal, its limits, and the sizes to balance by."""

    reassignment_json_file: Annotated[
        Path | None,
        typer.Option(help="Use the targets of this file, in the format of kafka-reassign-partitions."),
    ] = None
    topics_to_move_json_file: Annotated[
        Path | None,
        typer.Option(help="Spread these topics over --broker-list, in the format of kafka-reassign-partitions."),
    ] = None
    broker_list: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated ids of the brokers that may hold the topics.",
        ),
    ] = None
    add_brokers: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated ids of brokers to fill with their even share; others receive nothing.",
        ),
    ] = None
    remove_brokers: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated ids of brokers to empty, live or not.",
        ),
    ] = None
    onto: Annotated[
        str | None,
        typer.Option(
            metavar="BROKERS", help="Comma-separated ids of the only brokers to hold the topics, spread evenly."
        ),
    ] = None
    replace: Annotated[
        str | None, typer.Option(help="Move replicas of one broker to another if possible, as 7=107[,...].")
    ] = None
    replication_factor: Annotated[
        int | None, typer.Option(min=1, help="Change the number of replicas of each partition.")
    ] = None
    rebalance: Annotated[bool, typer.Option("--rebalance", help="Balance replicas and leaders.")] = False
    fix_racks: Annotated[bool, typer.Option("--fix-racks", help="Spread replicas evenly over many racks.")] = False
    to_snapshot: Annotated[
        int | None,
        typer.Option(help="Restore the replicas of this snapshot."),
    ] = None
    topics: Annotated[
        str | None,
        typer.Option(help="Include only the topic of this name, or topics whose whole name matches this regex."),
    ] = None
    exclude: Annotated[
        str | None, typer.Option(help="Exclude the topic of this name, or topics whose whole name matches this regex.")
    ] = None
    max_moves: Annotated[int | None, typer.Option(min=0, help="Copy at most this many replicas.")] = None
    reorder_leaders: Annotated[
        bool,
        typer.Option("--reorder-leaders", help="Balance leaders also if no replica moves; implied by --rebalance."),
    ] = False
    skip_elections: Annotated[
        bool,
        typer.Option("--skip-elections", help="Omit the last wave, which elects the new preferred replicas."),
    ] = False
    disable_rack_aware: Annotated[bool, typer.Option("--disable-rack-aware", help="Ignore racks.")] = False
    allow_below_min_isr: Annotated[
        bool,
        typer.Option("--allow-below-min-isr", help="Allow replica lists shorter than min.insync.replicas."),
    ] = False
    allow_internal: Annotated[
        bool,
        typer.Option("--allow-internal", help="Allow fewer replicas of topics internal to Kafka or its tools."),
    ] = False
    skip_unsafe: Annotated[
        bool,
        typer.Option("--skip-unsafe", help="Leave out targets that fail the lint, instead of refusing all."),
    ] = False
    sizes: Annotated[
        Path | None,
        typer.Option(help="Balance bytes by this CSV or JSON file of topic, partition and bytes per replica."),
    ] = None
    by_size: Annotated[bool, typer.Option("--by-size", help="Balance bytes as recorded by `surveyor sizes`.")] = False
    within: Annotated[
        str | None,
        typer.Option(
            help="Move only what differs from the mean by more than this share [default: 10% of loads, 1% of bytes]."
        ),
    ] = None
    by_load: Annotated[
        bool,
        typer.Option("--by-load", help="Balance measured loads with few copies."),
    ] = False
    budget: Annotated[
        str | None, typer.Option(metavar="SIZE", help="With --by-load: copy at most this much, as 2TB or 500GiB.")
    ] = None
    pareto: Annotated[
        bool,
        typer.Option("--pareto", help="With --by-load: show the plans that budgets allow, and store none of them."),
    ] = False
    resources: Annotated[
        str | None, typer.Option(help="With --by-load: some of disk,in,out,cpu [default: all that are known].")
    ] = None
    load_profile: Annotated[
        str | None, typer.Option("--profile", help="With --by-load: the loads of this profile [default: default].")
    ] = None
    load_window: Annotated[
        str | None,
        typer.Option(
            "--window", metavar="HOURS", help="With --by-load: now, peak or the mean of hours as 24h, not a profile."
        ),
    ] = None
    relieve: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="With --by-load: only bring each disk below this share of it, as 85%."),
    ] = None
    effort: Annotated[
        int | None, typer.Option(min=0, help="With --by-load: attempts to find a plan of fewer bytes.")
    ] = None
    max_moves_per_broker: Annotated[
        int | None,
        typer.Option(
            min=1, help="Limit each wave to this many replicas copied to a broker, and as many taken from it."
        ),
    ] = None
    one_replica_at_a_time: Annotated[
        bool, typer.Option("--one-replica-at-a-time", help="Replace only one replica of a partition in each wave.")
    ] = False

    def goal(self) -> tuple[str, Any]:
        """Return the option of the goal with its value; raise UsageError unless exactly one is given."""
        from jobs.planning.placement.explicit_targets import FROM_FILE, TO_SNAPSHOT

        goals = {
            FROM_FILE: self.reassignment_json_file,
            TOPICS_FILE: self.topics_to_move_json_file,
            "--add-brokers": self.add_brokers,
            "--remove-brokers": self.remove_brokers,
            "--onto": self.onto,
            "--replace": self.replace,
            "--replication-factor": self.replication_factor,
            "--rebalance": self.rebalance or None,
            "--fix-racks": self.fix_racks or None,
            TO_SNAPSHOT: self.to_snapshot,
        }
        given = {option: value for option, value in goals.items() if value is not None}
        if len(given) != 1:
            instead = f"not {' and '.join(given)}" if given else "none was given"
            raise UsageError(f"expected exactly one of {', '.join(goals)}: {instead}")
        ((option, value),) = given.items()
        if (option == TOPICS_FILE) != (self.broker_list is not None):
            raise UsageError(f"{TOPICS_FILE} and --broker-list must be given together")
        return option, value

    def limits(self, declared: Sequence[str]) -> "PlacementLimits":
        """Return the limits; `declared` has the internal topics of the conf."""
        from jobs.core.units import parse_share
        from jobs.planning.internal_topic_permission import InternalTopics
        from jobs.planning.placement.measured_loads import EVEN_WITHIN as LOADS_WITHIN
        from jobs.planning.placement.placement_options import PlacementLimits
        from planner.placement.types import EVEN_WITHIN as BYTES_WITHIN
        from planner.placement.waves import WaveLimits

        return PlacementLimits(
            topics=self.topics,
            exclude=self.exclude,
            max_moves=self.max_moves,
            rack_aware=not self.disable_rack_aware,
            reorder=self.reorder_leaders,
            elect=not self.skip_elections,
            brokers=self.broker_list,
            within=None if self.within is None else parse_share("--within", self.within),
            even_within=LOADS_WITHIN if self.by_load else BYTES_WITHIN,
            caps=WaveLimits(moves_per_broker=self.max_moves_per_broker, one_at_a_time=self.one_replica_at_a_time),
            allow_below_min_isr=self.allow_below_min_isr,
            internal=InternalTopics(self.allow_internal, declared),
            skip_unsafe=self.skip_unsafe,
        )

    def balanced_by(self, settings: Settings) -> "BalancedBy":
        """Return what is balanced instead of replicas; raise UsageError for options that need --by-load."""
        from jobs.core.units import parse_bytes, parse_share
        from jobs.planning.placement.measured_loads import MeasuredLoads, parse_resources
        from jobs.planning.placement.reassign import BalancedBy
        from jobs.repositories.loads import window_period

        of_loads = ("budget", "resources", "load_profile", "load_window", "relieve", "effort")
        stray = [f"--{name.removeprefix('load_')}" for name in of_loads if getattr(self, name) is not None]
        if stray and not self.by_load:
            raise UsageError(f"{', '.join(stray)}: only with --by-load")
        if self.load_profile is not None and self.load_window is not None:
            raise UsageError("--profile and --window exclude each other: both name the loads")
        if self.load_window is not None:
            window_period(self.load_window)  # a wrong window is found before a snapshot is taken
        if self.relieve is not None and not self.rebalance:
            raise UsageError("--relieve moves only what exceeds it: give it with --rebalance --by-load")
        loads = MeasuredLoads(
            settings=settings,
            resources=parse_resources(self.resources),
            profile=self.load_profile,
            window=self.load_window,
            relieve=None if self.relieve is None else parse_share("--relieve", self.relieve),
            max_bytes=None if self.budget is None else parse_bytes("--budget", self.budget),
            effort=self.effort,
        )
        return BalancedBy(sizes=self.sizes, by_size=self.by_size, loads=loads if self.by_load else None)


@plan_command
def reassign(
    settings: Settings, *, given_options: ReassignOptions, throttle: Throttle = None, options: PlanOptions
) -> CommandResult:
    """Plan replica moves by a file, brokers, a replication factor, balance, racks or a snapshot."""
    from jobs.planning.placement.reassign import budget_plans, reassign_planner

    check_throttle(throttle, settings.conf.throttle)
    option, value = given_options.goal()
    limits = given_options.limits(settings.conf.internal_topics)
    by = given_options.balanced_by(settings)
    if given_options.pareto:
        return _show_pareto(settings, options, budget_plans(option, value, limits, by))
    return plan_and_commit(settings, options, reassign_planner(option, value, limits, by))


def _show_pareto(settings: Settings, options: PlanOptions, plans: "BudgetPlanner") -> CommandResult:
    from jobs.console_output.plans_by_budget import budgets_result
    from jobs.planning.plan_draft import look

    of_plans = ("name", "replace_name", "apply", "yes", "max_wait", "detailed_exitcode", "throttle")
    stray = [settings.given_options[name][0] for name in of_plans if name in settings.given_options]
    if stray:
        raise UsageError(f"{', '.join(stray)}: not with --pareto, which stores no plan")
    return look(settings, options, lambda tables: budgets_result(settings, tables.snapshot, plans(tables)))


@command
def restarts(
    settings: Settings,
    *,
    margin: Annotated[int, typer.Option(min=0)] = 0,
) -> CommandResult:
    """Show the order of a rolling restart, an old spelling of `surveyor whatif --restart-order`."""
    from jobs.planning.restart_order import report_restart_order

    warn_of_old_spelling("plan restarts", stated_command(settings, "whatif", "--restart-order"))
    return report_restart_order(settings, margin)


EXAMPLES: Final = """\
Examples:
  surveyor plan reconcile --name repair
  surveyor plan elect --preferred --name balance
  surveyor plan drain --brokers 2 --name drain-2
  surveyor plan reassign --add-brokers 4,5 --max-moves-per-broker 2 --name grow
  surveyor plan assign --topic orders --partitions 12 --replication-factor 3
"""

PAGE: Final = {
    "Leadership": (reconcile, elect, recover, drain, undrain),
    "Replica placement": (reassign,),
    "Topics": (assign, expand, config, delete),
}

app = CommandLine(
    no_args_is_help=True,
    help="Compute and store a plan of changes; with --apply, also commit it.",
    epilog=EXAMPLES,
    cls=HelpPage,
)
for panel, commands in PAGE.items():
    for function in commands:
        app.command(rich_help_panel=panel)(function)
app.command(hidden=True)(restarts)


if __name__ == "__main__":
    app()
