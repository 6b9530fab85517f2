"""Invariants that must hold once all faults are lifted, and completeness of `commits` for all that Surveyor wrote.

Each check returns the violations as text; an empty list if there are none.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from jobs.adapters.delta.warehouse import Warehouse
from schemas.enums import OperationKind, Outcome
from schemas.rows import Row
from schemas.znode_codecs import Assignment, State, decode_assignment, decode_config, decode_controller, decode_state
from tests.jobs.torture.history import DELETIONS, ELECTIONS, ORDERS, History, StateWrite
from tests.jobs.torture.torture_cluster import BROKERS, TortureCluster

WRITE_BEHIND_SECONDS: Final = 10.0
"""Seconds before a `surveyor control` was killed that may be missing in the tables. The documented loss is the last
second, on a machine without other load.
"""

_RECORDED_ACTIONS: Final = {
    ORDERS: {OperationKind.WITHDRAW_REASSIGNMENT},
    ELECTIONS: {OperationKind.WITHDRAW_ELECTION},
    DELETIONS: {OperationKind.WITHDRAW_DELETION, OperationKind.REMOVE_TOPIC, OperationKind.DELETE_TOPIC},
}
"""Actions in `commits` by which a request is removed."""

_THROTTLES: Final = ".replication.throttled."

Place = tuple[str, int]


def unsettled(cluster: TortureCluster, client: KazooClient) -> list[str]:
    """Return what is not yet in its final state."""
    try:
        topics, states = _topics_and_states(client)
        data = client.get("/controller")[0]
    except NoNodeError as error:
        return [f"something is missing in ZooKeeper: {error!r}"]
    controller = decode_controller(data).broker_id
    return [
        *([] if controller in BROKERS else [f"{controller} is the controller"]),
        *_unhealthy(topics, states),
        *_requests(client),
        *_throttles(client),
        *(wrong for broker in BROKERS for wrong in _strange_metadata(cluster, broker, topics, states)),
    ]


def unhealthy(client: KazooClient) -> list[str]:
    """Return what moves, and which partitions have no leader or not all replicas in sync."""
    try:
        return [*_unhealthy(*_topics_and_states(client))]
    except NoNodeError as error:
        return [f"something is missing in ZooKeeper: {error!r}"]


def _topics_and_states(client: KazooClient) -> tuple[dict[str, Assignment], dict[Place, State]]:
    topics = {topic: _assignment(client, topic) for topic in client.get_children("/brokers/topics")}
    states = {
        (topic, number): _state(client, topic, number)
        for topic, assignment in topics.items()
        for number in assignment.partitions
    }
    return topics, states


def _assignment(client: KazooClient, topic: str) -> Assignment:
    return decode_assignment(client.get(f"/brokers/topics/{topic}")[0])


def _state(client: KazooClient, topic: str, partition: int) -> State:
    return decode_state(client.get(f"/brokers/topics/{topic}/partitions/{partition}/state")[0])


def _unhealthy(topics: dict[str, Assignment], states: dict[Place, State]) -> Iterator[str]:
    for topic, assignment in topics.items():
        if assignment.adding_replicas or assignment.removing_replicas:
            yield f"{topic} still moves: {assignment}"
        for number, replicas in assignment.partitions.items():
            state = states[topic, number]
            if state.leader not in state.isr or {*state.isr} != {*replicas}:
                yield f"{topic}-{number} of {replicas} is led by {state.leader}, in sync are {state.isr}"


def _requests(client: KazooClient) -> Iterator[str]:
    for path in ("/admin/reassign_partitions", "/admin/preferred_replica_election"):
        if client.exists(path):
            yield f"{path} is still there"
    for path in ("/admin/delete_topics", "/surveyor/plans"):
        left = client.get_children(path) if client.exists(path) else []
        if left:
            yield f"{path} still has {left}"


def _throttles(client: KazooClient) -> Iterator[str]:
    for kind in ("brokers", "topics"):
        for name in client.get_children(f"/config/{kind}"):
            config = decode_config(client.get(f"/config/{kind}/{name}")[0])
            left = {key: value for key, value in config.items() if _THROTTLES in key}
            if left:
                yield f"/config/{kind}/{name} is still throttled: {left}"


def _strange_metadata(
    cluster: TortureCluster, broker: int, topics: dict[str, Assignment], states: dict[Place, State]
) -> Iterator[str]:
    """Metadata that a broker returns to its clients and that differs from ZooKeeper."""
    try:
        known = AdminClient({"bootstrap.servers": cluster.brokers[broker].address, "log_level": 0}).list_topics(
            timeout=10
        )
    except KafkaException as error:
        yield f"broker {broker} does not return its metadata: {error}"
        return
    if known.topics.keys() != topics.keys():
        yield f"broker {broker} knows the topics {sorted(known.topics)}, and there are {sorted(topics)}"
        return
    metadata = {
        (topic, number): (one.leader, one.replicas, sorted(one.isrs))
        for topic, described in known.topics.items()
        for number, one in described.partitions.items()
    }
    for place, state in states.items():
        expected = state.leader, topics[place[0]].partitions[place[1]], sorted(state.isr)
        if metadata.get(place) != expected:
            yield f"broker {broker} returns {place} as {metadata.get(place)}, but it is {expected}"


def unaudited_states(history: History, warehouse: Warehouse, killed_at: list[float]) -> list[str]:
    """States that Surveyor wrote and that no row of `commits`, with the change it is about, records."""
    if not warehouse.has("commits"):
        return []
    epochs = {
        (row["plan_id"], row["wave"], row["topic"], row["partition"]): row["leader_epoch_after"]
        for row in warehouse.rows("changes")
    }
    attempts: dict[tuple[Place, int | None], dict[tuple[str, int], list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in warehouse.rows("commits"):
        place = row["topic"], row["partition"]
        epoch = epochs.get((row["plan_id"], row["wave"], *place))
        attempts[place, epoch][row["plan_id"], row["attempt"]].append(row)
    return [
        f"{transaction.name}, written under controller epoch {transaction.epoch}, is in no row of `commits`"
        for transaction in history.written
        if transaction.session in history.ours
        and not history.is_isr_change(transaction)
        and not _is_recorded(
            transaction, attempts[(transaction.topic, transaction.partition), transaction.state.leader_epoch].values()
        )
        and not any(0 <= killed - transaction.at <= WRITE_BEHIND_SECONDS for killed in killed_at)
    ]


def unaudited_requests(history: History, warehouse: Warehouse, killed_at: list[float]) -> list[str]:
    """Requests that Surveyor removed from /admin and that no row of `commits` records."""
    rows = warehouse.rows("commits") if warehouse.has("commits") else []
    owned = {(row["action"], row["topic"], row["partition"]) for row in rows}
    return [
        f"{request.topic}-{request.partition} was taken out of {request.path}, and is in no row of `commits`"
        for request in history.taken
        if not any(
            (action.value, request.topic, of) in owned
            for action in _RECORDED_ACTIONS[request.path]
            for of in (None, request.partition)
        )
        and not any(0 <= killed - request.at <= WRITE_BEHIND_SECONDS for killed in killed_at)
    ]


def _is_recorded(written: StateWrite, attempts: Iterable[list[Row]]) -> bool:
    """Whether an attempt applied it under that epoch, or intended it and did not record the outcome."""
    for rows in attempts:
        outcomes = {row["outcome"] for row in rows}
        applied = [row for row in rows if row["outcome"] == Outcome.APPLIED]
        if any(
            (row["state_version_after"], row["controller_epoch"]) == (written.version, written.epoch) for row in applied
        ):
            return True
        if outcomes == {Outcome.PENDING} or Outcome.UNKNOWN in outcomes:
            return True
    return False
