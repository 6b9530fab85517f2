"""The page of a proved or refuted migration to KRaft, to hand to an auditor: what was compared, and what differs."""

from datetime import datetime
from typing import Final

from jobs.snapshots.migration_proof import COUNTS, MigrationProof
from jobs.web.charts import format_number
from jobs.web.render import Fact, alarming, render, shown_time
from schemas.rows import Row, Snapshot

DIFFERENCES_SHOWN: Final = 5_000
"""Maximum number of differences on the page; `surveyor migration prove --json` has all."""

_SIDES: Final = ("brokers", "topics", "partitions", *COUNTS)


def migration_page(cluster: str, before: Snapshot, after: Snapshot, proof: MigrationProof, now: datetime) -> str:
    """Return the page as HTML. If the migration was rolled back, `after` is from ZooKeeper, too."""
    differences = [[_text(value) for value in difference] for difference in proof.differences[:DIFFERENCES_SHOWN]]
    return render(
        "migration.html",
        cluster=cluster,
        cluster_id=after.cluster_id,
        proved=proof.holds,
        is_rolled_back=not after.is_of_kraft,
        facts_of_proof=[
            Fact("verdict", "proved" if proof.holds else "not proved", "good" if proof.holds else "bad"),
            alarming("differences", len(proof.differences), "bad"),
            alarming("unknown", len(proof.unknown), "bad"),
        ],
        sides=[_side("before", before), _side("after", after)],
        names=[COUNTS.get(name, name) for name in _SIDES],
        differences=differences,
        more=max(0, len(proof.differences) - DIFFERENCES_SHOWN),
        unknown=proof.unknown,
        deleted_topics=proof.deleted_topics,
        made_at=shown_time(now),
    )


def _side(title: str, snapshot: Snapshot) -> Row:
    return {
        "title": f"{title}, from {'KRaft' if snapshot.is_of_kraft else 'ZooKeeper'}",
        "snapshot": snapshot.snapshot_id,
        "taken_at": shown_time(snapshot.taken_at),
        "counts": [_text(getattr(snapshot, name)) for name in _SIDES],
    }


def _text(value: object) -> str:
    """Format a value.

    >>> _text(1200), _text(None), _text([1, 2])
    ('1,200', 'none', '[1, 2]')
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return format_number(value)
    return "none" if value is None else str(value)
