"""Invariants of a simulated cluster once no new events happen and the controller is quiet."""

from collections.abc import Iterator

from schemas.enums import NO_LEADER
from schemas.rows import Key
from schemas.znode_codecs import Assignment, State, decode_partitions
from tests.jobs.controller.model.brokers import Replica
from tests.jobs.controller.model.clusters import ELECT, REASSIGN, SimulatedCluster


def violations(cluster: SimulatedCluster) -> list[str]:
    """Return the violated invariants."""
    return [
        *_topic_violations(cluster),
        *_request_violations(cluster),
        *_log_violations(cluster),
        *_proposal_violations(cluster),
    ]


def _topic_violations(cluster: SimulatedCluster) -> Iterator[str]:
    for topic in cluster.topics:
        assignment = cluster.assignment(topic)
        assert assignment is not None
        for number, replicas in sorted(assignment.partitions.items()):
            key = topic, number
            if not cluster.is_queued(topic):
                leaving = assignment.removing_replicas.get(number, [])
                yield from (
                    f"{topic}-{number}: {violation}"
                    for violation in _partition_violations(cluster, key, replicas, leaving)
                )
                yield from (
                    f"{topic}-{number}: {violation}" for violation in _reassignment_violations(cluster, key, assignment)
                )


def _partition_violations(
    cluster: SimulatedCluster, key: Key, replicas: list[int], leaving: list[int]
) -> Iterator[str]:
    znode = cluster.state(key)
    healthy = [broker for broker in replicas if cluster.is_healthy(broker, key)]
    if znode is None:
        # before brokers were sent a LeaderAndIsr, one with a failed log dir cannot be distinguished from others
        if healthy and key not in cluster.lost:
            yield f"it has no leader, but {healthy} are live"
        return
    state, version = znode
    in_sync = [broker for broker in state.isr if broker in healthy]
    if not in_sync:
        if state.leader != NO_LEADER:
            yield f"{state.leader} leads it, but no replica of the ISR {state.isr} is live"
        if healthy and cluster.allows_unclean(key[0]):
            yield f"it has no leader, but {healthy} are live, and its topic allows unclean elections"
        return
    if state.leader not in in_sync:
        yield f"it has no live leader: {state}, alive and in sync are {in_sync}"
        return
    leader = _replica(cluster, state.leader, key)
    if leader is None or (leader.leader, leader.leader_epoch, leader.state_version) != (
        state.leader,
        state.leader_epoch,
        version,
    ):
        yield f"its leader has another state: {state} at version {version}, the leader has {leader}"
    # a leaving replica may have stopped before a replica of the target was lost for good, which the move waits for
    followers = [broker for broker in healthy if broker in state.isr or broker not in leaving]
    yield from _follower_violations(cluster, key, state, followers)


def _follower_violations(cluster: SimulatedCluster, key: Key, state: State, healthy: list[int]) -> Iterator[str]:
    if sorted(state.isr) != sorted(healthy):
        yield f"the ISR is {state.isr}, but {healthy} are live"
    for broker in healthy:
        replica = _replica(cluster, broker, key)
        if replica is None or (replica.leader, replica.leader_epoch, replica.stopped) != (
            state.leader,
            state.leader_epoch,
            False,
        ):
            yield f"{broker} does not follow: {state}, the broker has {replica}"
    for simulated in cluster.brokers.values():
        metadata = simulated.process.metadata.get(key) if simulated.process else None
        if simulated.process and metadata != (state.leader, state.leader_epoch, state.isr):
            yield f"{simulated.id} returns {metadata} to clients: {state}"


def _replica(cluster: SimulatedCluster, broker: int, key: Key) -> Replica | None:
    process = cluster.brokers[broker].process
    return process.replicas.get(key) if process and key not in process.offline else None


def _reassignment_violations(cluster: SimulatedCluster, key: Key, assignment: Assignment) -> Iterator[str]:
    removing = assignment.removing_replicas.get(key[1], [])
    if not (removing or assignment.adding_replicas.get(key[1])) or not _is_led(cluster, key):
        return
    target = [broker for broker in assignment.partitions[key[1]] if broker not in removing]
    if all(cluster.is_healthy(broker, key) for broker in target):
        yield f"its move never ends: {assignment}"


def _is_led(cluster: SimulatedCluster, key: Key) -> bool:
    znode = cluster.state(key)
    return znode is not None and cluster.is_healthy(znode[0].leader, key)


def _request_violations(cluster: SimulatedCluster) -> Iterator[str]:
    for order in cluster.orders(REASSIGN):
        key = order.topic, order.partition
        assignment = cluster.assignment(order.topic)
        moves = assignment is not None and order.partition in {
            *assignment.adding_replicas,
            *assignment.removing_replicas,
        }
        if _is_led(cluster, key) and not moves and all(map(cluster.is_up, order.replicas or [])):
            yield f"a reassignment request is never withdrawn: {order}"
        if assignment is None or order.partition not in assignment.partitions:
            yield f"a reassignment request for no partition is never withdrawn: {order}"
    yield from (f"an election request is never withdrawn: {order}" for order in cluster.orders(ELECT))
    for topic in cluster.tree.names("/admin/delete_topics"):
        if topic.startswith(cluster.topic("")) and _is_deletable(cluster, topic):
            yield f"{topic} is never deleted"
    for path in (REASSIGN, ELECT):
        data = cluster.tree.get(path)
        if data is not None and not decode_partitions(data):
            yield f"{path} is empty, and is never removed"
    for path in ("/isr_change_notification", "/log_dir_event_notification"):
        if cluster.tree.names(path):
            yield f"{path} has {cluster.tree.names(path)}"


def _is_deletable(cluster: SimulatedCluster, topic: str) -> bool:
    assignment = cluster.assignment(topic)
    if assignment is None:
        return True
    if any(assignment.adding_replicas.values()) or any(assignment.removing_replicas.values()):
        return not any(
            _is_blocked(cluster, (topic, number), assignment)
            for number in {*assignment.adding_replicas, *assignment.removing_replicas}
        )
    return all(
        cluster.is_healthy(broker, (topic, number))
        for number, replicas in assignment.partitions.items()
        for broker in replicas
    )


def _is_blocked(cluster: SimulatedCluster, key: Key, assignment: Assignment) -> bool:
    """Whether a move waits for a broker that is down, or for one that ignored its leader because it was down then.

    A topic that is queued for deletion elects no leaders, as in Kafka. A leader that comes back continues at its former
    leader epoch, and only the leader itself is sent that state.
    """
    removing = assignment.removing_replicas.get(key[1], [])
    target = [broker for broker in assignment.partitions[key[1]] if broker not in removing]
    if not (_is_led(cluster, key) and all(cluster.is_healthy(broker, key) for broker in target)):
        return True
    return any(_ignored_its_leader(cluster, broker, key) for broker in target)


def _ignored_its_leader(cluster: SimulatedCluster, broker: int, key: Key) -> bool:
    znode, process = cluster.state(key), cluster.brokers[broker].process
    assert znode is not None and process is not None  # noqa: PT018 - for the type checker
    leader, replica = cluster.brokers[znode[0].leader].process, process.replicas.get(key)
    knows = replica is not None and replica.leader_epoch == znode[0].leader_epoch
    return leader is not None and not knows and leader.epoch > process.epoch


def _log_violations(cluster: SimulatedCluster) -> Iterator[str]:
    """Processes must host exactly what is assigned to them, and not return topics to clients that they have removed.

    A broker that handled no requests while a topic was deleted, until the controller ended, returns it to clients for
    ever, as with Kafka: the next controller does not know that the topic existed.
    """
    assigned = {
        (topic, number): replicas
        for topic in cluster.topics
        if (assignment := cluster.assignment(topic)) is not None
        for number, replicas in assignment.partitions.items()
    }
    for broker in cluster.brokers.values():
        for key in broker.process.replicas if broker.process else ():
            if broker.id not in assigned.get(key, ()) and broker.hosts(key):
                yield f"{broker.id} still hosts {key}, which is assigned to {assigned.get(key)}"
        for key in broker.process.forgotten & broker.process.metadata.keys() if broker.process else ():
            if key not in assigned:
                yield f"{broker.id} returns {key} to clients again, which is deleted"


def _proposal_violations(cluster: SimulatedCluster) -> Iterator[str]:
    """Leaders must not wait for an answer, and must have the ISR that is written.

    A leader that is not the leader any more may wait until it hears so.
    """
    for broker in cluster.brokers.values():
        for key, replica in broker.led():
            znode = cluster.state(key)
            is_leader = znode is not None and (znode[0].leader, znode[0].leader_epoch) == (
                broker.id,
                replica.leader_epoch,
            )
            if not is_leader or znode is None or cluster.is_queued(key[0]) or key in cluster.lost:
                continue
            if replica.pending is not None:
                yield f"{broker.id} still proposes {replica.pending}: {znode[0]}"
            if replica.isr != znode[0].isr:
                yield f"{broker.id} leads {key} with the ISR {replica.isr}: {znode[0]}"
