"""The paths that a scheduler needs to run spark-submit from another environment, as one JSON object.

A scheduler such as Airflow has its own environment. It runs `python -m jobs.runtime.submission --json` with Surveyor's
Python and the options of the command to come. The result has spark-submit and the scripts, the Python and Java that run
them, and the settings and jars. The warehouse, on which the jars depend, comes from the options, the environment or
surveyor.toml, as for every command.
"""

import sys
import sysconfig
from pathlib import Path

import pyspark

from jobs.adapters.java.home import java_home
from jobs.adapters.java.jars import spark_jars
from jobs.adapters.spark.spark_settings import conf_dir
from jobs.runtime.console import CommandResult
from jobs.runtime.options import command, run_as_script
from jobs.runtime.settings import Settings


@command
def submission(settings: Settings) -> CommandResult:
    """Return what spark-submit needs for a command with the same options."""
    paths = {
        "spark_submit": Path(sysconfig.get_path("scripts"), "spark-submit"),
        "spark_home": Path(pyspark.__file__).parent,
        "scripts": Path(__file__).parents[1],
        "python": Path(sys.executable),
        "java_home": java_home(),
        "spark_conf_dir": conf_dir(),
    }
    jars = ",".join(map(str, spark_jars(settings.warehouse_uri)))
    return CommandResult({**{name: str(path) for name, path in paths.items()}, "jars": jars})


if __name__ == "__main__":
    run_as_script(submission)
