"""The operations of multis, computed from znodes that were read; no server is used."""

from collections.abc import Mapping
from typing import Any

import pytest
from kazoo.protocol.states import ZnodeStat

from jobs.adapters.zookeeper.multi_operations import Check, Create, Delete, Op, SetData
from jobs.adapters.zookeeper.precondition_reader import topic_settings
from jobs.adapters.zookeeper.znode_reads import Znode
from jobs.execution.batch import transactions
from jobs.execution.batch.standalone_operations import operations_of
from jobs.execution.batch.topic_znode_content import TopicZnodes
from jobs.execution.batch.transactions import (
    ZnodeReads,
    batches,
    required_reads,
    state_ops,
    topic_ops,
    topics_needing_own_multi,
)
from schemas.enums import NO_VERSION, Action, OperationKind
from schemas.operation_data import AlteredConfig
from schemas.rows import Change, Operation
from schemas.znode_codecs import Assignment, State, encode_assignment, encode_config, encode_config_change, encode_state
from tests.typed_rows import typed

EPOCH = 8
TOPIC, CONFIG = "/brokers/topics/t", "/config/topics/t"
STATE = encode_state(State(controller_epoch=EPOCH, leader=1, leader_epoch=4, isr=[1, 2]))


def change(partition: int = 0, **columns: Any) -> Change:  # noqa: ANN401 - columns of CHANGES
    led = {"leader_after": 1, "leader_epoch_after": 4, "isr_after": [1, 2], "leader_recovery_state_after": 0}
    return typed(**{"partition": partition, "replicas_after": [1, 2], **led, **columns})


def created(partition: int = 0, **columns: Any) -> Change:  # noqa: ANN401
    new = {"action": Action.CREATE.value, "state_version": NO_VERSION, "topic_version": NO_VERSION, "is_new": True}
    return change(partition, **new | columns)


def topics(*changes: Change, creates: bool = True, config: str = "1") -> TopicZnodes:
    data = f'{{"topic_id":null,"config":{{"c":"{config}"}}}}'
    operation = Operation(sequence=0, kind="create_topic", topic="t", data=data)
    planned = {change.partition: change.replicas_after for change in changes}
    return TopicZnodes({"t": operation} if creates else {}, {"t": planned})


def znodes_of(due: list[Change], znodes: Mapping[str, tuple[bytes, int]]) -> ZnodeReads:
    return {path: znode(path, znodes.get(path)) for path in required_reads(due)}


def znode(path: str, now: tuple[bytes, int] | None) -> Znode:
    if now is None:
        return Znode(path, None, None)
    stat = dict.fromkeys(ZnodeStat._fields, 0) | {"version": now[1]}
    return Znode(path, now[0], ZnodeStat(**stat))


def assignment(*partitions: int) -> bytes:
    return encode_assignment(Assignment({partition: [1, 2] for partition in partitions}, {}, {}, None))


def test_states_that_are_there_depend_on_nothing() -> None:
    due = [change(0, requires_live=[2], requires_dead=[3], state_version=5, topic_version=7), change(1)]

    assert required_reads(due) == []
    assert state_ops(due, topics(creates=False), {}, EPOCH) == [
        Check("/brokers/ids/1", -1),
        Check("/brokers/ids/2", -1),
        Create("/brokers/ids/3", b"", ephemeral=True),
        Delete("/brokers/ids/3", -1),
        Check(TOPIC, 7),
        SetData(f"{TOPIC}/partitions/0/state", STATE, 5),
        SetData(f"{TOPIC}/partitions/1/state", STATE, 0),
    ]


PARTS = f"{TOPIC}/partitions"
MADE = [Create(f"{PARTS}/0"), Create(f"{PARTS}/0/state", STATE)]

# existing znodes -> operations between the precondition checks and the state
TOPICS: list[tuple[dict[str, tuple[bytes, int]], list[Op]]] = [
    ({}, [Create(CONFIG, b"CONFIG"), Create(TOPIC, b"TOPIC"), Create(PARTS), *MADE]),
    ({CONFIG: (b"{}", 3)}, [SetData(CONFIG, b"CONFIG"), Create(TOPIC, b"TOPIC"), Create(PARTS), *MADE]),
    ({CONFIG: (b"", 0), TOPIC: (b"", 2)}, [Check(TOPIC, 2), Create(PARTS), *MADE]),
    ({CONFIG: (b"", 0), TOPIC: (b"", 0), PARTS: (b"", 0)}, [Check(TOPIC, 0), *MADE]),
    ({CONFIG: (b"", 0), TOPIC: (b"", 0), PARTS: (b"", 0), f"{PARTS}/0": (b"", 0)}, [Check(TOPIC, 0), MADE[1]]),
]


@pytest.mark.parametrize(("znodes", "made"), TOPICS)
def test_missing_parts_of_a_small_topic_are_created_with_states(
    znodes: dict[str, tuple[bytes, int]], made: list[Op]
) -> None:
    due = [created()]
    plan = topics(*due)
    data = dict(zip((b"TOPIC", b"CONFIG"), plan.created("t"), strict=True))
    expected = [_with(op, data) for op in made]

    now = znodes_of(due, znodes)

    assert topics_needing_own_multi(due, plan, now) == []
    assert state_ops(due, plan, now, EPOCH) == [Check("/brokers/ids/1", -1), *expected]


def _with(op: Op, data: Mapping[bytes, bytes]) -> Op:
    if isinstance(op, Create):
        return Create(op.path, data.get(op.data, op.data) if op.data is not None else None)
    return SetData(op.path, data.get(op.data, op.data), op.version) if isinstance(op, SetData) else op


def test_a_large_topic_comes_before_its_states() -> None:
    due = [created(0), created(1)]
    plan = topics(*due, config="1" * transactions.TOPIC_MULTI_BYTES)
    before, after = znodes_of(due, {}), znodes_of(due, {TOPIC: (b"", 0), CONFIG: (b"", 0)})
    data, config = plan.created("t")

    assert (topics_needing_own_multi(due, plan, before), topics_needing_own_multi(due, plan, after)) == (["t"], [])
    assert topic_ops("t", due, plan, before) == [
        Check("/brokers/ids/1", -1),
        Create(CONFIG, config),
        Create(TOPIC, data),
    ]
    assert state_ops(due, plan, after, EPOCH)[:3] == [Check("/brokers/ids/1", -1), Check(TOPIC, 0), Create(PARTS)]


def test_topic_is_extended_before_the_new_states() -> None:
    due = [created(1, topic_version=5)]
    plan = topics(*due, creates=False)
    before, after = znodes_of(due, {TOPIC: (assignment(0), 5)}), znodes_of(due, {TOPIC: (assignment(0, 1), 6)})

    assert (topics_needing_own_multi(due, plan, before), topics_needing_own_multi(due, plan, after)) == (["t"], [])
    assert topic_ops("t", due, plan, before) == [Check("/brokers/ids/1", -1), SetData(TOPIC, assignment(0, 1), 5)]
    assert state_ops(due, plan, after, EPOCH)[1] == Check(TOPIC, 6)


def test_batches_are_bounded_by_rows_and_by_bytes() -> None:
    changes = [change(partition) for partition in range(10)]
    by_rows = [len(batch) for batch in batches(changes, topics(creates=False), "/kafka", 4)]
    by_bytes = list(batches(changes, topics(creates=False), "/kafka", 4, max_bytes=1_000))

    assert by_rows == [4, 4, 2]
    assert [len(batch) for batch in by_bytes] == [2] * 5
    assert [change for batch in by_bytes for change in batch] == changes


ALTERED = AlteredConfig(topic_id=None, before={}, after={"a": "2", "b": None}).operation("t")
CHANGED = Create("/config/changes/config_change_", encode_config_change("topics/t"), sequence=True)


@pytest.mark.parametrize(
    ("config", "notified", "expected"),
    [
        (None, True, [Create(CONFIG, encode_config({"a": "2"})), CHANGED]),
        ({"b": "1", "c": "1"}, True, [SetData(CONFIG, encode_config({"c": "1", "a": "2"}), 4), CHANGED]),
        (None, False, [Create(CONFIG, encode_config({"a": "2"})), Create("/config/changes"), CHANGED]),
    ],
)
def test_a_config_is_altered_at_its_version(
    config: dict[str, str] | None, expected: list[Op], *, notified: bool
) -> None:
    now = znode(CONFIG, None if config is None else (encode_config(config), 4))
    topic = topic_settings(znode(TOPIC, (b"", 3)), now, znode("/admin/delete_topics/t", None))

    assert operations_of(ALTERED, topic, has_notifications=notified) == [Check(TOPIC, 3), *expected]


def test_a_topic_is_queued_for_deletion() -> None:
    topic = topic_settings(znode(TOPIC, (b"", 3)), znode(CONFIG, None), znode("/admin/delete_topics/t", None))
    task = Operation(sequence=0, kind=OperationKind.DELETE_TOPIC, topic="t", data="{}")

    assert operations_of(task, topic, has_notifications=True) == [Check(TOPIC, 3), Create("/admin/delete_topics/t")]
