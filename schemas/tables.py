"""One StructType per Delta table: the columns of `schemas.columns` as Spark has them.

Importing this module imports Spark, which takes a third of a second. Code that needs only names uses `schemas.columns`.
"""

from typing import Final

from pyspark.sql.types import ArrayType, IntegerType, StructType

from schemas.columns import KEY_COLUMNS, TABLE_COLUMNS, uncommented

PARTITION_KEY: Final = [*KEY_COLUMNS["partitions"]]

BROKER_IDS: Final = ArrayType(IntegerType())

SPARK_SCHEMAS: Final = {name: StructType.fromJson(uncommented(columns.json)) for name, columns in TABLE_COLUMNS.items()}
"""Without comments, which rows lose on one engine and keep on another."""

SNAPSHOTS: Final = SPARK_SCHEMAS["snapshots"]
BROKERS: Final = SPARK_SCHEMAS["brokers"]
BROKERS_LAST_SEEN: Final = SPARK_SCHEMAS["brokers_last_seen"]
TOPICS: Final = SPARK_SCHEMAS["topics"]
PARTITIONS: Final = SPARK_SCHEMAS["partitions"]
PARTITION_HISTORY: Final = SPARK_SCHEMAS["partition_history"]
REQUESTS: Final = SPARK_SCHEMAS["requests"]
BROKER_CONFIGS: Final = SPARK_SCHEMAS["broker_configs"]
QUARANTINE: Final = SPARK_SCHEMAS["quarantine"]
EVENTS: Final = SPARK_SCHEMAS["events"]
IMBALANCE: Final = SPARK_SCHEMAS["imbalance"]
WHATIF: Final = SPARK_SCHEMAS["whatif"]
CHANGES: Final = SPARK_SCHEMAS["changes"]
OPERATIONS: Final = SPARK_SCHEMAS["operations"]
REJECTIONS: Final = SPARK_SCHEMAS["rejections"]
EVIDENCE: Final = SPARK_SCHEMAS["evidence"]
SIZES: Final = SPARK_SCHEMAS["sizes"]
DRAINED: Final = SPARK_SCHEMAS["drained"]
ANSWERS: Final = SPARK_SCHEMAS["answers"]
PARTITION_OFFSETS: Final = SPARK_SCHEMAS["partition_offsets"]
GROUP_OFFSETS: Final = SPARK_SCHEMAS["group_offsets"]
BROKER_METRICS: Final = SPARK_SCHEMAS["broker_metrics"]
PARTITION_LOAD: Final = SPARK_SCHEMAS["partition_load"]
BROKER_LOAD: Final = SPARK_SCHEMAS["broker_load"]
GROUP_LOAD: Final = SPARK_SCHEMAS["group_load"]
LOAD_PROFILES: Final = SPARK_SCHEMAS["load_profiles"]
