"""Cluster mode on a YARN with Kerberos, a warehouse on its HDFS, and a ZooKeeper that executors read by a keytab.

    HADOOP=1 .venv/bin/pytest -m torture tests/jobs/adapters/spark/test_kerberized_yarn.py

Containers run as the user of the node manager (DefaultContainerExecutor), not as the one who submits: that needs root
and a container executor in C. The topics' znodes have ACLs, so a process that reads them has logged in.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from kazoo.security import make_acl

from jobs.core.errors import ExitCode
from tests.jobs.adapters.spark.conftest import DUE, TOPICS, large_tree
from tests.jobs.conftest import DISK
from tests.jobs.support.commands.documented_commands import ROOT
from tests.jobs.support.commands.user_shell import bare, home
from tests.jobs.support.kerberos.kdc import HDFS, REALM, USER, Kdc
from tests.jobs.support.kerberos.kerberized import KerberizedZooKeeper
from tests.jobs.support.kerberos.kerberized_dfs import CLIENTS, KerberizedDfs
from tests.jobs.support.outside.spark_servers import HOME, as_options
from tests.jobs.support.outside.yarn import Yarn
from tests.spark_settings import QUICK, QUICK_JVM

pytestmark = [
    pytest.mark.torture,
    pytest.mark.objects,
    pytest.mark.spark,
    pytest.mark.skipif("HADOOP" not in os.environ, reason="set HADOOP=1: an application on YARN takes a minute"),
]

PYTHON: Final = ROOT / ".venv" / "bin" / "python"

ZOOKEEPER_CONFIG: Final = f"""\
security.protocol=SASL_PLAINTEXT
sasl.mechanism=GSSAPI
sasl.kerberos.keytab=zookeeper.keytab
sasl.kerberos.principal={USER}@{REALM}
"""


def of_yarn(kdc: Kdc) -> dict[str, str]:
    """Settings of servers and clients; both servers have the principal of HDFS."""
    named = {"principal": f"{HDFS}@{REALM}", "keytab": str(kdc.keytab)}
    servers = {
        f"yarn.{server}.{name}": value for server in ("resourcemanager", "nodemanager") for name, value in named.items()
    }
    return {**CLIENTS, **servers, "yarn.resourcemanager.webapp.delegation-token-auth-filter.enabled": "false"}


@dataclass(frozen=True)
class Submission:
    """What a user has: a keytab, Hadoop's settings, and copies of the keytab to send along."""

    folder: Path
    yarn: Yarn
    hdfs: KerberizedDfs
    zookeeper: str
    keytab: Path

    @property
    def warehouse(self) -> str:
        return f"{self.hdfs.url}/warehouse"

    @property
    def hadoop(self) -> dict[str, str]:
        return {"HADOOP_CONF_DIR": str(self.yarn.conf), "KRB5_CONFIG": str(self.hdfs.kdc.krb5_conf())}

    def submit(self, script: str, *arguments: str, config: str = ZOOKEEPER_CONFIG) -> subprocess.CompletedProcess[str]:
        (self.folder / "zookeeper.properties").write_text(config)
        for name in ("delta.keytab", "zookeeper.keytab"):
            shutil.copy(self.keytab, self.folder / name)
        files = ",".join(
            str(self.folder / name) for name in ("zookeeper.properties", "delta.keytab", "zookeeper.keytab")
        )
        java = f"{QUICK_JVM} {self.hdfs.java_option}"
        login = {"KRB5_CLIENT_KTNAME": "FILE:delta.keytab", "KRB5CCNAME": "FILE:tickets"}
        settings = QUICK | {
            "spark.yarn.jars": f"local:{HOME}/jars/*",
            "spark.yarn.maxAppAttempts": "1",
            "spark.executor.instances": "1",
            "spark.executor.memory": "600m",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": java,
            "spark.executor.extraJavaOptions": java,
            "spark.pyspark.python": str(PYTHON),
            "spark.executorEnv.KRB5_CONFIG": self.hadoop["KRB5_CONFIG"],
            **{f"spark.yarn.appMasterEnv.{name}": value for name, value in (self.hadoop | login).items()},
        }
        line = [
            *("spark-submit", "--master", "yarn", "--deploy-mode", "cluster"),
            *("--principal", f"{USER}@{REALM}", "--keytab", str(self.keytab), "--files", files),
            *("--properties-file", "conf/spark-defaults.conf", *as_options(settings)),
            f"--jars $({PYTHON} -m jobs.adapters.java.jars delta)",
            *(f"jobs/{script}.py", *arguments, "--warehouse", self.warehouse),
        ]
        words = " ".join(word if word.startswith("--jars") else f"'{word}'" for word in line)
        return self.run(words, SPARK_SUBMIT_OPTS=java)

    def run(self, line: str, **variables: str) -> subprocess.CompletedProcess[str]:
        login = {"KRB5_CLIENT_KTNAME": f"FILE:{self.keytab}", "KRB5CCNAME": f"FILE:{self.folder / 'filled'}"}
        given = self.hadoop | login | variables
        return bare(f". .venv/bin/activate; {line}", ROOT, self.folder / "home", **given)


@pytest.fixture(scope="module")
def submission() -> Iterator[Submission]:
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="surveyor-yarn-", dir=DISK)))
        for name in ("kdc", "hdfs", "yarn", "zookeeper"):
            (folder / name).mkdir()
        kdc = running.enter_context(Kdc(folder / "kdc"))
        hdfs = running.enter_context(KerberizedDfs(folder / "hdfs", kdc))
        server = KerberizedZooKeeper(folder / "zookeeper")
        server.kdc = kdc
        running.enter_context(server)
        tree = running.enter_context(large_tree(server))
        for topic in range(TOPICS):
            tree.client.set_acls(f"/brokers/topics/t{topic}", [make_acl("sasl", USER, all=True)])
        more, options = of_yarn(kdc), [hdfs.java_option]
        yarn = running.enter_context(Yarn(folder / "yarn", hdfs.url, more=more, java_options=options))
        home(folder / "home")
        hosts = tree.hosts.replace("127.0.0.1", "localhost")
        yield Submission(folder, yarn, hdfs, hosts, kdc.keytab_of(USER))


def test_snapshot_plan_and_show(submission: Submission) -> None:
    for script, *arguments in (
        ("snapshot", "--zookeeper", submission.zookeeper, "--zookeeper-config", "zookeeper.properties"),
        ("plan", "reconcile", "--name", "repair"),
    ):
        done = submission.submit(script, *arguments)
        assert done.returncode == 0, done.stderr[-6000:] + submission.yarn.output()[-12000:]
    shown = submission.run(f"surveyor show plan repair --json --warehouse {submission.warehouse}")
    assert shown.returncode == ExitCode.DONE, shown.stderr
    assert f'"changes": {DUE}' in shown.stdout
