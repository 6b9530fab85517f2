"""What whoever runs spark-submit from another environment must know of this one, as one JSON object.

A scheduler such as Airflow has an environment of its own, and finds by `python -m jobs.adapters.spark.submission` of
Surveyor's where spark-submit and the scripts are, which Python and Java run them, with which settings and jars.
"""

import json
import sys
import sysconfig
from pathlib import Path
from typing import TypedDict

import pyspark

from jobs.adapters.java.home import java_home
from jobs.adapters.java.jars import delta_jars
from jobs.adapters.spark.session import conf_dir
from jobs.core.errors import MissingError


class Submission(TypedDict):
    """Paths, all absolute."""

    spark_submit: str
    spark_home: str
    scripts: str
    """Folder of the commands' scripts, `snapshot.py` and so on."""
    python: str
    java_home: str
    spark_conf_dir: str
    jars: str
    """Delta's, by comma, as `--jars` takes them."""


def submission() -> Submission:
    """Find all of it; raises MissingError where Java or the jars cannot be had."""
    return Submission(
        spark_submit=str(Path(sysconfig.get_path("scripts"), "spark-submit")),
        spark_home=str(Path(pyspark.__file__).parent),
        scripts=str(Path(__file__).parents[2]),
        python=sys.executable,
        java_home=str(java_home()),
        spark_conf_dir=str(conf_dir()),
        jars=",".join(map(str, delta_jars())),
    )


def main() -> int:
    """Print it; where something is missing, one line on stderr and the exit code of the commands."""
    try:
        paths = submission()
    except MissingError as missing:
        sys.stderr.write(f"{missing}\n")
        return missing.exit_code
    sys.stdout.write(json.dumps(paths) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
