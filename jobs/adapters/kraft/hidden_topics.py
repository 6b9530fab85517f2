"""Topics that a broker leaves out because this client may not describe them.

A request for all topics omits, without an error, those for which the client lacks DESCRIBE. Without a check they would
look deleted. Where brokers have an authorizer, the topics in their log dirs are compared, for which DESCRIBE on the
cluster is enough.
"""

from collections.abc import Collection, Sequence
from typing import Final

from kafka.admin import ConfigResourceType
from kafka.protocol.admin import DescribeConfigsRequest, DescribeLogDirsRequest

from jobs.adapters.brokers.admin_client import NONE
from jobs.adapters.brokers.fanout import Ask, ask_brokers
from jobs.adapters.brokers.permission_refusal import refusal
from jobs.adapters.kraft.cluster import RefusedReadError
from schemas.broker_configs import AUTHORIZER
from schemas.enums import METADATA_TOPIC
from schemas.rows import HIDDEN_TOPICS, Broker, QuarantinedZnode
from schemas.text import abbreviate

SECONDS: Final = 30.0
"""Time limit for all brokers."""


def topics_in_log_dirs(
    brokers: Sequence[Broker], settings: dict[str, str]
) -> tuple[frozenset[str], list[QuarantinedZnode]]:
    """Return the topics in the log dirs of brokers that have an authorizer, and a row if some may be left out."""
    answers, faults = ask_brokers(brokers, settings, SECONDS, _topics_of)
    guarded = any(answer is not None for answer in answers.values())
    refused = [f"broker {broker}: {fault}" for broker, fault in faults.items()]
    names = frozenset[str]().union(*(answer or () for answer in answers.values())) - {METADATA_TOPIC}
    if not refused or (answers and not guarded):
        return names, []
    reason = f"topics that this client may not describe may be left out: {abbreviate(refused)}"
    return names, [QuarantinedZnode(path=HIDDEN_TOPICS, reason=reason)]


def _topics_of(ask: Ask, broker: Broker) -> Collection[str] | None:
    """Return the topics in a broker's log dirs; None if it has no authorizer, so that nothing is left out."""
    request = DescribeConfigsRequest(resources=[(ConfigResourceType.BROKER, str(broker.broker_id), [AUTHORIZER])])
    (result,) = ask(request).results
    if result.error_code == NONE and not any(row.value for row in result.configs):
        return None
    response = ask(DescribeLogDirsRequest(topics=None))
    if response.error_code != NONE:
        raise RefusedReadError(refusal(response.error_code, "cluster"))
    if not response.results:  # before version 3 a refusal has no error code
        raise RefusedReadError("this client needs the permission DESCRIBE on the cluster")
    return {topic.name for log_dir in response.results for topic in log_dir.topics}
