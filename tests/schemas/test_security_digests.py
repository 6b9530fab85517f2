"""The entries of `security`: a subject differs if any of its rows does, in whatever order the rows are read."""

import json
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from schemas.enums import SecurityKind
from schemas.security_digests import SecurityReading, acl_row, credential_row, entries_of, quota_row

RESOURCES = st.tuples(
    st.sampled_from(["Topic", "Group"]), st.sampled_from(["Literal", "Prefixed"]), st.sampled_from("tu")
)
RIGHTS = st.tuples(
    st.sampled_from(["User:a", "User:b"]), st.just("*"), st.sampled_from(["Read", "Write"]), st.just("Allow")
)
ACLS = st.sets(st.tuples(RESOURCES, RIGHTS).map(lambda acl: acl_row(*acl[0], *acl[1])), max_size=8)


def by_resource(rows: set[str]) -> dict[tuple[str, ...], set[str]]:
    """An independent grouping: by the first three values of a row."""
    keys = {tuple(json.loads(row)[:3]) for row in rows}
    return {key: {row for row in rows if tuple(json.loads(row)[:3]) == key} for key in keys}


@given(before=ACLS, after=ACLS, order=st.randoms())
def test_the_differing_resources_are_found(before: set[str], after: set[str], order: Random) -> None:
    sides = []
    for rows in (before, after):
        shuffled = [*rows]
        order.shuffle(shuffled)
        sides.append({row.subject: (row.entries, row.digest) for row in entries_of(SecurityKind.ACL, shuffled)})
    old, new = sides
    found = {subject for subject in old.keys() | new.keys() if old.get(subject) != new.get(subject)}
    then, now = by_resource(before), by_resource(after)
    expected = {key for key in then.keys() | now.keys() if then.get(key) != now.get(key)}
    assert found == {f"{kind} {name} ({pattern})" for kind, pattern, name in expected}


def test_what_could_not_be_read_is_unknown_and_has_no_entries() -> None:
    reading = SecurityReading(None, [quota_row({"user": None}, "request_percentage", 5)], [credential_row("a", "S", 1)])
    assert (reading.counts["acls"], reading.counts["acls_digest"], reading.counts["quotas"]) == (None, None, 1)
    assert [(row.kind, row.subject, row.entries) for row in reading.entries] == [
        ("quota", "user <default>", 1),
        ("scram", "a", 1),
    ]
