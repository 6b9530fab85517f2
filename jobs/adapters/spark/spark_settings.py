"""Settings of Spark sessions for every session and for small clusters."""

from pathlib import Path
from typing import Final

from jobs.adapters.spark import connect

BASE_SETTINGS: Final = {
    "spark.sql.extensions": connect.DELTA,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    **connect.UTC,
    **connect.NO_ORIGINS,
}

OWN_JVM: Final = {
    "spark.driver.host": "127.0.0.1",  # driver and executors are one process: nothing listens to the network
    "spark.driver.bindAddress": "127.0.0.1",
}

INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.ui.explainMode": "simple",
}
"""Settings for a few thousand rows.

Code that Spark generates and compiles for each query would run only once, for a millisecond. The description of each
query for the Spark UI takes a sixth of the driver's time for small queries, so it is kept short.
"""

BROADCASTING: Final = INTERPRETED | {
    "spark.sql.optimizer.disableHints": "false",
    "spark.sql.autoBroadcastJoinThreshold": "10485760",
}
"""Settings for joins of small with large tables, such as a long history: Spark's defaults for broadcasts."""

ONE_TASK: Final = INTERPRETED | {
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}
"""Settings for short tables that are read in a single partition each, so that one task joins them.

A broadcast is a separate job and costs more than a join of a few thousand rows. A warm `plan reconcile` took 7 jobs
and 0.33 s of the JVM's processor time with broadcasts, and 3 jobs and 0.27 s without. The resident controller's
election query for four partitions took 5 jobs and 0.15 s, and one job and 0.11 s.
"""


def conf_dir() -> Path:
    """Return the folder of `spark-defaults.conf`: next to the packages in a checkout, inside `jobs` in a wheel."""
    checkout = Path(__file__).parents[3] / "conf"
    return checkout if checkout.is_dir() else Path(__file__).parents[2] / "conf"
