"""`surveyor control`: be the cluster's controller, and do in cycles whatever is due, until told to stop.

Dry unless --apply: then what is due now is shown. Ctrl-C and SIGTERM end it between two writes; the session ends, and a
broker becomes the controller again. Killed anywhere, nothing is left to be cleaned up.
"""

from typing import Annotated

import typer

from jobs.core.errors import ExitCode
from jobs.runtime.options import AllowSilent, AllowUnclean, Apply, Yes, on_spark, run_alone
from jobs.runtime.settings import Settings


@on_spark
def control(
    settings: Settings,
    *,
    apply: Apply = False,
    yes: Yes = False,
    until_quiet: Annotated[
        bool, typer.Option("--until-quiet", help="Resign as soon as nothing is due any more.")
    ] = False,
    allow_unclean: AllowUnclean = False,
    allow_silent: AllowSilent = None,
) -> ExitCode:
    """Be the controller: elect, create, reassign and delete in cycles, until told to stop."""
    from jobs.controller.lifecycle import ControlOptions, control_cluster
    from jobs.runtime.input_files import parse_broker_ids

    silent = frozenset(parse_broker_ids(allow_silent, "--allow-silent")) if allow_silent else frozenset[int]()
    term = ControlOptions(
        apply=apply, yes=yes, until_quiet=until_quiet, allow_unclean=allow_unclean, allow_silent=silent
    )
    return control_cluster(settings, term)


if __name__ == "__main__":
    run_alone(control)
