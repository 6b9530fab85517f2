"""Admin mode, batch mode, `surveyor control` and snapshots on brokers that accept OAuth tokens, which expire."""

import logging
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from jobs.adapters.brokers.oauth_tokens import TOKEN_URL, expiry_of
from jobs.adapters.embedded.cluster import EmbeddedCluster
from jobs.core.properties import TOKEN_COMMAND
from schemas.tables import SPARK_SCHEMAS
from tests.jobs.support.commands.command_line import Surveyor
from tests.jobs.support.commands.control_process import controller_id, run_during_control
from tests.jobs.support.kafka.lasting_connections import accepted_before_and_after
from tests.jobs.support.kafka.real_cluster import create_topic, eventually
from tests.jobs.support.kafka.secured_kafka import write_properties
from tests.jobs.support.kafka.token_kafka import GUEST, REAUTHENTICATION, USER, token_cluster
from tests.jobs.support.kafka.unsecured_tokens import unsecured_token
from tests.jobs.support.rows.plan_rows import election, store_plan
from tests.jobs.support.zookeeper.kafka_tree import KafkaTree

OURS: Final = 2147483647
REFUSED: Final = 23
LIFETIME: Final = 15.0
"""Seconds that a token of the command is valid."""

_ISSUER: Final = """
import base64, json, sys, time

def part(content):
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

now = time.time()
claims = {"sub": sys.argv[1], "iat": now, "exp": now + float(sys.argv[2])}
token = part({"alg": "none"}) + "." + part(claims) + "."
with open(sys.argv[3], "a") as issued:
    issued.write(token + "\\n")
print(token)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with token_cluster() as started:
        yield started


@dataclass(frozen=True)
class Tokens:
    """A client.properties with a token command, and the tokens that it has issued."""

    config: Path
    issued_file: Path

    @property
    def issued(self) -> list[str]:
        return self.issued_file.read_text(encoding="utf-8").splitlines()

    @property
    def options(self) -> tuple[str, str]:
        return "--command-config", str(self.config)

    def refuse_shown(self, *texts: str) -> None:
        assert self.issued
        assert [token for token in self.issued if any(token in text for text in texts)] == []


def properties(folder: Path, source: str, value: str) -> Path:
    lines = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", source: value}
    return write_properties(folder / f"{len(list(folder.iterdir()))}.properties", lines)


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    script, issued = tmp_path / "issuer.py", tmp_path / "issued"
    script.write_text(_ISSUER, encoding="utf-8")
    command = shlex.join([sys.executable, str(script), USER, str(LIFETIME), str(issued)])
    return Tokens(properties(tmp_path, TOKEN_COMMAND, command), issued)


def by_file(folder: Path, token: str) -> tuple[str, str]:
    path = folder / f"token-{len(list(folder.iterdir()))}"
    path.touch(0o600)
    path.write_text(token, encoding="utf-8")
    return "--command-config", str(properties(folder, TOKEN_URL, path.as_uri()))


def processes() -> str:
    """The command lines and environments of all processes that may be read."""
    lines = list[str]()
    for folder in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                lines.append((folder / name).read_text(encoding="utf-8", errors="replace"))
            except OSError:
                continue  # it has ended
    return "\n".join(lines)


@pytest.mark.usefixtures("spark")
def test_leaders_move_in_both_modes_and_no_token_is_shown(  # noqa: PLR0913, PLR0917 - fixtures
    cluster: EmbeddedCluster,
    kafka: KafkaTree,
    surveyor: Surveyor,
    tokens: Tokens,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    create_topic(cluster, kafka, "moves", 2)
    token = unsecured_token(USER)
    texts = list[str]()
    for partition, options in enumerate((tokens.options, by_file(tmp_path, token))):
        led = partial(kafka.state, "moves", partition)
        for leader, mode in ((0, ("batch", "--yes")), (1, ("admin",))):
            plan = store_plan(surveyor.warehouse, kafka, [election(kafka, "moves", partition, leader=leader)])
            commit = ("commit", plan.plan_id, "--zookeeper", kafka.hosts, "--apply", "--mode", *mode, *options)
            done = surveyor.run(*commit)
            assert done.exit_code == 0, done.stderr
            assert led().leader == leader
            texts.append(done.output)
        for command in ("snapshot", "doctor"):
            done = surveyor.run(command, "--zookeeper", kafka.hosts, *options)
            assert done.exit_code == 0, done.output
            texts.append(" ".join(done.output.split()))
        assert "every broker can be notified of what batch mode writes" in texts[-1]
        assert "settings 2 brokers returned their configs" in texts[-1]

    assert {row["error"] for row in surveyor.warehouse.rows("answers")} == {0}
    tables = str({name: surveyor.warehouse.rows(name) for name in SPARK_SCHEMAS})
    shown = (*texts, caplog.text, tables, processes())
    tokens.refuse_shown(*shown)
    assert not any(token in text for text in shown)


def test_what_brokers_do_not_accept_writes_nothing(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, tmp_path: Path
) -> None:
    create_topic(cluster, kafka, "refused", 1)
    plan = store_plan(surveyor.warehouse, kafka, [election(kafka, "refused", 0, leader=0)])

    def error_of(token: str, mode: str) -> str:
        before = kafka.client.get("/controller_epoch"), kafka.state("refused", 0)
        options = ("--zookeeper", kafka.hosts, *by_file(tmp_path, token))
        done = surveyor.run("commit", plan.plan_id, "--apply", "--yes", "--mode", mode, *options)
        assert done.exit_code != 0
        assert (kafka.client.get("/controller_epoch"), kafka.state("refused", 0)) == before
        assert token not in done.output
        assert surveyor.commits(plan.plan_id) == []
        return " ".join(done.stderr.split())

    assert "ClusterAuthorizationFailed (31)" in error_of(unsecured_token(GUEST), "batch")
    for mode in ("batch", "admin"):
        assert "expired at" in error_of(unsecured_token(USER, lifetime=-60.0), mode)
        assert "SaslAuthenticationFailedError (58): it does not accept the token" in error_of("opaque", mode)


def test_connections_that_outlive_their_tokens(kafka: KafkaTree, tokens: Tokens) -> None:
    """The Admin API's authenticates again by itself; one for control requests is made again."""
    assert accepted_before_and_after(kafka, tokens.config, "TOKENS", lambda: wait_for_expiry(tokens)) == [
        [0, 1],
        [0, 1],
    ]
    assert len(tokens.issued) > 1


def wait_for_expiry(tokens: Tokens) -> None:
    """Until every token issued so far has expired, and its connections must authenticate again."""
    last = max(filter(None, map(expiry_of, tokens.issued)))
    time.sleep(max(0.0, last - time.time()) + REAUTHENTICATION)


@pytest.mark.usefixtures("spark")
def test_a_controller_that_outlives_its_tokens(
    cluster: EmbeddedCluster, kafka: KafkaTree, surveyor: Surveyor, tokens: Tokens
) -> None:
    create_topic(cluster, kafka, "resident", 1)
    led = partial(kafka.state, "resident", 0)
    listed = list[str]()

    def act() -> None:
        assert eventually(lambda: controller_id(kafka) == OURS)
        wait_for_expiry(tokens)
        cluster.brokers[1].kill()
        cluster.brokers[1].expire()
        assert eventually(lambda: (led().leader, led().isr) == (0, [0]))
        assert eventually(lambda: len(tokens.issued) > 1)  # the state is written before brokers are notified
        listed.append(processes())
        wait_for_expiry(tokens)
        cluster.brokers[1].restart()
        assert eventually(lambda: led().isr == [0, 1])

    with run_during_control(act):
        ran = surveyor.run("control", "--apply", "--yes", "--zookeeper", kafka.hosts, *tokens.options)

    assert ran.exit_code == 130, ran.output
    assert len(tokens.issued) > 2
    tokens.refuse_shown(ran.output, *listed)
