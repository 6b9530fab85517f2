"""Fields of /brokers/topics/T that are not understood leave the partitions, and are written back unchanged."""

from typing import Final

import pytest

from schemas.znodes import MalformedZnodeError, decode_assignment, encode_assignment, read_assignment

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
