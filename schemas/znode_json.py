"""The JSON in Kafka's znodes, field by field: which must be there, of which kind, in which range.

A field of ours that has a default may be absent; null is allowed only where Kafka writes it, in `host` and `rack`.
Unknown fields are ignored, so that later versions are read. `schemas.znodes` makes values out of these.
"""

from typing import Annotated, Final

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

Number = Annotated[int, Meta(ge=0, le=2**31 - 1)]
BrokerId = Number
Partition = Number
LAST_EPOCH: Final = 2**31 - 2
"""After which there is one more that a broker can read, and none that could follow it."""
Epoch = Annotated[int, Meta(ge=0, le=LAST_EPOCH)]
RequestedReplicas = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
"""A broker that somebody asks for, be there one or not."""
NumberOrNone = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
Port = Annotated[int, Meta(ge=-1, le=65535)]
TopicId = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{22}\Z")]

SECURITY_PROTOCOLS: Final = {name: name for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")}


class Registration(Struct):
    version: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    host: str | None = None
    port: Port = -1
    endpoints: list[str] = []
    listener_security_protocol_map: dict[str, str] = field(default_factory=SECURITY_PROTOCOLS.copy)
    rack: str | None = None


class Topic(Struct):
    partitions: dict[Partition, list[BrokerId]]
    adding_replicas: dict[Partition, list[BrokerId]] = {}
    removing_replicas: dict[Partition, list[BrokerId]] = {}
    topic_id: TopicId | UnsetType = UNSET


class TopicByPart(Struct):
    """The same, each partition's lists still as they are written."""

    partitions: dict[str, Raw]
    adding_replicas: dict[str, Raw] = {}
    removing_replicas: dict[str, Raw] = {}
    topic_id: TopicId | UnsetType = UNSET


class ControllerNode(Struct):
    brokerid: NumberOrNone
    kraft_controller_epoch: NumberOrNone = field(default=-1, name="kraftControllerEpoch")


class Config(Struct):
    config: dict[str, str]


class ConfigByPart(Struct):
    config: dict[str, Raw]


class ListedPartition(Struct):
    topic: str
    partition: Partition
    replicas: list[RequestedReplicas] | UnsetType = UNSET


class ListedPartitions(Struct):
    partitions: list[ListedPartition]


class ListedByPart(Struct):
    partitions: list[Raw]


class Migration(Struct):
    kraft_controller_id: NumberOrNone


class ClusterId(Struct):
    id: Annotated[str, Meta(min_length=1)]
