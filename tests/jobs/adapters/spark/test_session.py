"""Sessions with settings of their own: what one job needs is nothing that another finds."""

from pyspark.sql import SparkSession

from jobs.adapters.spark.session import with_settings

SHUFFLE, BATCH = "spark.sql.shuffle.partitions", "spark.sql.execution.arrow.maxRecordsPerBatch"


def test_settings_of_one_job_do_not_leak(spark: SparkSession) -> None:
    before = spark.conf.get(SHUFFLE)

    own = with_settings(spark, {SHUFFLE: "77"})

    assert (own.conf.get(SHUFFLE), spark.conf.get(SHUFFLE)) == ("77", before)


def test_what_a_notebook_has_set_holds_in_a_job_as_well(spark: SparkSession) -> None:
    before = spark.conf.get(BATCH)
    spark.conf.set(BATCH, "123")
    try:
        assert with_settings(spark, {}).conf.get(BATCH) == "123"
    finally:
        spark.conf.set(BATCH, before or "10000")


def test_both_run_on_the_same_jvm(spark: SparkSession) -> None:
    own = with_settings(spark, {})

    assert own.sparkContext is spark.sparkContext
    assert own.range(3).count() == 3
