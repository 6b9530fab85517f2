"""Findings of the doctor about a KRaft cluster, from what was read; the stories run it on real brokers."""

import pyarrow as pa
import pytest

from jobs.adapters.brokers.permission_refusal import refusal
from jobs.adapters.clusters.interface import ClusterMetadata, LiveReading
from jobs.adapters.kraft.session import Quorum
from jobs.checks.check_results import CheckStatus
from jobs.checks.cluster_checks import remedies
from jobs.checks.kraft_checks import permission_results, quorum_result, reachability_result
from jobs.runtime.settings import ClusterConf, Settings
from schemas.rows import QuarantinedZnode, Voter

CLUSTER = refusal(31, "cluster")
TOPIC = refusal(29, "topic")
CONFIG = refusal(29, "topic", "DESCRIBE_CONFIGS")
PAGES, CONFIGS = "DescribeTopicPartitions/a", "DescribeConfigs/b"

SETTINGS = Settings("east", "warehouse", ClusterConf(), given_options={"cluster": ("--cluster", "east")})


def _reading(refusals: dict[str, str], unread_configs: dict[str, str] | None = None) -> LiveReading:
    return LiveReading(
        metadata=ClusterMetadata(controller_id=1, controller_epoch=1, position=1, cluster_id="c", brokers=[]),
        configs={},
        partitions=pa.table({}),
        quarantine=[QuarantinedZnode(path=path, reason=reason) for path, reason in refusals.items()],
        throttle_rates={},
        unread_broker_configs=unread_configs or {},
    )


@pytest.mark.parametrize(
    ("refusals", "status", "found"),
    [
        ({}, CheckStatus.FINE, "none is missing that reading needs"),
        (
            {"DescribeQuorum": CLUSTER, "ListPartitionReassignments": CLUSTER},
            CheckStatus.FAULT,
            "missing: DESCRIBE on the cluster (DescribeQuorum, ListPartitionReassignments)",
        ),
        (
            {PAGES: TOPIC, CONFIGS: CONFIG},
            CheckStatus.WARNING,
            f"missing: DESCRIBE on the topic ({PAGES}); DESCRIBE_CONFIGS on the topic ({CONFIGS})",
        ),
    ],
)
def test_each_missing_permission_is_named(refusals: dict[str, str], status: CheckStatus, found: str) -> None:
    (result,) = permission_results(SETTINGS, _reading(refusals))
    assert (result.status, result.found) == (status, found)
    assert (result.advice is None) == (status == CheckStatus.FINE)


def test_settings_of_brokers_need_a_permission_too() -> None:
    refused = refusal(31, "cluster", "DESCRIBE_CONFIGS")
    (result,) = permission_results(SETTINGS, _reading({}, {"broker 1": refused, "broker 2": refused}))
    assert result.found == "missing: DESCRIBE_CONFIGS on the cluster (broker 1, broker 2)"


def test_what_is_not_understood_otherwise_is_no_permission() -> None:
    moved = "its reassignment changed while it was read; take a snapshot again"
    permissions, reading = permission_results(SETTINGS, _reading({"DescribeTopicPartitions/a/0": moved}))
    assert permissions.status == CheckStatus.FINE
    assert reading.advice == "surveyor snapshot --cluster east; surveyor show quarantine --cluster east"
    assert (reading.status, reading.found) == (
        CheckStatus.WARNING,
        f"not understood: DescribeTopicPartitions/a/0: {moved}",
    )


@pytest.mark.parametrize(
    ("lag_ms", "status", "found"),
    [
        (300, CheckStatus.FINE, "leader 1, epoch 7; of 3 voters 2 are needed; all are up to date"),
        (
            None,
            CheckStatus.WARNING,
            "leader 1, epoch 7; of 3 voters 2 are needed; not up to date: 3 (never caught up with this leader)",
        ),
        (
            9_000,
            CheckStatus.WARNING,
            "leader 1, epoch 7; of 3 voters 2 are needed; not up to date: 3 (5 records and 9 s behind)",
        ),
    ],
)
def test_voters_that_lag_are_named(lag_ms: int | None, status: CheckStatus, found: str) -> None:
    lags = {1: (0, 0), 2: (0, 9), 3: (5, lag_ms)}
    voters = [Voter(voter_id=voter, lag=lag, lag_ms=behind) for voter, (lag, behind) in lags.items()]
    result = quorum_result(Quorum(leader_id=1, leader_epoch=7, high_watermark=1, voters=voters))
    assert (result.status, result.found) == (status, found)


def test_brokers_without_times_do_not_say_which_voters_lag() -> None:
    voters = [Voter(voter_id=voter, lag=0) for voter in (1, 2, 3)]
    result = quorum_result(Quorum(leader_id=1, leader_epoch=7, high_watermark=1, voters=voters))
    assert (result.status, result.found.rpartition("; ")[2]) == (
        CheckStatus.FINE,
        "unknown whether they are up to date",
    )


def test_one_silent_address_is_no_fault() -> None:
    some = reachability_result(["a:1", "b:1"], {"b:1": 0.004}, {"a:1": "refused"})
    none = reachability_result(["a:1"], {}, {"a:1": "refused"})
    assert (some.status, some.found) == (CheckStatus.WARNING, "1 of 2 addresses answered; a:1: refused")
    assert (none.status, none.found) == (CheckStatus.FAULT, "no broker answered: a:1: refused")


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("KafkaConnectionError: 111 ECONNREFUSED", "start the broker, or correct its address"),
        ("KafkaConnectionError: DNS Resolution failure", "correct the host name"),
        ("KafkaTimeoutError: no answer from kafka1:9092 within 5 s", "check that the broker's process responds"),
        ("KafkaConnectionError: socket disconnected", "check the route from here"),
        ("its certificate does not verify: expired; see ssl.ca.location", "correct security.protocol and ssl.*"),
        ("the listener uses TLS, and the request was plain text", "correct security.protocol and ssl.*"),
        ("SaslAuthenticationFailedError (58): see sasl.username", "correct the user and the credentials"),
        ("ClusterAuthorizationFailedError (31): this client needs the permission DESCRIBE", "grant that permission"),
        ("KafkaError: surprise", "see the log of the broker"),
    ],
)
def test_each_reason_of_a_broker_that_does_not_answer_has_its_remedy(reason: str, remedy: str) -> None:
    assert remedies([reason, reason]).startswith(remedy)
    assert ("grant" in remedies([reason])) == ("permission" in reason)
