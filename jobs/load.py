"""`surveyor load`: sample the load of partitions, import it, and compute what plans and pages use."""

from pathlib import Path
from typing import Annotated, Final

import typer

from jobs.runtime.command_pages import CommandLine
from jobs.runtime.console import CommandResult
from jobs.runtime.help_pages import HelpPage
from jobs.runtime.options import command, on_spark
from jobs.runtime.settings import Settings

EXAMPLES: Final = """\
Examples:
  surveyor load sample --every 5m    # offsets and sizes, until stopped
  surveyor load rollup               # samples to hours
  surveyor load profile              # hours to the windows that plans use
  surveyor show load --by topic
  surveyor load import loads.csv     # loads that another system knows
  surveyor load import --capacity capacity.json --prometheus https://prometheus.example
"""

app = CommandLine(
    no_args_is_help=True,
    help="Measure what partitions and brokers carry.",
    epilog=EXAMPLES,
    cls=HelpPage,
)


@app.command()
@command
def sample(
    settings: Settings,
    *,
    every: Annotated[
        str | None,
        typer.Option(metavar="PERIOD", help="Take a sample at these intervals, such as 5m, until stopped."),
    ] = None,
) -> CommandResult | None:
    """Record offsets and sizes of partitions, offsets of groups, and disks, as the live brokers report them."""
    import sys

    from jobs.core.units import parse_seconds
    from jobs.measurement.sampling import report_sample, sample_repeatedly
    from jobs.runtime.output import emit

    if every is None:
        return report_sample(settings)

    def show(result: CommandResult) -> None:
        emit(settings, result)
        sys.stdout.flush()

    sample_repeatedly(settings, parse_seconds("--every", every), show)
    return None


@app.command(name="import")
@command
def import_loads(
    settings: Settings,
    *,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="CSV or Parquet of topic, partition, hour and any of bytes_in, bytes_out, size_bytes.",
        ),
    ] = None,
    capacity: Annotated[
        Path | None, typer.Option(help="Capacities: CSV of broker, resource, capacity, or Cruise Control's JSON.")
    ] = None,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out rows of partitions that the newest snapshot lacks.")
    ] = False,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Also store metrics of this Prometheus by hour.")
    ] = None,
    prometheus_config: Annotated[
        Path | None,
        typer.Option(help="File with the user or token for Prometheus, and TLS.", envvar="SURVEYOR_PROMETHEUS_CONFIG"),
    ] = None,
    weeks: Annotated[int | None, typer.Option(min=1, help="Weeks of Prometheus's metrics [default: 4].")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Metrics from this time on: 3d, 12h, or 2026-11-01T10:00.")
    ] = None,
    preset: Annotated[
        list[str] | None,
        typer.Option(help="Exporter: jmx, strimzi, jmx-count, jmx-default, node or jvm [default: those found]."),
    ] = None,
    queries: Annotated[Path | None, typer.Option(help="TOML or YAML with queries of your own.")] = None,
    selector: Annotated[
        str | None, typer.Option(metavar="LABELS", help="Labels of this cluster's series, as 'env=\"prod\"'.")
    ] = None,
    broker_label: Annotated[
        str | None, typer.Option(help="Label that names brokers [default: found by hosts].")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Ask Prometheus also for hours that are stored already.")
    ] = False,
) -> CommandResult:
    """Store loads, capacities and metrics that other systems know."""
    from jobs.measurement.imports import ImportSources, report_import

    sources = ImportSources(
        file=file,
        capacity=capacity,
        skip_unknown=skip_unknown,
        prometheus=prometheus,
        prometheus_config=prometheus_config,
        weeks=weeks,
        since=since,
        presets=tuple(preset or ()),
        queries=queries,
        selector=selector,
        broker_label=broker_label,
        overwrite=overwrite,
    )
    return report_import(settings, sources)


@app.command()
@on_spark
def rollup(
    settings: Settings,
    *,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Compute the hours from then on again: 3d, 12h, or 2026-11-01T10:00."),
    ] = None,
) -> CommandResult:
    """Compute the load of partitions, groups and brokers by hour from samples, as far as samples are new."""
    from jobs.measurement.rollup import report_rollup

    return report_rollup(settings, since)


@app.command()
@on_spark
def profile(
    settings: Settings,
    *,
    name: Annotated[str, typer.Option(help="Name of the profile; plans use the one named default.")] = "default",
    weeks: Annotated[int, typer.Option(min=1, help="Weeks of hours that count.")] = 4,
) -> CommandResult:
    """Compute the load of partitions in the hours of the week that hurt most, which plans are made by."""
    from jobs.measurement.profiles import report_profile

    return report_profile(settings, name, weeks)


if __name__ == "__main__":
    app()
