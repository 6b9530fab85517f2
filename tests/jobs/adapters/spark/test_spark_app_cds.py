"""The archive of Spark's classes: used where it is there, and the user has not chosen otherwise how Spark starts.

Whatever is wrong around it costs the archive and not the start.
"""

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Final, NoReturn

import pytest

from jobs.adapters.java import jars
from jobs.adapters.java.app_cds import shared_classes
from jobs.adapters.spark.spark_app_cds import JVM_OPTIONS, quick_start, spark_archive

OPTIONS: Final = "-XX:+UseSerialGC"
ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
LEFT_ALONE: Final = {JVM_OPTIONS: OPTIONS}
CONF: Final = Path(__file__).parents[4] / "conf"


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of `conf`, an archive, and an environment in which nothing is chosen."""
    for name in (JVM_OPTIONS, ARGUMENTS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SURVEYOR_CACHE", str(tmp_path / "the cache"))
    archive = spark_archive()
    archive.parent.mkdir(parents=True)
    archive.touch()
    folder = tmp_path / "my conf"
    folder.mkdir()
    for file in CONF.iterdir():
        (folder / file.name).touch()
    return folder


def test_class_path_has_no_folder_with_files(conf: Path) -> None:
    variables = quick_start(OPTIONS, conf)

    assert f"-XX:SharedArchiveFile={spark_archive()}" in shlex.split(variables[JVM_OPTIONS])
    assert f"-Dlog4j2.configurationFile={(conf / 'log4j2.properties').as_uri()}" in variables[JVM_OPTIONS]
    assert variables[JVM_OPTIONS].startswith(OPTIONS)
    assert shlex.split(variables[ARGUMENTS]) == [
        "--properties-file",
        str(conf / "spark-defaults.conf"),
        "pyspark-shell",
    ]
    assert [*Path(variables["SPARK_CONF_DIR"]).iterdir()] == []


def test_where_none_was_recorded_the_jvm_has_its_options(conf: Path) -> None:
    spark_archive().unlink()

    assert quick_start(OPTIONS, conf) == LEFT_ALONE


def test_other_files_keep_the_folder_on_the_class_path(conf: Path) -> None:
    (conf / "core-site.xml").touch()

    assert quick_start(OPTIONS, conf) == LEFT_ALONE


@pytest.mark.parametrize("missing", ["log4j2.properties", "spark-defaults.conf"])
def test_a_folder_without_settings_is_left_as_it_is(conf: Path, missing: str) -> None:
    (conf / missing).unlink()

    assert quick_start(OPTIONS, conf) == LEFT_ALONE


def test_a_missing_folder_is_left_to_spark(conf: Path) -> None:
    assert quick_start(OPTIONS, conf / "nowhere") == LEFT_ALONE


def test_options_of_the_user_come_first(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ARGUMENTS, "--verbose pyspark-shell")
    assert quick_start(OPTIONS, conf) == LEFT_ALONE
    monkeypatch.setenv(JVM_OPTIONS, "-Dmine=1")
    assert quick_start(OPTIONS, conf) == {}


def refuse(*_: object, **__: object) -> NoReturn:
    raise PermissionError(13, "Permission denied")


def _no_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under spark-submit, where pyspark lies in a zip."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    zipped = SimpleNamespace(origin="/spark/python/lib/pyspark.zip/pyspark/__init__.py")
    monkeypatch.setattr(jars, "find_spec", lambda _: zipped)


def _no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")


def _no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> NoReturn:
        raise RuntimeError("Could not determine home directory.")

    for name in ("SURVEYOR_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(Path, "home", homeless)


FAILURES: Final[dict[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "no jars": _no_jars,
    "no Java": _no_java,
    "no home directory": _no_home,
    "a home directory that cannot be looked into": lambda patch: patch.setattr(Path, "is_file", refuse),
    "an archive that cannot be read": lambda patch: patch.setattr(os, "access", lambda *_: False),
}
"""What can be wrong with an archive of classes."""


@pytest.mark.parametrize("failure", FAILURES)
def test_what_fails_around_the_archive_costs_the_archive_alone(
    conf: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ["SURVEYOR_CACHE"])
    assert shared_classes("spark", jars.zookeeper_jars) == [f"-XX:SharedArchiveFile={spark_archive()}"]

    FAILURES[failure](monkeypatch)

    assert (quick_start(OPTIONS, conf), shared_classes("spark", jars.zookeeper_jars)) == (LEFT_ALONE, [])


def test_a_cache_that_cannot_be_written_costs_the_archive_alone(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "mkdir", refuse)

    assert quick_start(OPTIONS, conf) == LEFT_ALONE


def test_settings_that_cannot_be_listed_cost_the_archive_alone(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "iterdir", refuse)

    assert quick_start(OPTIONS, conf) == LEFT_ALONE
