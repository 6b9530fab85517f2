"""Allocates blocks of producer ids to brokers.

Corresponds to `KafkaController.allocateProducerIds` and `ZkProducerIdManager.getNewProducerIdBlock`: the next block
begins after the one in /latest_producer_id_block, which is set at its version. A block is never given twice. If
the response with a block is lost, the block is skipped, as in Kafka.
"""

from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct

from jobs.adapters.zookeeper.cluster_state import PRODUCER_IDS
from jobs.adapters.zookeeper.controllership import Controllership
from jobs.adapters.zookeeper.multi_operations import Op, create_or_set
from jobs.adapters.zookeeper.znode_reads import Znode, read
from jobs.core.errors import RefusedError, SurveyorError

BLOCK_SIZE: Final = 1000
"""Producer ids in a block (`ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE`)."""

_LAST_ID: Final = 2**63 - 1
_MAX_ATTEMPTS: Final = 100


class ProducerIdBlock(NamedTuple):
    """A block of producer ids: its first id and its length."""

    start: int
    length: int


class _Stored(Struct, frozen=True):
    """/latest_producer_id_block: `{"version":1,"broker":0,"block_start":"0","block_end":"999"}`."""

    version: int
    broker: int
    block_start: Annotated[str, Meta(pattern=r"^\d+$")]
    block_end: Annotated[str, Meta(pattern=r"^\d+$")]


_DECODER: Final = msgspec.json.Decoder(_Stored)


def allocate_block(control: Controllership, broker: int) -> ProducerIdBlock:
    """Write the next block for a broker and return it.

    Raise FencedError if another controller has taken over, and RefusedError if the znode cannot be understood or no ids
    are left: then no id is known not to be in use.
    """
    for _ in range(_MAX_ATTEMPTS):
        znode = control.read(lambda: read(control.client, PRODUCER_IDS))
        block = next_block(znode.data)
        failure = control.commit([_write(znode, broker, block)])
        if failure is None:
            return block
        if failure.is_final:
            raise RefusedError(f"no producer ids can be allocated: {failure}")
    raise SurveyorError(f"{PRODUCER_IDS} changed during each of {_MAX_ATTEMPTS} attempts to write it")


def next_block(data: bytes | None) -> ProducerIdBlock:
    """Return the block after the stored one; the first one if the znode has no data, as brokers create it.

    >>> next_block(b'{"version":1,"broker":0,"block_start":"0","block_end":"999"}')
    ProducerIdBlock(start=1000, length=1000)
    """
    if data is None:
        return ProducerIdBlock(0, BLOCK_SIZE)
    try:
        start = int(_DECODER.decode(data).block_end) + 1
    except msgspec.DecodeError as error:
        raise RefusedError(f"no producer ids can be allocated: {PRODUCER_IDS} could not be decoded: {error}") from None
    if start > _LAST_ID - BLOCK_SIZE:
        raise RefusedError(f"no producer ids are left: {PRODUCER_IDS} ends at {start - 1}")
    return ProducerIdBlock(start, BLOCK_SIZE)


def _write(znode: Znode, broker: int, block: ProducerIdBlock) -> Op:
    stored = _Stored(1, broker, str(block.start), str(block.start + block.length - 1))
    data = msgspec.json.encode(stored)
    return create_or_set(PRODUCER_IDS, data, znode.version)
