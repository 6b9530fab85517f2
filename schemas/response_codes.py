"""The meaning of the error codes in brokers' responses to control requests.

Corresponds to three places in Kafka. `ControllerBrokerRequestBatch.sendLeaderAndIsrRequest` adds a replica to
`replicasOnOfflineDirs` on KAFKA_STORAGE_ERROR, removes it on NO_ERROR and ignores other codes.
`KafkaApis.isBrokerEpochStale` checks the broker epoch. `ReplicaManager.becomeLeaderOrFollower` answers a leader epoch
that it already has with STALE_CONTROLLER_EPOCH.
"""

from enum import Enum, auto
from typing import Final

from schemas.notices import LEADER_AND_ISR

NO_ERROR: Final = 0
NOT_SENT: Final = -1
"""`error` of a broker that did not answer, or that failed on the request (UNKNOWN_SERVER_ERROR)."""

STALE_CONTROLLER_EPOCH: Final = 11
CLUSTER_AUTHORIZATION_FAILED: Final = 31
KAFKA_STORAGE_ERROR: Final = 56
STALE_BROKER_EPOCH: Final = 77


class ResponseMeaning(Enum):
    """Consequence of the response for a partition, or for a request as a whole."""

    ACCEPTED = auto()
    """The broker accepted the request, and its log dir of the replica works."""
    ALREADY_KNOWN = auto()
    """The broker already knows this leader epoch, as from a request whose response was lost; its log dir is unknown."""
    OFFLINE = auto()
    """The replica is offline on this broker until it reports otherwise or registers again."""
    STALE_BROKER_EPOCH = auto()
    """The broker epoch sent is not the current one; read it again and send the broker everything again."""
    UNKNOWN = auto()
    """No response, or a nonsensical one; the request may succeed if it is sent again."""
    REFUSED = auto()
    """The broker did not accept the request."""

    @property
    def is_delivered(self) -> bool:
        """Whether the broker has the state that was sent."""
        return self in {ResponseMeaning.ACCEPTED, ResponseMeaning.ALREADY_KNOWN}


_BY_ERROR: Final = {
    NO_ERROR: ResponseMeaning.ACCEPTED,
    NOT_SENT: ResponseMeaning.UNKNOWN,
    STALE_BROKER_EPOCH: ResponseMeaning.STALE_BROKER_EPOCH,
}

_OF_LEADER_AND_ISR: Final = {
    STALE_CONTROLLER_EPOCH: ResponseMeaning.ALREADY_KNOWN,
    KAFKA_STORAGE_ERROR: ResponseMeaning.OFFLINE,
}

LOG_DIR_ERRORS: Final = (NO_ERROR, KAFKA_STORAGE_ERROR)
"""LeaderAndIsr errors that show whether the log dir of a replica works; no other error changes what is known of it."""


def meaning(api: str, error: int, of_request: int = NO_ERROR) -> ResponseMeaning:
    """Return the meaning of a partition's error; `of_request` is the error of the request as a whole.

    Only the controller writes leader epochs. So a broker that accepted the request and already has the epoch received
    it from the same controller. If the request was refused, 11 means that another controller has taken over.

    >>> meaning("LeaderAndIsr", 11), meaning("LeaderAndIsr", 11, of_request=11)
    (<ResponseMeaning.ALREADY_KNOWN: 2>, <ResponseMeaning.REFUSED: 6>)
    >>> meaning("LeaderAndIsr", 56), meaning("StopReplica", 56), meaning("UpdateMetadata", 77)
    (<ResponseMeaning.OFFLINE: 3>, <ResponseMeaning.REFUSED: 6>, <ResponseMeaning.STALE_BROKER_EPOCH: 4>)
    """
    if api == LEADER_AND_ISR and not of_request and error in _OF_LEADER_AND_ISR:
        return _OF_LEADER_AND_ISR[error]
    return _BY_ERROR.get(error, ResponseMeaning.REFUSED)
