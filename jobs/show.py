"""`surveyor show`: the tables as people read them, now or as of a snapshot. No JVM."""

from collections.abc import Sequence
from typing import Annotated

import typer

from jobs.runtime.completion import brokers as known_brokers
from jobs.runtime.completion import plans as known_plans
from jobs.runtime.completion import snapshots as known_snapshots
from jobs.runtime.completion import topics as known_topics
from jobs.runtime.help_pages import HelpPage
from jobs.runtime.lazy_commands import HELP
from jobs.runtime.options import All, PlanId, Throttle, check_throttle, command
from jobs.runtime.settings import Settings

AsOf = Annotated[
    int | None,
    typer.Option("--as-of", help="As this snapshot left it [default: the newest].", autocompletion=known_snapshots),
]
Now = Annotated[bool, typer.Option("--now", help="As ZooKeeper has it now, not as a snapshot left it.")]
Topic = Annotated[str | None, typer.Option(help="Only this topic.", autocompletion=known_topics)]

CLUSTER, TIME, PLANS = "The cluster as a snapshot left it", "Through time", "Plans, and what became of them"

EXAMPLES = """\
Examples:
  surveyor show partitions --under-replicated --now
  surveyor show partitions --broker 3 --offline -o wide
  surveyor show history --topic orders --partition 7
  surveyor show diff 12 15
  surveyor show plan repair
"""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Show the tables, now or as of a snapshot.",
    epilog=EXAMPLES,
    context_settings=HELP,
    cls=HelpPage,
)


@app.command(rich_help_panel=CLUSTER)
@command
def brokers(settings: Settings, *, now: Now = False, as_of: AsOf = None) -> None:
    """Brokers: what they lead and hold, who is the controller, and those that partitions name and nobody registered."""
    from jobs.console_output.cluster_tables import show_brokers

    show_brokers(settings, as_of, now=now)


@app.command(rich_help_panel=CLUSTER)
@command
def topics(settings: Settings, *, as_of: AsOf = None) -> None:
    """Topics: their partitions, replication factors and configs."""
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
        typer.Option(min=0, help="Only those that this broker holds a replica of.", autocompletion=known_brokers),
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Only those without a live leader.")] = False,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only those with a replica that is not in sync.")
    ] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr", help="Only those with fewer in sync than min.insync.replicas.")
    ] = False,
    now: Now = False,
    as_of: AsOf = None,
) -> None:
    """Partitions: who leads, who is in sync; of several conditions all must hold."""
    from jobs.console_output.cluster_tables import PartitionFilter, show_partitions

    those = PartitionFilter(
        topic, broker, offline=offline, under_replicated=under_replicated, under_min_isr=under_min_isr
    )
    show_partitions(settings, those, as_of, now=now)


@app.command(rich_help_panel=CLUSTER)
@command
def imbalance(settings: Settings, *, as_of: AsOf = None) -> None:
    """How far leadership is from the preferred replicas, by broker."""
    from jobs.console_output.tables import show_imbalance

    show_imbalance(settings, as_of)


@app.command(rich_help_panel=CLUSTER)
@command
def sizes(
    settings: Settings,
    *,
    topic: Annotated[
        str | None, typer.Option(help="Only this topic, by partition and broker.", autocompletion=known_topics)
    ] = None,
) -> None:
    """Bytes by broker, or of a topic by partition and broker, as `surveyor sizes` last found them."""
    from jobs.console_output.sizes import show_sizes

    show_sizes(settings, topic)


@app.command(rich_help_panel=CLUSTER)
@command
def configs(
    settings: Settings,
    *,
    broker: Annotated[
        int | None, typer.Option(min=0, help="Only what this broker says.", autocompletion=known_brokers)
    ] = None,
    differing: Annotated[
        bool, typer.Option("--differing", help="Only settings in which brokers differ, a value and its brokers a row.")
    ] = False,
    as_of: AsOf = None,
) -> None:
    """What brokers say of themselves: their settings and the versions they speak."""
    from jobs.console_output.tables import show_configs

    show_configs(settings, as_of, broker, differing=differing)


@app.command(rich_help_panel=CLUSTER)
@command
def requests(settings: Settings, *, as_of: AsOf = None) -> None:
    """What stands in /admin and the notification znodes."""
    _show_as_of(settings, as_of, "requests", ("kind", "topic", "partition", "replicas", "broker_id", "path"), ["path"])


@app.command(rich_help_panel=CLUSTER)
@command
def quarantine(settings: Settings, *, as_of: AsOf = None) -> None:
    """Znodes that could not be understood, and why."""
    from jobs.console_output.tables import show_quarantine

    show_quarantine(settings, as_of)


@app.command(rich_help_panel=TIME)
@command
def snapshots(settings: Settings) -> None:
    """Snapshots taken."""
    from jobs.console_output.tables import show_snapshots

    show_snapshots(settings)


@app.command(rich_help_panel=TIME)
@command
def events(
    settings: Settings,
    *,
    as_of: Annotated[
        int | None,
        typer.Option("--as-of", help="Up to this snapshot [default: the newest].", autocompletion=known_snapshots),
    ] = None,
) -> None:
    """What happened between snapshots, the newest last."""
    from jobs.console_output.tables import show_events

    show_events(settings, as_of)


@app.command(rich_help_panel=TIME)
@command
def history(
    settings: Settings,
    *,
    topic: Annotated[str, typer.Option(help="Topic.", autocompletion=known_topics)],
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
) -> None:
    """Who led when: each snapshot in which a partition changed."""
    from jobs.console_output.tables import show_history

    show_history(settings, topic, partition)


@app.command(rich_help_panel=TIME)
@command
def diff(
    settings: Settings,
    *,
    before: Annotated[int, typer.Argument(metavar="A", help="A snapshot.", autocompletion=known_snapshots)],
    after: Annotated[
        int,
        typer.Argument(metavar="B", help="Another; an older one shows the way back.", autocompletion=known_snapshots),
    ],
) -> None:
    """What differs between two snapshots."""
    from jobs.console_output.tables import show_differences

    show_differences(settings, before, after)


@app.command(rich_help_panel=PLANS)
@command
def plans(settings: Settings) -> None:
    """Plans made, the newest last."""
    from jobs.console_output.tables import show_plans

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
        typer.Option(min=0, help="Only changes that mean something for this broker.", autocompletion=known_brokers),
    ] = None,
    action: Annotated[str | None, typer.Option(help="Only this action, as elect or reassign.")] = None,
    throttle: Throttle = None,
    everything: All = False,
) -> None:
    """One plan: what it comes to, then a line a change, then what was rejected; --json has every row."""
    from jobs.console_output.plan_review import RowFilter, show_review

    check_throttle(throttle, settings.conf.throttle)
    show_review(settings, plan, RowFilter(topic, broker, action, everything))


@app.command(rich_help_panel=PLANS)
@command
def rejections(settings: Settings, *, plan: PlanId, everything: All = False) -> None:
    """What a plan left out, and why."""
    columns = ("topic", "partition", "action", "code", "reason")
    _show_of_plan(settings, plan, "rejections", columns, ("topic", "partition"), everything=everything)


@app.command(rich_help_panel=PLANS)
@command
def evidence(settings: Settings, *, plan: PlanId, everything: All = False) -> None:
    """What history says of the candidates of `plan recover`, the best first."""
    from jobs.console_output.tables import show_evidence

    show_evidence(settings, plan, everything=everything)


@app.command(rich_help_panel=PLANS)
@command
def commits(
    settings: Settings,
    *,
    plan: Annotated[
        str | None, typer.Argument(help="Id or alias of a plan [default: all commits].", autocompletion=known_plans)
    ] = None,
    everything: All = False,
) -> None:
    """What became of a plan, row by row and attempt by attempt; without one, all commits and cancellations."""
    from jobs.console_output.commits import show_commits

    show_commits(settings, plan, everything=everything)


@app.command(rich_help_panel=PLANS)
@command
def drained(settings: Settings) -> None:
    """Brokers that are drained, how, and by which plan."""
    from jobs.console_output.tables import show_drained

    show_drained(settings)


@app.command(rich_help_panel=PLANS)
@command
def throttles(settings: Settings) -> None:
    """Throttles that commits have set and not taken away yet, and what stood before."""
    from jobs.console_output.tables import show_throttles
    from jobs.execution.admin.throttles import throttle_rows

    show_throttles(settings, throttle_rows)


def _show_as_of(
    settings: Settings, snapshot_id: int | None, name: str, columns: Sequence[str], key: Sequence[str]
) -> None:
    from jobs.console_output.tables import show_as_of

    show_as_of(settings, snapshot_id, name, columns, key)


def _show_of_plan(
    settings: Settings, plan: str, name: str, columns: Sequence[str], order: Sequence[str], *, everything: bool
) -> None:
    from jobs.console_output.tables import show_of_plan

    show_of_plan(settings, plan, name, columns, order, everything=everything)


if __name__ == "__main__":
    app()
