"""A Spark session for notebooks and scripts, with Delta and with the settings of Surveyor's commands.

It needs only the Python environment in which Surveyor is installed, and no environment variables:

    from jobs.notebook import spark_session
    spark = spark_session()
"""

import os
from collections.abc import Mapping

from pyspark.sql import SparkSession

from jobs.adapters.spark.engine_choice import Engine, Place
from jobs.adapters.spark.remote import REMOTE
from jobs.adapters.spark.session import start_session


def spark_session(
    settings: Mapping[str, str] | None = None, *, remote: str | None = None, warehouse: str = ""
) -> SparkSession:
    """Return the session of this process; start one if there is none.

    `settings` are Spark settings and override `conf/spark-defaults.conf`; master and memory apply only if a JVM is
    started. `remote` is the URL of a Spark Connect server; the default is SPARK_REMOTE. For a `warehouse` on S3, ADLS
    or GCS the session can read it. Raise MissingError if Java, the jars or the server cannot be found; the message
    names the remedy.
    """
    place = Place(Engine.SPARK, remote or os.environ.get(REMOTE), warehouse)
    return start_session("notebook", settings, place=place)
