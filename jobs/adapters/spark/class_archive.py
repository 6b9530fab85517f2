"""The archive of Spark's classes (AppCDS), with which the JVM of a command loads its thousands of classes sooner.

An unchanged snapshot of a million partitions took 24.4 s without it and 20.6 s with it (docs/benchmarks.md). Java takes
an archive only where no folder on the class path has files, and `conf` would be one: its settings are given to Spark by
name, and an empty folder stands in its place. `make setup` records the archive, by `tests.spark_archive`. Where there
is none, where anything about it fails, or where the user has chosen how Spark starts, Spark starts as without, only
slower.
"""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from jobs.adapters.java.class_archives import archive_of, usable_archive
from jobs.adapters.java.jars import cache_folder, zookeeper_jars

JVM_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""Environment variable by which Spark's launcher is given options for the JVM; a user's own value is kept."""

_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"

_SERVER: Final = "spark"

_PASSED_BY_NAME: Final = {"log4j2.properties", "spark-defaults.conf"}
"""Files of `conf` that are given to Spark by name."""

_UNUSED_BY_SPARK: Final = {"surveyor.toml"}
"""Others that Spark does not need. Any further file belongs on the class path, so the folder stays there."""


def spark_archive() -> Path:
    """Return where the archive for Spark's jars is, or belongs: a server's class path is made of the same jars."""
    return archive_of(_SERVER, zookeeper_jars())


def quick_start(jvm: str, conf: Path) -> Mapping[str, str]:
    """Return the variables by which a JVM with these options starts from the archive, if it can; else the options.

    Never raises: what cannot be read or written costs the archive, not the start.
    """
    if JVM_OPTIONS in os.environ:
        return {}
    try:
        return _from_archive(jvm, conf) or {JVM_OPTIONS: jvm}
    except OSError:
        return {JVM_OPTIONS: jvm}


def _from_archive(jvm: str, conf: Path) -> Mapping[str, str]:
    files = {file.name for file in conf.iterdir()} if conf.is_dir() else set[str]()
    if _ARGUMENTS in os.environ or not _PASSED_BY_NAME <= files <= _PASSED_BY_NAME | _UNUSED_BY_SPARK:
        return {}
    archive = usable_archive(_SERVER, zookeeper_jars)
    return variables(f"{jvm} -XX:SharedArchiveFile={shlex.quote(str(archive))}", conf) if archive else {}


def variables(jvm: str, conf: Path) -> Mapping[str, str]:
    """The variables for a JVM without a folder on its class path; nothing is said of an archive that does not fit."""
    conf = conf.absolute()
    empty = cache_folder().absolute() / "archives" / "no-conf"
    empty.mkdir(parents=True, exist_ok=True)
    return {
        JVM_OPTIONS: f"{jvm} -Dlog4j2.configurationFile={(conf / 'log4j2.properties').as_uri()} -Xlog:disable",
        "SPARK_CONF_DIR": str(empty),
        _ARGUMENTS: f"--properties-file {shlex.quote(str(conf / 'spark-defaults.conf'))} pyspark-shell",
    }
