"""The archive of Spark's classes (AppCDS), from which a command's JVM loads its thousands of classes faster.

An unchanged snapshot of a million partitions took 24.4 s without it and 20.6 s with it (docs/benchmarks.md). Java uses
an archive only if no folder on the class path contains files. `conf` would be such a folder, so its files are passed
to Spark by name and an empty folder replaces it. `make setup` records the archive by `tests.record_app_cds`. Without an
archive, after any error with it, or if the user has set how Spark starts, Spark starts without it, only slower.
"""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jobs.adapters.java.app_cds import archive_of, usable_archive
from jobs.adapters.java.jars import cache_folder, zookeeper_jars

JVM_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""Environment variable with JVM options for Spark's launcher; a user's own value is kept."""

_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"

SPARK: Final = "spark"

_PASSED_BY_NAME: Final = {"log4j2.properties", "spark-defaults.conf"}
"""Files of `conf` that are passed to Spark by name."""

_UNUSED_BY_SPARK: Final = "surveyor"
"""Beginning of the names of files of `conf` that Spark does not need, such as surveyor.toml.

With any further file the folder stays on the class path.
"""


def spark_archive() -> Path:
    """Return the path of the archive for Spark's jars, which may not exist."""
    return archive_of(SPARK, zookeeper_jars())


def quick_start(jvm: str, conf: Path) -> Mapping[str, str]:
    """Return environment variables for a JVM with these options and, if possible, the archive.

    An unreadable or unwritable file only prevents the use of the archive and raises no error.
    """
    if JVM_OPTIONS in os.environ:
        return {}
    try:
        return _from_archive(jvm, conf) or {JVM_OPTIONS: jvm}
    except OSError:
        return {JVM_OPTIONS: jvm}


def _from_archive(jvm: str, conf: Path) -> Mapping[str, str]:
    names = [file.name for file in conf.iterdir()] if conf.is_dir() else []
    if _ARGUMENTS in os.environ or {name for name in names if not name.startswith(_UNUSED_BY_SPARK)} != _PASSED_BY_NAME:
        return {}
    archive = usable_archive(SPARK, zookeeper_jars)
    return variables(f"{jvm} -XX:SharedArchiveFile={shlex.quote(str(archive))}", conf) if archive else {}


def variables(jvm: str, conf: Path) -> Mapping[str, str]:
    """Return the variables for a JVM without a folder on its class path; it ignores an unsuitable archive silently."""
    conf = conf.absolute()
    empty = cache_folder().absolute() / "archives" / "no-conf"
    empty.mkdir(parents=True, exist_ok=True)
    return {
        JVM_OPTIONS: f"{jvm} -Dlog4j2.configurationFile={(conf / 'log4j2.properties').as_uri()} -Xlog:disable",
        "SPARK_CONF_DIR": str(empty),
        _ARGUMENTS: f"--properties-file {shlex.quote(str(conf / 'spark-defaults.conf'))} pyspark-shell",
    }
