"""The violations that the rounds search for in ZooKeeper's history are found."""

import pytest

from schemas.znode_codecs import State, TopicPartition, encode_controller, encode_epoch, encode_partitions, encode_state
from tests.jobs.torture.history import DELETIONS, ORDERS, History
from tests.jobs.torture.torture_cluster import SURVEYOR_IDS
from tests.jobs.torture.zookeeper_log import CHECK, CREATE, DELETE, SET, Op, Transaction

SURVEYOR, BROKER = 1, 2
PATH = "/brokers/topics/t/partitions/0/state"
FENCE = Op(CHECK, "/controller_epoch", version=1)


def took_over(session: int, controller: int, epoch: int) -> Transaction:
    kind = CREATE if epoch == 1 else SET
    ops = (
        Op(CREATE, "/controller", encode_controller(controller, 0)),
        Op(kind, "/controller_epoch", encode_epoch(epoch)),
    )
    return Transaction(epoch, session, 0.0, ops)


def wrote(session: int, *checks: Op, leader: int = 0, leader_epoch: int = 6, controller_epoch: int = 2) -> Transaction:
    state = State(controller_epoch=controller_epoch, leader=leader, leader_epoch=leader_epoch, isr=[0, 1])
    return Transaction(9, session, 0.0, (*checks, Op(SET, PATH, encode_state(state), 1)))


MADE = wrote(BROKER, leader_epoch=5, controller_epoch=1)


@pytest.mark.parametrize(
    ("last", "wrong"),
    [
        (wrote(SURVEYOR, FENCE, leader=-1), ""),
        (wrote(BROKER, leader_epoch=5), ""),
        (wrote(SURVEYOR), "without the fence"),
        (wrote(SURVEYOR, FENCE, leader_epoch=5), "written twice at leader epoch 5"),
        (wrote(SURVEYOR, FENCE, controller_epoch=1), "under controller epoch 1 while the epoch was 2"),
        (wrote(BROKER, leader=7), "leader 7 is not in the ISR [0, 1]"),
        (wrote(BROKER, leader_epoch=4), "leader epoch 5 is followed by 4"),
        (wrote(BROKER, controller_epoch=0), "controller epoch 1 is followed by 0"),
        (took_over(BROKER, 0, 4), "/controller_epoch went from 2 to 4"),
    ],
)
def test_violations_are_found(last: Transaction, wrong: str) -> None:
    faults = History.of([took_over(BROKER, 0, 1), MADE, took_over(SURVEYOR, SURVEYOR_IDS[0], 2), last]).wrong()

    assert (len(faults), wrong in "".join(faults)) == (int(bool(wrong)), True)


def isr(session: int, *ops: Op, members: list[int]) -> Transaction:
    state = State(controller_epoch=2, leader=0, leader_epoch=5, isr=members)
    return Transaction(9, session, 0.0, (FENCE, *ops, Op(SET, PATH, encode_state(state), 1)))


@pytest.mark.parametrize(
    ("last", "listening", "wrong"),
    [
        (isr(SURVEYOR, members=[0]), [SURVEYOR], ""),
        (isr(SURVEYOR, Op(CHECK, "/brokers/ids/2"), members=[0, 1, 2]), [SURVEYOR], ""),
        (isr(SURVEYOR, members=[0]), [], "written twice at leader epoch 5"),
        (isr(SURVEYOR, members=[0, 1]), [SURVEYOR], "written twice at leader epoch 5"),
        (isr(SURVEYOR, members=[0, 1, 2]), [SURVEYOR], "[2] joined the ISR"),
    ],
)
def test_isrs_change_as_leaders_ask(last: Transaction, listening: list[int], wrong: str) -> None:
    taken = took_over(SURVEYOR, SURVEYOR_IDS[0], 2)
    faults = History.of([took_over(BROKER, 0, 1), MADE, taken, last], listening).wrong()

    assert (len(faults), wrong in "".join(faults)) == (int(bool(wrong)), True)


def test_requests_removed_by_surveyor_are_found() -> None:
    one, two = (TopicPartition("t", number, [0, 1]) for number in (0, 1))

    def asks(session: int, kind: int, *left: TopicPartition) -> Transaction:
        return Transaction(9, session, 3.0, (Op(kind, ORDERS, encode_partitions([*left]) if left else b""),))

    deleted = Transaction(9, SURVEYOR, 4.0, (FENCE, Op(DELETE, f"{DELETIONS}old")))
    history = History.of(
        [
            took_over(SURVEYOR, SURVEYOR_IDS[0], 1),
            asks(BROKER, CREATE, one, two),
            asks(SURVEYOR, SET, two),
            asks(BROKER, DELETE),
            deleted,
        ]
    )

    assert history.taken == [(3.0, ORDERS, "t", 0), (4.0, DELETIONS, "old", None)]
