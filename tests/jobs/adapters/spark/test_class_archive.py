"""The archive of Spark's classes: used where it is there, and nobody has chosen otherwise how Spark starts."""

import shlex
from pathlib import Path
from typing import Final

import pytest

from jobs.adapters.spark.class_archive import JVM_OPTIONS, quick_start, spark_archive

OPTIONS: Final = "-XX:+UseSerialGC"
ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
LEFT_ALONE: Final = {JVM_OPTIONS: OPTIONS}


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of settings, an archive, and an environment in which nothing is chosen."""
    for name in (JVM_OPTIONS, ARGUMENTS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SURVEYOR_CACHE", str(tmp_path / "the cache"))
    archive = spark_archive()
    archive.parent.mkdir(parents=True)
    archive.touch()
    folder = tmp_path / "my conf"
    folder.mkdir()
    for name in ("log4j2.properties", "spark-defaults.conf", "surveyor.toml"):
        (folder / name).touch()
    return folder


def test_settings_are_given_by_name_and_no_folder_on_the_class_path_has_files(conf: Path) -> None:
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


def test_what_else_is_in_the_folder_stays_on_the_class_path(conf: Path) -> None:
    (conf / "core-site.xml").touch()

    assert quick_start(OPTIONS, conf) == LEFT_ALONE


@pytest.mark.parametrize("missing", ["log4j2.properties", "spark-defaults.conf"])
def test_a_folder_without_settings_is_left_as_it_is(conf: Path, missing: str) -> None:
    (conf / missing).unlink()

    assert quick_start(OPTIONS, conf) == LEFT_ALONE


def test_a_folder_that_is_not_there_is_for_spark_to_complain_of(conf: Path) -> None:
    assert quick_start(OPTIONS, conf / "nowhere") == LEFT_ALONE


def test_who_has_chosen_how_spark_starts_knows_better(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ARGUMENTS, "--verbose pyspark-shell")
    assert quick_start(OPTIONS, conf) == LEFT_ALONE
    monkeypatch.setenv(JVM_OPTIONS, "-Dmine=1")
    assert quick_start(OPTIONS, conf) == {}
