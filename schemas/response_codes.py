"""What brokers' answers to control requests mean, in one place for whoever interprets an error code.

Corresponds to `ControllerBrokerRequestBatch.sendLeaderAndIsrRequest`, where KAFKA_STORAGE_ERROR puts a replica among
`replicasOnOfflineDirs`, NONE takes it out and other codes say nothing; to `KafkaApis.isBrokerEpochStale`; and to
`ReplicaManager.becomeLeaderOrFollower`, which answers a leader epoch that it has already with STALE_CONTROLLER_EPOCH.
"""

from enum import Enum, auto
from typing import Final

from schemas.notices import LEADER_AND_ISR

NONE: Final = 0
NOT_SENT: Final = -1
"""`error` of a broker that gave no answer, and of one that failed over the request (UNKNOWN_SERVER_ERROR)."""

STALE_CONTROLLER_EPOCH: Final = 11
CLUSTER_AUTHORIZATION_FAILED: Final = 31
KAFKA_STORAGE_ERROR: Final = 56
STALE_BROKER_EPOCH: Final = 77


class ResponseMeaning(Enum):
    """What follows from an answer about a partition, or about a request as a whole."""

    ACCEPTED = auto()
    """It took what it was told; its log dir of the replica is there."""
    ALREADY_KNOWN = auto()
    """It knows this leader epoch already, as from a request whose answer was lost; of its log dir it says nothing."""
    OFFLINE = auto()
    """The replica is offline on this broker, until it says otherwise or registers anew."""
    STALE_BROKER_EPOCH = auto()
    """The broker epoch named is not its own: read it again, and tell the broker everything again."""
    UNKNOWN = auto()
    """No answer, or no sense in it: who is told once more may answer otherwise."""
    REFUSED = auto()
    """It did not take what it was told."""

    @property
    def is_delivered(self) -> bool:
        """Whether the broker knows what it was told."""
        return self in {ResponseMeaning.ACCEPTED, ResponseMeaning.ALREADY_KNOWN}


_BY_ERROR: Final = {
    NONE: ResponseMeaning.ACCEPTED,
    NOT_SENT: ResponseMeaning.UNKNOWN,
    STALE_BROKER_EPOCH: ResponseMeaning.STALE_BROKER_EPOCH,
}

_OF_LEADER_AND_ISR: Final = {
    STALE_CONTROLLER_EPOCH: ResponseMeaning.ALREADY_KNOWN,
    KAFKA_STORAGE_ERROR: ResponseMeaning.OFFLINE,
}

LOG_DIR_ERRORS: Final = (NONE, KAFKA_STORAGE_ERROR)
"""Errors of LeaderAndIsr that say whether the log dir of a replica is there; no other changes what is known of it."""


def meaning(api: str, error: int, of_request: int = NONE) -> ResponseMeaning:
    """Say what an error about a partition means; `of_request` is that of the request as a whole.

    Nobody but whoever holds the controllership writes leader epochs. So a broker that took the request and has the
    epoch heard it from the same controller; where the request was refused, 11 means that another has taken over.

    >>> meaning("LeaderAndIsr", 11), meaning("LeaderAndIsr", 11, of_request=11)
    (<ResponseMeaning.ALREADY_KNOWN: 2>, <ResponseMeaning.REFUSED: 6>)
    >>> meaning("LeaderAndIsr", 56), meaning("StopReplica", 56), meaning("UpdateMetadata", 77)
    (<ResponseMeaning.OFFLINE: 3>, <ResponseMeaning.REFUSED: 6>, <ResponseMeaning.STALE_BROKER_EPOCH: 4>)
    """
    if api == LEADER_AND_ISR and not of_request and error in _OF_LEADER_AND_ISR:
        return _OF_LEADER_AND_ISR[error]
    return _BY_ERROR.get(error, ResponseMeaning.REFUSED)
