"""A warehouse on an HDFS with Kerberos: commands log in by a keytab or a ticket cache, as docs/security.md shows.

HADOOP=1 .venv/bin/pytest -m torture tests/jobs/adapters/delta/test_kerberized_hdfs.py
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.spark.spark_settings import conf_dir
from jobs.core.errors import ExitCode
from tests.jobs.adapters.conftest import folder_name
from tests.jobs.adapters.delta.test_whole_job_on_stores import own_environment
from tests.jobs.support.kerberos.kdc import GUEST, REALM, USER, Kdc, keytab_with_another_key, ticket_cache
from tests.jobs.support.kerberos.kerberized_dfs import KerberizedDfs
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

pytestmark = [
    pytest.mark.torture,
    pytest.mark.objects,
    pytest.mark.spark,
    pytest.mark.skipif("HADOOP" not in os.environ, reason="set HADOOP=1: a dozen JVMs take minutes"),
]

NOWHERE = "FILE:/nowhere/tickets"


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberizedDfs]:
    with Kdc(tmp_path_factory.mktemp("kdc")) as kdc, KerberizedDfs(tmp_path_factory.mktemp("hdfs"), kdc) as server:
        server.client_conf(server.folder / "conf")
        yield server


@dataclass(frozen=True)
class User:
    """A user's variables and SPARK_CONF_DIR."""

    hdfs: KerberizedDfs
    hosts: str
    folder: Path
    warehouse: str

    def run(self, *arguments: str, spark: tuple[str, ...] = (), **variables: str) -> subprocess.CompletedProcess[str]:
        where = ["--zookeeper", self.hosts, "--warehouse", self.warehouse]
        defaults = (conf_dir() / "spark-defaults.conf").read_text()
        (self.folder / "spark-defaults.conf").write_text("\n".join([defaults, *spark, ""]))
        given = {
            "HADOOP_CONF_DIR": str(self.hdfs.folder / "conf"),
            "KRB5_CONFIG": str(self.hdfs.kdc.krb5_conf()),
            "SPARK_CONF_DIR": str(self.folder),
            "JAVA_TOOL_OPTIONS": self.hdfs.java_option,
        }
        return subprocess.run(
            [sys.executable, "-m", "jobs.entry", *arguments, *where],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env={**own_environment(), **given, **variables},
        )


@pytest.fixture
def user(tree: KafkaTree, hdfs: KerberizedDfs, tmp_path: Path, request: pytest.FixtureRequest) -> User:
    tree.add_topic("orders", {0: [0, 1], 1: [1, 2]})
    tree.unregister(0)
    return User(hdfs, tree.hosts, tmp_path, f"{hdfs.url}/{folder_name(request.node.name)}")


def by_keytab(keytab: Path, folder: Path) -> dict[str, Any]:
    """As docs/security.md has it: deltalake by variables, and Spark by its settings."""
    settings = (f"spark.kerberos.keytab {keytab}", f"spark.kerberos.principal {USER}@{REALM}")
    return {"KRB5_CLIENT_KTNAME": f"FILE:{keytab}", "KRB5CCNAME": f"FILE:{folder / 'filled'}", "spark": settings}


@pytest.mark.parametrize("way", ["keytab", "ticket cache"])
def test_the_whole_job(user: User, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kdc = user.hdfs.kdc
    keytab = kdc.keytab_of(USER)
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.krb5_conf()))
    login = (
        by_keytab(keytab, user.folder)
        if way == "keytab"
        else {"KRB5CCNAME": ticket_cache(user.folder / "tickets", keytab)}
    )

    def answer(*arguments: str) -> Any:  # noqa: ANN401 - whatever the command says
        done = user.run(*arguments, "--json", **login)
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    assert answer("snapshot")["partitions"] == 2
    assert answer("plan", "reconcile", "--name", "repair")["changes"] == 1
    assert [row["leader_after"] for row in answer("show", "plan", "repair")["rows"]] == [1]
    (found,) = [finding["found"] for finding in answer("doctor")["findings"] if finding["check"] == "warehouse"]
    assert found == f"{user.warehouse} can be written, and no commit overwrites another"


def test_a_failed_login_is_one_line(user: User) -> None:
    """The line names the keytab or the ticket cache, whatever command it is."""
    wrong = keytab_with_another_key(user.folder / "wrong.keytab", USER)
    expected = {
        "FILE:/nowhere.keytab": "the keytab /nowhere.keytab (KRB5_CLIENT_KTNAME) cannot be read: No such file",
        f"FILE:{wrong}": f"the KDC does not accept the key in {wrong}: export the keytab",
        "": f"without a keytab (KRB5_CLIENT_KTNAME) the Kerberos login with the ticket cache {NOWHERE} failed: ",
    }
    for keytab, reason in expected.items():
        named: dict[str, Any] = {"KRB5_CLIENT_KTNAME": keytab} if keytab else {}
        for command in (("snapshot",), ("show", "snapshots")):
            done = user.run(*command, KRB5CCNAME=NOWHERE, **named)
            assert done.returncode == ExitCode.UNREADABLE, done.stderr
            (line,) = [line for line in done.stderr.splitlines() if line.startswith("surveyor: ")]
            assert reason in line


def test_a_keytab_that_the_kdc_refuses_spark(user: User) -> None:
    """Deltalake has one of its own; what Java says precedes the last line."""
    login = by_keytab(user.hdfs.kdc.keytab_of(USER), user.folder)
    wrong = keytab_with_another_key(user.folder / "wrong.keytab", USER)
    done = user.run("snapshot", **login | {"spark": (f"spark.kerberos.keytab {wrong}", login["spark"][1])})
    assert done.returncode == ExitCode.MISSING
    *java, line = done.stderr.splitlines()
    assert f"keytab {wrong}" in " ".join(java)
    assert line.startswith("surveyor: Spark's JVM ended while it started: the lines before this one say why")


def test_a_user_without_permission(user: User) -> None:
    keytab = user.hdfs.kdc.keytab_of(GUEST)
    done = user.run("snapshot", KRB5_CLIENT_KTNAME=f"FILE:{keytab}", KRB5CCNAME=f"FILE:{user.folder / 'filled'}")
    assert "access is denied: the user needs to list, read, write and delete files there" in done.stderr
