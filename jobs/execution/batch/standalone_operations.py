"""Operations without a partition, written under the fence: topic configs, topic deletions, finished requests.

Some of these Kafka's brokers write themselves. They are written here in the same format: /config/topics/T with its
sequential notification in /config/changes (`AdminZkClient.changeTopicConfig`), which every broker watches, and
/admin/delete_topics/T (`createDeleteTopicPath`), which the next controller finds when it takes over.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from kazoo.exceptions import KazooException

from jobs.adapters.zookeeper.cluster_state import CONFIG_CHANGES, CONFIGS, DELETE_TOPICS, TOPICS
from jobs.adapters.zookeeper.connection import LOST
from jobs.adapters.zookeeper.controllership import Controllership, SessionLostError, fenced, lost_while_writing
from jobs.adapters.zookeeper.multi_failure import MultiFailure
from jobs.adapters.zookeeper.multi_operations import ANY_VERSION, Check, Create, Op, create_or_set
from jobs.adapters.zookeeper.precondition_reader import read_operations
from jobs.adapters.zookeeper.znode_reads import read
from jobs.core.errors import FencedError, UnreadableError
from jobs.execution.batch.replica_deletion import confirmation_expired
from jobs.execution.batch.znode_removal import (
    remove_topic,
    withdraw_deletion,
    withdraw_elections,
    withdraw_reassignments,
)
from jobs.preconditions.operations import check_operations
from schemas import reasons
from schemas.current_state import TopicSettings
from schemas.enums import OperationKind, Outcome
from schemas.operation_data import AlteredConfig, RemovedTopic, WithdrawnElection, WithdrawnReassignment, data_of
from schemas.rows import Operation
from schemas.stored_plan import RowOutcome
from schemas.znode_codecs import encode_config, encode_config_change

_MAX_ATTEMPTS: Final = 3


def write_tasks(control: Controllership, tasks: Sequence[Operation], max_hold: float) -> Iterator[list[RowOutcome]]:
    """Write operations one by one and yield the outcome of each.

    Raise FencedError and SessionLostError, after the outcome of the operation in question is yielded.
    """
    for task in tasks:
        if stop_reason := control.stop_reason(max_hold):
            yield [RowOutcome(task, Outcome.SKIPPED, stop_reason)]
            continue
        try:
            outcome = _write(control, task)
        except (SessionLostError, KazooException, UnreadableError) as error:
            yield [RowOutcome(task, Outcome.UNKNOWN, reasons.SESSION_LOST.render())]
            raise lost_while_writing(error) from None
        yield [outcome]
        if outcome.outcome is Outcome.FENCED:
            raise fenced(control.epoch)


def _write(control: Controllership, task: Operation) -> RowOutcome:
    """Check the operation by the current znodes and write at their versions; if one changed in between, check again.

    The last attempt only checks: it reads back the result of a multi whose response was lost.
    """
    refused: MultiFailure | None = None
    for attempt in range(_MAX_ATTEMPTS + 1):
        try:
            pending, outcomes = check_operations([task], read_operations(control.client, [task]))
            if not pending:
                return outcomes[0]
            if expired := _expired_confirmation(control, task):
                return RowOutcome(task, Outcome.STALE, expired)
            if attempt == _MAX_ATTEMPTS:
                break
            refused = _carry_out(control, task)
        except FencedError:
            return RowOutcome(task, Outcome.FENCED, reasons.FENCED.render())
        except LOST:
            control.await_reconnect()
            continue
        if refused is None:
            return RowOutcome(task, Outcome.APPLIED, reasons.WRITTEN.render())
        if refused.is_forbidden:
            break
    else:
        if refused is not None and refused.is_lost:
            return RowOutcome(task, Outcome.UNKNOWN, f"{refused}; commit again")
    return RowOutcome(
        task, Outcome.FAILED, "the connection was lost in each attempt" if refused is None else str(refused)
    )


def _expired_confirmation(control: Controllership, task: Operation) -> str | None:
    """Return why the brokers' confirmations no longer count: another controller has taken over in between."""
    if task.action != OperationKind.REMOVE_TOPIC:
        return None
    return confirmation_expired(data_of(task, RemovedTopic).controller_epoch, control.epoch)


def _carry_out(control: Controllership, task: Operation) -> MultiFailure | None:
    """Write one operation at the versions just read, or finish a request in /admin as the resident controller does."""
    topic = task.topic
    match OperationKind(task.action):
        case OperationKind.WITHDRAW_REASSIGNMENT:
            orders = data_of(task, WithdrawnReassignment).orders
            return withdraw_reassignments(control, {(topic, p): replicas for p, replicas in orders.items()}).refused
        case OperationKind.WITHDRAW_ELECTION:
            partitions = data_of(task, WithdrawnElection).partitions
            return withdraw_elections(control, [(topic, partition) for partition in partitions]).refused
        case OperationKind.REMOVE_TOPIC:
            return remove_topic(control, topic).refused
        case OperationKind.WITHDRAW_DELETION:
            return withdraw_deletion(control, topic).refused
    settings = read_operations(control.client, [task]).topics[topic]
    has_notifications = (
        task.action == OperationKind.DELETE_TOPIC or read(control.client, CONFIG_CHANGES).stat is not None
    )
    return control.commit(operations_of(task, settings, has_notifications=has_notifications))


def operations_of(task: Operation, settings: TopicSettings, *, has_notifications: bool) -> list[Op]:
    """Return the ZooKeeper operations of a task, given its topic; `has_notifications` is whether /config/changes
    exists.
    """
    version = settings.topic.version
    topic = Check(f"{TOPICS}/{task.topic}", ANY_VERSION if version is None else version)
    if task.action == OperationKind.DELETE_TOPIC:
        return [topic, Create(f"{DELETE_TOPICS}/{task.topic}")]
    parent = [] if has_notifications else [Create(CONFIG_CHANGES)]
    change = encode_config_change(f"topics/{task.topic}")
    return [
        topic,
        _config_write(task, settings),
        *parent,
        Create(f"{CONFIG_CHANGES}/config_change_", change, sequence=True),
    ]


def _config_write(task: Operation, settings: TopicSettings) -> Op:
    after = settings.config.get() | data_of(task, AlteredConfig).after
    config = encode_config({key: value for key, value in after.items() if value is not None})
    path = f"{CONFIGS}/{task.topic}"
    version = settings.config_version
    return create_or_set(path, config, version)
