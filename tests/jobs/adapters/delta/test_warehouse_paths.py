"""Where a warehouse can be: odd names work or are refused in one line, and nothing is left half made."""

import os
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.adapters.delta.spark_warehouse import SparkWarehouse
from jobs.adapters.delta.warehouse import Warehouse
from jobs.adapters.delta.warehouse_paths import (
    disk_error_message,
    refuse_invalid_cluster_name,
    refuse_invalid_path,
    refuse_unwritable,
    takes_spark_commits,
)
from jobs.core.errors import SurveyorError, UsageError
from schemas.tables import SPARK_SCHEMAS
from tests.jobs.support.commands.commands import Surveyor

LOCKS = ".locks"

POSSIBLE = ("a b", "über", "a%zz", "a#b", 'it\'s "it"', "a:b=c", "~", "&;$()")
MOUNT, UMOUNT = "/bin/mount", "/bin/umount"
IMPOSSIBLE = ("[x]", "{x}", "x*", "a%20b", "a\\b", "a|b", "a^b", "a\nb")


@pytest.mark.parametrize("name", POSSIBLE)
def test_possible_without_spark(tmp_path: Path, name: str) -> None:
    warehouse = Warehouse(str(tmp_path / name / "warehouse"), name)
    warehouse.ensure_tables()
    warehouse.append("snapshots", [{"snapshot_id": 1, "taken_at": datetime.now(UTC), "versions": {}}])
    assert [row["snapshot_id"] for row in warehouse.rows("snapshots")] == [1]
    assert sorted(path.name for path in (tmp_path / name / "warehouse").iterdir()) == sorted([*SPARK_SCHEMAS, LOCKS])


def test_possible_with_spark(spark: SparkSession, tmp_path: Path) -> None:
    """All at once: what Spark writes Spark and deltalake read."""
    odd = "".join(POSSIBLE)
    warehouse = Warehouse(str(tmp_path / odd), odd)
    warehouse.ensure_tables()
    tables = SparkWarehouse(spark, warehouse)
    tables.replace("partitions", tables.frame("partitions", [{"topic": "t", "partition": 1}]))
    assert [row["topic"] for row in warehouse.rows("partitions")] == ["t"]
    assert tables.read("partitions").count() == 1


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_is_refused_before_anything(tmp_path: Path, name: str) -> None:
    for arguments in (["snapshot"], ["plan", "reconcile"], ["show", "brokers"], ["commit", "p"]):
        ran = Surveyor("127.0.0.1:1", tmp_path / name)(*arguments)
        assert (ran.code, ran.stdout, len(ran.stderr.splitlines())) == (2, "", 1)
        assert "choose another folder" in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_impossible_by_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "[here]").mkdir()
    monkeypatch.chdir(tmp_path / "[here]")
    with pytest.raises(UsageError, match="choose another folder"):
        refuse_invalid_path("warehouse")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file:///var/surveyor", "no warehouse can be there; give a folder as its path"),
        ("s3n://bucket/surveyor", "no warehouse can be there"),
        ("S3://bucket/surveyor", "no warehouse can be there; write s3:// in lower case"),
        ("dbfs:/lake/surveyor", "expected the path of a folder, or a URL of abfs://, abfss://, gs://"),
        ("file:/lake/surveyor", "expected the path of a folder, or a URL of abfs://, abfss://, gs://"),
        ("s3://bucket//surveyor", "'//' cannot be part of a Delta table's address"),
        ("s3://bucket/a//surveyor", "'//' cannot be part of a Delta table's address"),
        ("s3://bucket/../surveyor", "'/..' cannot be part of a Delta table's address"),
        ("gs://bucket/surveyor/.", "'/.' cannot be part of a Delta table's address"),
        ("hdfs://namenode:8020//surveyor", "'//' cannot be part of a Delta table's address"),
        ("http://host/surveyor", "no warehouse can be there"),
        ("s3://key:tr0ub4dor@bucket/surveyor", "the URL contains @, as one with credentials"),
        ("s3://key@bucket/surveyor", "the URL contains @, as one with credentials"),
        ("abfss://box:tr0ub4dor@account.dfs.core.windows.net/surveyor", "the URL contains @, as one with credentials"),
        ("s3://bucket/surveyor?sig=tr0ub4dor", "without ? and #"),
        ("s3://bucket", "expected a folder, as in s3://BUCKET/FOLDER"),
        ("s3://bucket/", "expected a folder, as in s3://BUCKET/FOLDER"),
        ("s3:///surveyor", "expected a URL of the form s3://BUCKET/FOLDER"),
        ("s3://AKIA:tr0ub/4dor@bucket/surveyor", "the URL contains @, as one with credentials"),
        ("hdfs://user:tr0ub/4dor@nn:8020/surveyor", "HADOOP_USER_NAME, or a Kerberos ticket"),
        ("S3://bucket/surveyor", "no warehouse can be there"),
        ("s3:/bucket/surveyor", "expected a URL of the form s3://BUCKET/FOLDER"),
        ("HDFS:surveyor", "expected a URL of the form hdfs://NAMENODE:PORT/FOLDER"),
        ("s3://[bucket/surveyor", "expected a URL of the form s3://BUCKET/FOLDER"),
        ("s3://bucket:9000/surveyor", "expected a URL of the form s3://BUCKET/FOLDER"),
        ("gs://buc ket/surveyor", "expected a URL of the form gs://BUCKET/FOLDER"),
        ("hdfs:///surveyor", "expected a URL of the form hdfs://NAMENODE:PORT/FOLDER"),
        ("abfss://account.dfs.core.windows.net/surveyor", "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER"),
        ("s3://bucket/a*b", "cannot be part of a Delta table's address"),
    ],
)
def test_invalid_warehouse_urls_are_refused_without_their_password(url: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as refused:
        refuse_invalid_path(url)

    assert "tr0ub4dor" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "by_spark"),
    [
        ("s3://bucket/surveyor", False),
        ("s3a://bucket/a/b", False),
        ("gs://bucket/surveyor", False),
        ("abfss://box@account.dfs.core.windows.net/surveyor", False),
        ("hdfs://name:8020/surveyor", True),
        ("hdfs://name/surveyor", True),
        ("/var/surveyor", True),
        ("surveyor", True),
    ],
)
def test_spark_commits_only_where_no_commit_overwrites_another(url: str, *, by_spark: bool) -> None:
    refuse_invalid_path(url)

    assert takes_spark_commits(url) is by_spark


@pytest.mark.parametrize("below", ["", "deeper/warehouse"])
def test_a_file_is_refused_as_a_warehouse(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    ran = Surveyor("127.0.0.1:1", tmp_path / "file" / below)("snapshot")
    assert (ran.code, len(ran.stderr.splitlines())) == (22, 1)
    assert f"{tmp_path / 'file'} is a file" in ran.stderr


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 201, "ü" * 40])
def test_names_that_no_folder_can_have_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a cluster"):
        refuse_invalid_cluster_name(name)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 kB: room for some of the tables."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run([MOUNT, "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], check=True)
    yield disk
    subprocess.run([UMOUNT, disk], check=True)


def test_full_disk_leaves_no_half_warehouse(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(bytes(200_000))
    with pytest.raises(Exception, match="No space left") as failed:
        Warehouse(str(small_disk / "deep" / "warehouse"), "default").ensure_tables()
    assert "no space is left on the disk" in (disk_error_message(failed.value) or "")
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


def test_read_only_disk(small_disk: Path) -> None:
    subprocess.run([MOUNT, "-o", "remount,ro", small_disk], check=True)
    for folder in (small_disk, small_disk / "warehouse"):
        with pytest.raises(SurveyorError, match="read-only"):
            Warehouse(str(folder), "default").ensure_tables()


def test_where_nothing_can_be_made(tmp_path: Path) -> None:
    """By its permissions root may; to look leaves nothing behind."""
    with pytest.raises(SurveyorError, match=r"/proc/w cannot be written: no folder can be made in /proc: "):
        refuse_unwritable("/proc/w")
    refuse_unwritable(str(tmp_path / "w"))
    assert list(tmp_path.iterdir()) == []


def test_tables_that_are_there_stay(tmp_path: Path) -> None:
    """One missing table is made; the others keep their rows."""
    warehouse = Warehouse(str(tmp_path), "default")
    warehouse.ensure_tables()
    warehouse.append("snapshots", [{"snapshot_id": 1, "taken_at": datetime.now(UTC), "versions": {}}])
    (tmp_path / "plans").rename(tmp_path.parent / "gone")
    warehouse.ensure_tables()
    assert len(warehouse.rows("snapshots")) == 1
    assert warehouse.rows("plans") == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Generic S3 error: ... <Code>AccessDenied</Code><Message>Access Denied</Message>", "access is denied"),
        ("Server returned error: <Code>NoSuchBucket</Code>", "there is no such bucket"),
        ("... <Code>ExpiredToken</Code><Message>The provided token has expired.</Message>", "credentials have expired"),
        ("... 503 Slow Down: <Code>SlowDown</Code>", "asks for fewer requests"),
        ("org.apache.hadoop.hdfs.server.namenode.SafeModeException: Cannot create file", "HDFS is in safe mode"),
        pytest.param(
            "GssMajorCodes(GSS_S_BAD_MECH) 0 No credentials were supplied", "Kerberos", marks=pytest.mark.kerberos
        ),
        ("HdfsObjectStore error: RPC listener disconnected", "HDFS closed the connection"),
    ],
)
def test_errors_of_a_store_are_one_line(text: str, reason: str) -> None:
    message = disk_error_message(RuntimeError(text)) or ""

    assert reason in message
    assert message.startswith("the store of the warehouse: ")
    assert "\n" not in message
