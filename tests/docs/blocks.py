"""Which test runs each block of code that the pages show.

tests/jobs/stories/test_pages_brokers.py runs the commands of the pages in RUN and compares their output with the page.
ELSEWHERE names the test of each other block, or why it has none.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.docs.markdown import pages

RUN: Final = (
    "README.md",
    "status.md",
    "configuration.md",
    "planning.md",
    "reassigning.md",
    "first-day.md",
)
"""In this order, because each page continues with the cluster and tables of the previous one."""

RUN_LINES: Final = ("surveyor ", "unset SURVEYOR_", "export SURVEYOR_")
"""The beginnings of blocks whose lines are commands to run there."""

WHOLE: Final = {
    "runbook.md": "tests/jobs/stories/test_runbook_brokers.py",
    "commands.md": "tests/docs/test_generated.py",
}
"""Pages with a test of their own; the usage lines of commands.md have words in place of values."""

DATA: Final = "tests/jobs/stories/test_pages_brokers.py"
"""Input files of commands, written there."""

NOT_RUN: Final = "not run: "

ELSEWHERE: Final[Mapping[str, Mapping[str, str]]] = {
    "README.md": {
        "pip install": "tests/jobs/test_bare_environment.py",
        "surveyor status --zookeeper": "tests/jobs/test_bare_environment.py",
        "surveyor plan reassign --add-brokers 4": "tests/jobs/stories/test_moves_brokers.py",
        "make demo": "tests/jobs/stories/test_demo.py",
        "make dist": "tests/jobs/test_bare_environment.py",
        "from jobs.": "tests/jobs/test_bare_environment.py",
    },
    "CONTRIBUTING.md": {"make test": NOT_RUN + "it is what runs the tests"},
    "architecture.md": {"jobs/ ": NOT_RUN + "names of folders", "HADOOP=1": NOT_RUN + "it runs tests"},
    "benchmarks.md": {
        "make bench": NOT_RUN + "it takes a quarter of an hour",
        "python -m bench.load_plans": NOT_RUN + "it takes minutes, and kafka-utils wants a package index",
        "python -m bench.sampling": NOT_RUN + "it takes minutes; tests/test_benchmarks.py has fewer partitions",
        "python -m bench.load_rollup": NOT_RUN + "it takes minutes; tests/test_benchmarks.py has fewer rows",
    },
    "configuration.md": {
        "security.protocol=SASL_SSL": NOT_RUN + "a file, for brokers and a ZooKeeper that want it",
        "listener.name.": NOT_RUN + "a file, for listeners of clients that want it",
        "  kafka-acls": NOT_RUN + "a tool of Kafka's, for brokers with an authorizer",
    },
    "kraft.md": {"export SURVEYOR_BOOTSTRAP_SERVERS": "tests/jobs/stories/test_kraft_brokers.py"},
    "deploy.md": {
        "make airflow": NOT_RUN + "it stays until Ctrl-C; tests/airflow runs its DAGs",
        "SURVEYOR_CLUSTERS=": "tests/airflow/test_dags_brokers.py",
        "airflow connections add surveyor_notify": NOT_RUN + "the tests' webhook is one of their own",
        "python3 -m venv": "tests/jobs/test_bare_environment.py",
        "make dist": "tests/jobs/test_bare_environment.py",
        "pip wheel": NOT_RUN + "it wants a package index",
        "python -m jobs.adapters.java.jars": "tests/jobs/adapters/embedded/test_jars.py",
        ". .venv/bin/activate": "tests/jobs/adapters/spark/test_spark_clusters.py",
        "mkdir environment": "tests/jobs/test_bare_environment.py",
        "spark-submit --master yarn": "tests/jobs/adapters/spark/test_yarn.py",
        "export SURVEYOR_WAREHOUSE=s3": NOT_RUN
        + "test_spark_clusters.py has S3, test_expiring_logins_brokers.py the keytab",
        "here=$PWD": "tests/docs/test_files_sent.py",
        "export PYSPARK_PYTHON": "tests/jobs/support/outside/spark_servers.py",
        "surveyor snapshot --remote": "tests/jobs/adapters/spark/test_spark_clusters.py",
    },
    "load.md": {
        "surveyor show load": "tests/jobs/console_output/test_show_load.py",
        "surveyor load import loads.csv": "tests/jobs/measurement/test_import_command.py",
        "surveyor load import --prometheus": "tests/jobs/measurement/test_prometheus_import.py",
        "broker_label = ": "tests/jobs/measurement/test_prometheus_queries.py",
        "make demo DEMO_ARGS=--load": "tests/jobs/stories/test_demo.py",
        "surveyor snapshot ": "tests/jobs/stories/test_load_samples_brokers.py",
        "surveyor load sample": "tests/jobs/stories/test_load_samples_brokers.py",
        "surveyor plan reassign --rebalance --by-load": "tests/jobs/planning/placement/test_plan_by_load.py",
        "surveyor whatif": "tests/jobs/test_whatif_load.py",
        "python -m bench.load_accuracy": NOT_RUN + "ten minutes of traffic; the story of it is shorter",
    },
    "fleets.md": {
        "warehouse = ": NOT_RUN + "a file, for clusters that exist",
        "surveyor snapshot --all": "tests/jobs/test_fleets.py",
    },
    "migration.md": {
        "make demo": "tests/jobs/stories/test_demo.py",
        ".venv/bin/surveyor migration": "tests/jobs/stories/test_demo.py",
        "surveyor migration check": "tests/jobs/stories/test_migration_check_brokers.py",
        "surveyor snapshot": "tests/jobs/stories/test_migration_brokers.py",
    },
    "control.md": {
        "surveyor control": "tests/jobs/controller/test_control_command.py",
        "surveyor plan drain": "tests/jobs/stories/test_control_brokers.py",
    },
    "status.md": {
        "pip install": NOT_RUN + "it wants a package index",
        "surveyor dashboard": "tests/jobs/web/test_dashboard.py",
    },
    "planning.md": {"[{": DATA},
    "reassigning.md": {"{": DATA, "surveyor cancel": "tests/jobs/stories/test_moves_brokers.py"},
    "security.md": {
        "pip install": NOT_RUN + "it wants a package index",
        "security.protocol=": NOT_RUN + "files, for brokers and a ZooKeeper that want them",
    },
    "restarts.md": {"surveyor ": "tests/jobs/stories/test_restarts_brokers.py"},  # and test_kraft_restarts_brokers.py
    "first-day.md": {"surveyor reconcile": "tests/jobs/execution/test_reconcile_command.py"},
    "tables.md": {
        "from ": "tests/jobs/test_notebook.py",
        "import duckdb": "tests/docs/test_views_shown.py",
        "surveyor catalog": "tests/jobs/sql_views/test_catalog.py",
    },
}
"""By page and beginning of a line or block: the file that runs it, or why no test does."""


def page_path(name: str) -> Path:
    """Return where a page is.

    >>> page_path("README.md").name
    'README.md'
    """
    return next(path for path in pages() if path.name == name)
