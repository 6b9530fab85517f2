"""The JSON of Kafka's znodes: required fields, types and ranges.

A field with a default here may be absent. Null is allowed only in `host` and `rack`, because Kafka writes it there.
Unknown fields are ignored, so znodes of later versions can be read. `schemas.znode_codecs` converts these into values.
"""

from typing import Annotated, Final

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

Number = Annotated[int, Meta(ge=0, le=2**31 - 1)]
BrokerId = Number
PartitionNumber = Number
LAST_EPOCH: Final = 2**31 - 2
"""The last epoch that a broker can read and that still has a successor."""
Epoch = Annotated[int, Meta(ge=0, le=LAST_EPOCH)]
RequestedReplicas = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
"""A broker id in a request; the broker need not exist."""
NumberOrNone = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
Port = Annotated[int, Meta(ge=-1, le=65535)]
TopicId = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{22}(==)?\Z")]
Int = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]

PLAINTEXT: Final = "PLAINTEXT"

SECURITY_PROTOCOLS: Final = {name: name for name in (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")}


class Registration(Struct):
    version: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    jmx_port: Int
    host: str | None = None
    port: Port = -1
    endpoints: list[str] = []
    listener_security_protocol_map: dict[str, str] = field(default_factory=SECURITY_PROTOCOLS.copy)
    rack: str | None = None
    features: dict[str, dict[str, Int]] | None = None
    """Kafka's decoder throws if one of these has another form, whether it is used or not."""


class TopicJson(Struct):
    partitions: dict[PartitionNumber, list[BrokerId]]
    adding_replicas: dict[PartitionNumber, list[BrokerId]] = {}
    removing_replicas: dict[PartitionNumber, list[BrokerId]] = {}
    topic_id: TopicId | UnsetType = UNSET


class TopicByPart(Struct):
    """As TopicJson, with each partition's lists as raw JSON."""

    partitions: dict[str, Raw]
    adding_replicas: Raw | UnsetType = UNSET
    removing_replicas: Raw | UnsetType = UNSET
    topic_id: Raw | UnsetType = UNSET


class ControllerJson(Struct):
    brokerid: NumberOrNone
    kraft_controller_epoch: NumberOrNone = field(default=-1, name="kraftControllerEpoch")


class Config(Struct):
    config: dict[str, str]


class ConfigByPart(Struct):
    config: dict[str, Raw]


class ListedPartition(Struct):
    topic: str
    partition: PartitionNumber
    replicas: list[RequestedReplicas] | UnsetType = UNSET


class ListedPartitions(Struct):
    partitions: list[ListedPartition]


class ListedByPart(Struct):
    partitions: list[Raw]


class Migration(Struct):
    kraft_controller_id: NumberOrNone


class ClusterId(Struct):
    id: Annotated[str, Meta(min_length=1)]
