"""Files that Spark's executors read: those of the driver, at the same path or sent along with the job."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.adapters.clusters.zookeeper import ZooKeeperCluster
from jobs.adapters.zookeeper.endpoint import ZooKeeperEndpoint
from jobs.core.errors import UsageError
from jobs.core.properties import on_executor
from jobs.snapshots.topic_reading import stage_topics
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

KERBEROS = """\
security.protocol=SASL_PLAINTEXT
sasl.mechanism=GSSAPI
sasl.kerberos.keytab=/nowhere/surveyor.keytab
sasl.kerberos.principal=surveyor
"""


@pytest.mark.parametrize(
    ("content", "missing"),
    [(KERBEROS, "the keytab /nowhere/surveyor.keytab"), (None, "cannot read --zookeeper-config ")],
)
def test_a_file_that_executors_lack_is_named(
    spark: SparkSession, tree: KafkaTree, tmp_path: Path, content: str | None, missing: str
) -> None:
    """The driver has connected already, so it lacks nothing."""
    tree.add_topic("orders", {0: [0, 1]})
    config = tmp_path / "zookeeper.properties"
    if content is not None:
        config.write_text(content)
    tables: Any = SimpleNamespace(spark=spark)
    with ZooKeeperCluster(ZooKeeperEndpoint(tree.hosts)) as cluster, cluster.connected():
        cluster.endpoint = ZooKeeperEndpoint(tree.hosts, config)
        with pytest.raises(UsageError) as refused:
            stage_topics(cluster, tables, tiny=False)

    (line,) = str(refused.value).splitlines()
    assert missing in line
    assert "No such file or directory; " in line
    assert "spark-submit --files FILE" in line


def test_a_file_that_was_sent_is_found_in_the_folder_of_the_executor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("/etc/surveyor/zookeeper.properties")
    assert on_executor(path) == path
    Path(path.name).touch()
    assert on_executor(path) == Path(path.name)
    assert on_executor(Path(path.name).absolute()) == tmp_path / path.name
