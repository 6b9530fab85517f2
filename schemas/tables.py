"""One StructType per Delta table: the columns of `schemas.columns` as Spark has them.

Importing this module imports Spark, which takes a third of a second. Code that needs only names uses `schemas.columns`.
"""

from typing import Final

from pyspark.sql.types import ArrayType, IntegerType, StructType

from schemas import columns

KEYS: Final = columns.KEYS
CHECKS: Final = columns.CHECKS

BROKER_IDS: Final = ArrayType(IntegerType())

TABLES: Final = {name: StructType.fromJson(table.json) for name, table in columns.TABLES.items()}

SNAPSHOTS: Final = TABLES["snapshots"]
BROKERS: Final = TABLES["brokers"]
BROKERS_LAST_SEEN: Final = TABLES["brokers_last_seen"]
TOPICS: Final = TABLES["topics"]
PARTITIONS: Final = TABLES["partitions"]
PARTITION_HISTORY: Final = TABLES["partition_history"]
REQUESTS: Final = TABLES["requests"]
BROKER_CONFIGS: Final = TABLES["broker_configs"]
QUARANTINE: Final = TABLES["quarantine"]
EVENTS: Final = TABLES["events"]
IMBALANCE: Final = TABLES["imbalance"]
WHATIF: Final = TABLES["whatif"]
PLANS: Final = TABLES["plans"]
CHANGES: Final = TABLES["changes"]
OPERATIONS: Final = TABLES["operations"]
REJECTIONS: Final = TABLES["rejections"]
EVIDENCE: Final = TABLES["evidence"]
SIZES: Final = TABLES["sizes"]
LOG_DIRS: Final = TABLES["log_dirs"]
DRAINED: Final = TABLES["drained"]
THROTTLES: Final = TABLES["throttles"]
COMMITS: Final = TABLES["commits"]
ANSWERS: Final = TABLES["answers"]
