"""The paths that a scheduler needs to run spark-submit from another environment, as one JSON object.

A scheduler such as Airflow has its own environment. It runs `python -m jobs.adapters.spark.submission WAREHOUSE` with
Surveyor's Python to find spark-submit and the scripts, the Python and Java that run them, and the settings and jars.
"""

import json
import sys
import sysconfig
from pathlib import Path
from typing import TypedDict

import pyspark

from jobs.adapters.java.home import java_home
from jobs.adapters.java.jars import spark_jars
from jobs.adapters.spark.spark_settings import conf_dir
from jobs.core.errors import MissingError


class Submission(TypedDict):
    """Paths, all absolute."""

    spark_submit: str
    spark_home: str
    scripts: str
    """Folder of the commands' scripts, such as `snapshot.py`."""
    python: str
    java_home: str
    spark_conf_dir: str
    jars: str
    """The jars for the warehouse, comma-separated, as for `--jars`."""


def submission(warehouse: str) -> Submission:
    """Return all paths; raise MissingError if Java or the jars are not available."""
    return Submission(
        spark_submit=str(Path(sysconfig.get_path("scripts"), "spark-submit")),
        spark_home=str(Path(pyspark.__file__).parent),
        scripts=str(Path(__file__).parents[2]),
        python=sys.executable,
        java_home=str(java_home()),
        spark_conf_dir=str(conf_dir()),
        jars=",".join(map(str, spark_jars(warehouse))),
    )


def main(arguments: list[str]) -> int:
    """Print the paths, for the warehouse that the first argument names.

    If something is missing, print one line to stderr and return the commands' exit code.
    """
    try:
        paths = submission("".join(arguments[:1]))
    except MissingError as missing:
        sys.stderr.write(f"{missing}\n")
        return missing.exit_code
    sys.stdout.write(json.dumps(paths) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
