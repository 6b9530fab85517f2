"""`surveyor control`: run as the resident controller of the cluster until stopped.

In each cycle it elects leaders, creates, reassigns and deletes partitions as due. Without --apply it only shows the
work that is due now. Ctrl-C and SIGTERM stop it between two writes; its ZooKeeper session closes, and a broker becomes
the controller again. It can be killed at any point without leaving anything to clean up.
"""

from pathlib import Path
from typing import Annotated

import typer

from jobs.core.errors import UsageError
from jobs.runtime.console import CommandResult
from jobs.runtime.options import AllowSilent, AllowUnclean, Apply, Yes, command, run_as_script, through_zookeeper
from jobs.runtime.settings import Settings


@command
@through_zookeeper
def control(
    settings: Settings,
    *,
    apply: Apply = False,
    yes: Yes = False,
    until_quiet: Annotated[bool, typer.Option("--until-quiet", help="Resign as soon as no work is due.")] = False,
    allow_unclean: AllowUnclean = False,
    allow_silent: AllowSilent = None,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby", help="Wait while another `surveyor control` is the controller, and take over when it ends."
        ),
    ] = False,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Take over from a running `surveyor control`, which then ends or stands by."),
    ] = False,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve brokers, which need it from inter.broker.protocol.version 2.7 on. LISTENER://HOST:PORT serves "
            "clients at the brokers' listener of that name; may be repeated.",
        ),
    ] = None,
    advertise: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address that brokers connect to [default: from --listen]; LISTENER://HOST:PORT for clients.",
        ),
    ] = None,
    listen_config: Annotated[
        Path | None,
        typer.Option(
            "--listen-config",
            metavar="FILE",
            help="Security of --listen: TLS, SASL, which principals are brokers, and how clients log in; see "
            "docs/configuration.md.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve /metrics and /healthz until the end; PORT without HOST listens on the loopback address.",
        ),
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(metavar="PERIOD", help="While controller, also run `surveyor load sample --every PERIOD`."),
    ] = None,
) -> CommandResult:
    """Run as the cluster's controller until stopped."""
    from jobs.adapters.request_server.listen_config import ListenConfig
    from jobs.controller.lifecycle import control_cluster
    from jobs.controller.preparation import ControlOptions
    from jobs.core.addresses import parse_address
    from jobs.core.units import parse_seconds
    from jobs.runtime.confirmation import approval
    from jobs.runtime.input_files import parse_broker_ids

    if not listen and (advertise or listen_config):
        raise UsageError("--advertise and --listen-config need --listen HOST:PORT")
    if sample is not None:
        parse_seconds("--sample", sample)
    silent = frozenset(parse_broker_ids(allow_silent, "--allow-silent")) if allow_silent else frozenset[int]()
    options = ControlOptions(
        apply=apply,
        until_quiet=until_quiet,
        allow_unclean=allow_unclean,
        allow_silent=silent,
        standby=standby,
        replace=replace,
        listen=ListenConfig.of(listen, advertise or [], listen_config) if listen else None,
        metrics=None if metrics is None else parse_address("--metrics", metrics),
        sample=sample,
    )
    return control_cluster(settings, options, approval(yes=yes))


if __name__ == "__main__":
    run_as_script(control)
