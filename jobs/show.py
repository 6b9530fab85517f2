"""`surveyor show`: print the tables of a snapshot, or the live cluster."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from jobs.core.units import parse_since
from jobs.runtime.cli_enums import LoadGrouping
from jobs.runtime.command_pages import CommandLine
from jobs.runtime.help_pages import HelpPage
from jobs.runtime.options import All, PlanId, Throttle, check_throttle, command
from jobs.runtime.settings import Settings
from schemas.enums import EventKind, ReplicaState

AsOf = Annotated[
    int | None,
    typer.Option("--snapshot", help="Show this snapshot [default: the newest]."),
]
UpTo = Annotated[
    int | None,
    typer.Option("--snapshot", help="Show up to this snapshot [default: the newest]."),
]
Now = Annotated[bool, typer.Option("--now", help="Show the live cluster instead of a snapshot.")]
Topic = Annotated[str | None, typer.Option(help="Show only this topic.")]

CLUSTER, HISTORY, PLANS = "Cluster", "History", "Plans and commits"

EXAMPLES = """\
Examples:
  surveyor show partitions --under-replicated --now
  surveyor show partitions --broker 3 --offline -o wide
  surveyor show events --since 2h --broker 3
  surveyor show history --topic orders --partition 7
  surveyor show load --by topic --window peak
  surveyor show diff 12 15
  surveyor show plan repair
"""

app = CommandLine(
    no_args_is_help=True,
    help="Show the tables of a snapshot, or the live cluster.",
    epilog=EXAMPLES,
    cls=HelpPage,
)


@app.command(rich_help_panel=CLUSTER)
@command
def brokers(settings: Settings, *, now: Now = False, as_of: AsOf = None) -> None:
    """List brokers with their leaders, replicas and state, including unregistered ones."""
    from jobs.console_output.cluster_tables import show_brokers

    show_brokers(settings, as_of, now=now)


@app.command(rich_help_panel=CLUSTER)
@command
def topics(settings: Settings, *, as_of: AsOf = None) -> None:
    """List topics with their partitions, replication factors and configs."""
    from jobs.console_output.cluster_tables import show_topics

    show_topics(settings, as_of)


@app.command(rich_help_panel=CLUSTER)
@command
def partitions(
    settings: Settings,
    *,
    topic: Topic = None,
    broker: Annotated[
        int | None,
        typer.Option(min=0, help="Show only partitions with a replica on this broker."),
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Show only partitions without a live leader.")] = False,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Show only partitions with a replica that is not in sync.")
    ] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option(
            "--under-min-isr", help="Show only partitions with fewer in-sync replicas than min.insync.replicas."
        ),
    ] = False,
    now: Now = False,
    as_of: AsOf = None,
) -> None:
    """List partitions with their leaders and ISRs; all given filters must match."""
    from jobs.console_output.cluster_tables import PartitionFilter, show_partitions

    selection = PartitionFilter(
        topic, broker, offline=offline, under_replicated=under_replicated, under_min_isr=under_min_isr
    )
    show_partitions(settings, selection, as_of, now=now)


@app.command(rich_help_panel=CLUSTER)
@command
def replicas(
    settings: Settings,
    *,
    topic: Topic = None,
    broker: Annotated[
        int | None,
        typer.Option(min=0, help="Show only replicas on this broker."),
    ] = None,
    state: Annotated[
        ReplicaState | None,
        typer.Option(
            metavar="STATE",
            case_sensitive=False,
            help="Show only replicas in this state, such as OnlineReplica or OfflineReplica.",
        ),
    ] = None,
    as_of: AsOf = None,
) -> None:
    """List replicas with their states in Kafka's replica state machine."""
    from jobs.console_output.replicas_and_commits import ReplicaFilter, show_replicas

    show_replicas(settings, ReplicaFilter(topic, broker, state and state.value), as_of)


@app.command(rich_help_panel=CLUSTER)
@command
def imbalance(settings: Settings, *, as_of: AsOf = None) -> None:
    """Show how many partitions each broker does not lead although it is their preferred replica."""
    from jobs.console_output.stored_tables import show_imbalance

    show_imbalance(settings, as_of)


@app.command(rich_help_panel=CLUSTER)
@command
def sizes(
    settings: Settings,
    *,
    topic: Annotated[str | None, typer.Option(help="Show only this topic, by partition and broker.")] = None,
) -> None:
    """Show the bytes of each broker, or of a topic's replicas, as recorded by `surveyor sizes`."""
    from jobs.console_output.size_tables import show_sizes

    show_sizes(settings, topic)


@app.command(rich_help_panel=CLUSTER)
@command
def load(
    settings: Settings,
    *,
    by: Annotated[LoadGrouping, typer.Option(case_sensitive=False, help="Rows to show.")] = LoadGrouping.BROKER,
    window: Annotated[
        str,
        typer.Option(
            metavar="now|peak|PERIOD",
            help="The newest hour, the hour of the last 7 days with most bytes, or the mean of hours, as 24h or 7d.",
        ),
    ] = "now",
    top: Annotated[
        int | None, typer.Option(min=1, help="Show only so many rows [default: 20; all with --json].")
    ] = None,
) -> None:
    """Show measured load, the most traffic first, with shares of capacity, growth and the methods of measurement."""
    from jobs.console_output.loads import show_load

    show_load(settings, by, window, top)


@app.command(rich_help_panel=CLUSTER)
@command
def configs(
    settings: Settings,
    *,
    broker: Annotated[int | None, typer.Option(min=0, help="Show only the settings of this broker.")] = None,
    differing: Annotated[
        bool,
        typer.Option(
            "--differing", help="Show only settings that differ between brokers, with the brokers of each value."
        ),
    ] = False,
    as_of: AsOf = None,
) -> None:
    """Show the settings and API versions reported by the brokers."""
    from jobs.console_output.stored_tables import show_configs

    show_configs(settings, as_of, broker, differing=differing)


@app.command(rich_help_panel=CLUSTER)
@command
def requests(settings: Settings, *, as_of: AsOf = None) -> None:
    """List the requests in /admin and in the notification znodes."""
    from jobs.console_output.stored_tables import show_as_of

    columns = ("kind", "topic", "partition", "replicas", "broker_id", "path")
    show_as_of(settings, as_of, "requests", columns, ["path"])


@app.command(rich_help_panel=CLUSTER)
@command
def quarantine(settings: Settings, *, as_of: AsOf = None) -> None:
    """List znodes that could not be decoded, with the reasons."""
    from jobs.console_output.stored_tables import show_quarantine

    show_quarantine(settings, as_of)


@app.command(rich_help_panel=HISTORY)
@command
def snapshots(settings: Settings) -> None:
    """List snapshots."""
    from jobs.console_output.stored_tables import show_snapshots

    show_snapshots(settings)


@app.command(rich_help_panel=HISTORY)
@command
def events(
    settings: Settings,
    *,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION|TIME",
            help="Show only events that snapshots since then have found, as 2h, 7d or 2026-03-01T10:00 (UTC).",
        ),
    ] = None,
    kind: Annotated[
        EventKind | None,
        typer.Option(
            metavar="KIND", case_sensitive=False, help="Show only this kind, such as LeaderChanged or BrokerFailed."
        ),
    ] = None,
    topic: Topic = None,
    broker: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Show only events of this broker: registrations, log dirs, controllers, leaders and ISR members.",
        ),
    ] = None,
    as_of: UpTo = None,
) -> None:
    """List the events between snapshots, the newest last: the latest 200, or all with --json."""
    from jobs.console_output.stored_tables import EventFilter, show_events

    moment = None if since is None else parse_since("--since", since, datetime.now(UTC))
    show_events(settings, as_of, EventFilter(kind=kind and kind.value, topic=topic, broker=broker, since=moment))


@app.command(rich_help_panel=HISTORY)
@command
def history(
    settings: Settings,
    *,
    topic: Annotated[str, typer.Option(help="Name of the topic.")],
    partition: Annotated[int | None, typer.Option(min=0, help="Show only this partition.")] = None,
    as_of: UpTo = None,
) -> None:
    """Show a partition's leaders over time: each snapshot in which it changed."""
    from jobs.console_output.stored_tables import show_history

    show_history(settings, topic, partition, as_of)


@app.command(rich_help_panel=HISTORY)
@command
def diff(
    settings: Settings,
    *,
    before: Annotated[int, typer.Argument(metavar="A", help="Snapshot id.")],
    after: Annotated[
        int,
        typer.Argument(metavar="B", help="Snapshot id to compare with; may be older."),
    ],
) -> None:
    """Show the differences between two snapshots."""
    from jobs.console_output.stored_tables import show_differences

    show_differences(settings, before, after)


@app.command(rich_help_panel=PLANS)
@command
def plans(settings: Settings) -> None:
    """List plans, the newest last."""
    from jobs.console_output.stored_tables import show_plans

    show_plans(settings)


@app.command(rich_help_panel=PLANS)
@command
def plan(
    settings: Settings,
    *,
    plan: PlanId,
    topic: Topic = None,
    broker: Annotated[
        int | None,
        typer.Option(min=0, help="Show only changes that affect this broker."),
    ] = None,
    action: Annotated[str | None, typer.Option(help="Show only this action, such as elect or reassign.")] = None,
    throttle: Throttle = None,
    everything: All = False,
) -> None:
    """Show a plan: its summary, changes and rejections; --json has every row."""
    from jobs.console_output.plan_review import RowFilter, show_review

    check_throttle(throttle, settings.conf.throttle)
    show_review(settings, plan, RowFilter(topic, broker, action, everything))


@app.command(rich_help_panel=PLANS)
@command
def rejections(settings: Settings, *, plan: PlanId, everything: All = False) -> None:
    """List what a plan rejected, with the reasons."""
    from jobs.console_output.stored_tables import show_of_plan

    columns = ("topic", "partition", "action", "code", "reason")
    show_of_plan(settings, plan, "rejections", columns, ("topic", "partition"), everything=everything)


@app.command(rich_help_panel=PLANS)
@command
def evidence(settings: Settings, *, plan: PlanId, everything: All = False) -> None:
    """Show the history of a plan's candidates for unclean elections, the best first."""
    from jobs.console_output.stored_tables import show_evidence

    show_evidence(settings, plan, everything=everything)


@app.command(rich_help_panel=PLANS)
@command
def commits(
    settings: Settings,
    *,
    plan: Annotated[str | None, typer.Argument(help="Id or alias of a plan [default: all commits].")] = None,
    everything: All = False,
) -> None:
    """List the commit attempts of a plan by row; without a plan, all commits and cancellations."""
    from jobs.console_output.replicas_and_commits import show_commits

    show_commits(settings, plan, everything=everything)


@app.command(rich_help_panel=PLANS)
@command
def drained(settings: Settings) -> None:
    """List drained brokers with the drain mode and plan."""
    from jobs.console_output.stored_tables import show_drained

    show_drained(settings)


@app.command(rich_help_panel=PLANS)
@command
def throttles(settings: Settings) -> None:
    """List throttles set by commits and not removed yet, with the previous values."""
    from jobs.console_output.stored_tables import show_throttles
    from jobs.execution.admin.throttles import throttle_rows

    show_throttles(settings, throttle_rows)


if __name__ == "__main__":
    app()
