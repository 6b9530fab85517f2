"""The latest controller epoch in the states of partitions."""

from itertools import islice

from kazoo.client import KazooClient

from jobs.adapters.zookeeper.cluster_state import TOPICS
from jobs.adapters.zookeeper.multi_read import children_of, read_permitted
from jobs.adapters.zookeeper.topics import PARTITIONS_PER_CHUNK
from jobs.adapters.zookeeper.znode_reads import Znode, children
from schemas.znode_codecs import controller_epoch_of
from schemas.znode_paths import state_path


def latest_epoch_of_states(client: KazooClient) -> int:
    """Return the latest controller epoch that a state carries, or 0 if there is none.

    The epoch counts even if the rest of a state cannot be decoded.
    """
    names = children(client, TOPICS) or []
    folders = [f"{TOPICS}/{name}/partitions" for name in names]
    partitions = children_of(client, folders, resume=True, permitted=True)
    numbered = zip(names, partitions, strict=True)
    paths = (state_path((name, number)) for name, numbers in numbered for number in numbers)
    latest = 0
    while chunk := list(islice(paths, PARTITIONS_PER_CHUNK)):
        latest = max([latest, *map(_controller_epoch, read_permitted(client, chunk, resume=True))])
    return latest


def _controller_epoch(znode: Znode) -> int:
    return 0 if znode.stat is None else controller_epoch_of(znode.data) or 0
