"""Warnings of what a plan could not look at, from quarantined rows alone."""

import json
from typing import Any, Final

import pytest

from jobs.preconditions.unread_metadata import unread_among, unread_warnings
from schemas.rows import QuarantinedZnode
from tests.jobs.support.rows.plan_rows import plan_record

ROWS: Final = [
    QuarantinedZnode(path=path, reason="torn")
    for path in (
        "/brokers/topics/b",
        "/brokers/topics/a/partitions/10/state",
        "/brokers/topics/a/partitions/9/state",
        "/brokers/topics/b/partitions/0/state",
        "/config/topics/c",
    )
]
NAMED: Final = "1 topic and 2 partitions are not understood (b in part, a-9, a-10)"


@pytest.mark.parametrize(
    ("kind", "options", "meaning"),
    [
        ("reassign", {}, "no replica of them is counted or moved"),
        ("reassign", {"remove_brokers": [2]}, "broker 2 may still hold replicas of them"),
        ("drain", {"brokers": [2, 3]}, "brokers 2 and 3 may still lead some of them"),
        ("elect", {}, "nothing is planned for them"),
        ("elect", {"partitions": ["a-0"]}, None),
        ("reassign", {"targets": "file"}, None),
        ("delete", {}, None),
    ],
)
def test_warning_of_a_plan(kind: str, options: dict[str, Any], meaning: str | None) -> None:
    plan = plan_record(kind=kind, parameters=json.dumps(options))

    expected = [] if meaning is None else [f"{NAMED}: {meaning}; `surveyor show quarantine`"]
    assert unread_warnings(plan, unread_among(ROWS, {"b"})) == expected
    assert unread_warnings(plan, unread_among([])) == []
