"""The options --topics and --exclude: an exact name matches its topic, anything else is a regular expression."""

import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.planning.placement.partition_arrays import Scope, matching

pytestmark = pytest.mark.unit

NAMES: Final = ["pay.v1", "pay_v1", "pay-v1", "orders", "orders.dlq"]

# --topics, --exclude -> topics
CASES: Final[list[tuple[str | None, str | None, list[str]]]] = [
    (None, None, NAMES),
    ("pay.v1", None, ["pay.v1"]),
    ("pay_v1", None, ["pay_v1"]),
    ("pay.v.", None, ["pay.v1", "pay_v1", "pay-v1"]),
    ("pay.v1|orders.*", None, ["pay.v1", "orders", "orders.dlq"]),
    (r"pay\.v1", None, ["pay.v1"]),
    ("(pay.v1)", None, ["pay.v1", "pay_v1", "pay-v1"]),
    (None, "pay.v1", ["pay_v1", "pay-v1", "orders", "orders.dlq"]),
    (".*", "orders", ["pay.v1", "pay_v1", "pay-v1", "orders.dlq"]),
    ("nothing", None, []),
]


@pytest.mark.parametrize(("topics", "exclude", "expected"), CASES)
def test_topics_in_scope(topics: str | None, exclude: str | None, expected: list[str]) -> None:
    patterns = (None if text is None else re.compile(text) for text in (topics, exclude))
    assert Scope(topics=next(patterns), exclude=next(patterns)).among(NAMES) == set(expected)


def test_an_exclusion_of_nothing_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    assert Scope(exclude=re.compile("order")).among(NAMES) == set(NAMES)
    assert capsys.readouterr().err == "surveyor: --exclude 'order' matches no topic\n"


names = st.text("ab.|_", min_size=1, max_size=4)


@given(st.lists(names.filter(lambda name: "|" not in name), max_size=6, unique=True), st.lists(names, min_size=1))
def test_an_alternative_that_is_a_topic_name_is_exact(known: list[str], asked: list[str]) -> None:
    """Checks one name and one alternative at a time against the documented rule."""
    text = "|".join(asked)
    expected = {
        name
        for name in known
        for part in text.split("|")
        if name == part or (part not in known and re.fullmatch(part, name))
    }
    assert matching(re.compile(text), known) == expected
