"""Requests about groups that kafka-python lacks, from Kafka's descriptions of messages in this folder."""

from typing import Final

from kafka.protocol.api_message import ApiMessage

_HERE: Final = __name__


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_HERE):  # type: ignore[call-arg, misc] # kafka-python is untyped
    """Describe groups of the consumer protocol (KIP-848), since Kafka 3.7."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_HERE):  # type: ignore[call-arg, misc] # as above
    pass


class ShareGroupDescribeRequest(ApiMessage, load_json=_HERE):  # type: ignore[call-arg, misc] # as above
    """Describe share groups (KIP-932), since Kafka 4.1."""


class ShareGroupDescribeResponse(ApiMessage, load_json=_HERE):  # type: ignore[call-arg, misc] # as above
    pass


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=_HERE):  # type: ignore[call-arg, misc] # as above
    """Read the start offsets of the partitions of share groups, since Kafka 4.1."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=_HERE):  # type: ignore[call-arg, misc] # as above
    pass
