"""The ACL that Kafka gives to its znodes."""

from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.security import ACL, OPEN_ACL_UNSAFE

from jobs.adapters.zookeeper.connection import await_result
from jobs.core.errors import SurveyorError
from jobs.core.option_sources import ZOOKEEPER_CONFIG, option_name
from schemas.znode_paths import TOPICS

_ACL_SOURCE: Final = TOPICS
"""The brokers create this znode, so it has the ACL that Kafka gives to its znodes (`ZkData.defaultAcls`)."""

_MASKED_DIGEST_SUFFIX: Final = ":x"
"""The text that ZooKeeper returns in place of a digest to clients without the ADMIN permission."""


def use_kafka_acl(client: KazooClient) -> None:
    """Let this client create znodes with the ACL that Kafka gives to its own znodes.

    If brokers run with zookeeper.set.acl=true, then they can write these znodes and other clients cannot. Raise
    SurveyorError if ZooKeeper masks the ACL: brokers could not write the znodes that we would create.
    """
    acls = kafka_acl(client)
    if acls is not None:  # otherwise the next read reports that there is no cluster, or that it is not readable for us
        client.default_acl = None if acls == OPEN_ACL_UNSAFE else acls


def kafka_acl(client: KazooClient) -> list[ACL] | None:
    """Return the ACL that Kafka gives to its own znodes, None if it cannot be read; raise SurveyorError if masked."""
    try:
        acls, _ = await_result(client.get_acls_async(_ACL_SOURCE))
    except (NoNodeError, NoAuthError):
        return None
    if any(acl.id.scheme == "digest" and acl.id.id.endswith(_MASKED_DIGEST_SUFFIX) for acl in acls):
        raise SurveyorError(
            f"the ACL of {_ACL_SOURCE} is hidden from Surveyor, so brokers could not write the znodes that Surveyor "
            f"creates: name the brokers' user in {option_name(ZOOKEEPER_CONFIG)}; nothing was written",
        )
    return list(acls)
