"""Sessions with settings of their own: what one job needs is nothing that another finds."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.adapters.spark.session import start_session, with_settings
from jobs.core.errors import MissingError

SHUFFLE, BATCH = "spark.sql.shuffle.partitions", "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.mark.jvm
def test_settings_of_one_job_do_not_leak(spark: SparkSession) -> None:
    before = spark.conf.get(SHUFFLE)

    own = with_settings(spark, {SHUFFLE: "77"})

    assert (own.conf.get(SHUFFLE), spark.conf.get(SHUFFLE)) == ("77", before)


@pytest.mark.jvm
def test_a_notebooks_settings_apply_in_jobs(spark: SparkSession) -> None:
    before = spark.conf.get(BATCH)
    spark.conf.set(BATCH, "123")
    try:
        assert with_settings(spark, {}).conf.get(BATCH) == "123"
    finally:
        spark.conf.set(BATCH, before or "10000")


@pytest.mark.jvm
def test_both_run_on_the_same_jvm(spark: SparkSession) -> None:
    own = with_settings(spark, {})

    assert own.sparkContext is spark.sparkContext
    assert own.range(3).count() == 3


def test_a_keytab_that_sparks_settings_name_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its JVM is not started, which would end with a stack trace."""
    (tmp_path / "spark-defaults.conf").write_text("spark.kerberos.keytab  /nowhere/surveyor.keytab\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    with pytest.raises(MissingError, match=r"keytab /nowhere/surveyor.keytab \(spark.kerberos.keytab in "):
        start_session("surveyor snapshot")
