"""A Spark session for notebooks and scripts: with Delta, and with the settings that Surveyor's commands run with.

It needs the Python that Surveyor is installed in, and nothing of the environment:

    from jobs.notebook import spark_session
    spark = spark_session()
"""

import os
from collections.abc import Mapping

from pyspark.sql import SparkSession

from jobs.adapters.spark.remote import REMOTE
from jobs.adapters.spark.session import start_session


def spark_session(settings: Mapping[str, str] | None = None, *, remote: str | None = None) -> SparkSession:
    """Return the session of this process, or start one.

    `settings` are Spark's and win over `conf/spark-defaults.conf`; master and memory count where a JVM is started.
    `remote` is the URL of a Spark Connect server, by default the one that SPARK_REMOTE names. Raise MissingError where
    Java, Delta's jars or that server cannot be found; the message says what to do.
    """
    return start_session("notebook", settings, remote=remote or os.environ.get(REMOTE))
