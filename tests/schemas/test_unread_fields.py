"""Fields of /brokers/topics/T that are not understood leave the partitions, and are written back unchanged."""

from typing import Final

import pytest

from schemas.znode_codecs import MalformedZnodeError, decode_assignment, encode_assignment, read_assignment

HEAD: Final = '{"version":3,"partitions":{"0":[1,2]},"adding_replicas":'
WITH_ID: Final = HEAD + '{},"removing_replicas":{},"topic_id":%s}'
ADDING: Final = HEAD + '%s,"removing_replicas":{}}'
REMOVING: Final = HEAD + '{},"removing_replicas":%s}'
NOT_OBJECTS: Final = ("null", "5", '"x"', "[]")

# data, reason, whether it is unknown what moves
CASES: Final[dict[str, tuple[str, bool]]] = {
    **{
        WITH_ID % value: (reason, False)
        for value, reason in {
            "null": "topic_id: Expected `str`, got `null`",
            "5": "topic_id: Expected `str`, got `int`",
            '"x"': r"topic_id: Expected `str` matching regex '\\A[A-Za-z0-9_-]{22}(==)?\\Z'",
        }.items()
    },
    **{ADDING % value: ("adding_replicas: Expected `object`, got ", True) for value in NOT_OBJECTS},
    **{REMOVING % value: ("removing_replicas: Expected `object`, got ", True) for value in NOT_OBJECTS},
}


@pytest.mark.parametrize(("data", "expected"), CASES.items(), ids=CASES)
def test_an_unread_field_leaves_the_partitions(data: str, expected: tuple[str, bool]) -> None:
    reason, moves_are_unknown = expected

    topic = read_assignment(data.encode())

    assert (topic.partitions, topic.adding_replicas, topic.topic_id, topic.unread) == ({0: [1, 2]}, {}, None, ())
    assert topic.reason.startswith(reason)
    assert bool(topic.unread_moves) is moves_are_unknown
    assert encode_assignment(topic) == data.encode()
    with pytest.raises(MalformedZnodeError):
        decode_assignment(data.encode())


def test_a_moving_list_under_another_spelling_of_the_key_is_unread() -> None:
    """Kafka looks up the list by the partition's own key."""
    topic = read_assignment(b'{"partitions":{"0":[3,1]},"adding_replicas":{},"removing_replicas":{"00":[1]}}')

    assert (topic.partitions, topic.removing_replicas) == ({0: [3, 1]}, {})
    assert topic.reason == "removing_replicas of partition 0 names [1], no replicas of it"
