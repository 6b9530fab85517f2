"""Leaders for offline partitions: clean if possible, else by the evidence of history."""

import re
from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.core.errors import UsageError
from jobs.planning.plan_draft import PlanDraft, Planner
from jobs.planning.planning_tables import vanished_states
from jobs.repositories.snapshot_tables import SnapshotTables
from planner.history.evidence import log_sizes, ranked_evidence
from planner.history.lost_states import without_state
from planner.leadership.unclean_recovery import (
    offline_partitions,
    recover_changes,
    recover_rejections,
    stateless_partitions,
    unneeded_rejections,
    without_in_sync,
)
from schemas.enums import PlanKind
from schemas.rows import Key, Row
from schemas.tables import PARTITION_KEY


def recover_planner(requested: Sequence[Key], only: Sequence[Key] | None = None, *, allow_unclean: bool) -> Planner:
    """Plan leaders, for the partitions in `only` if it is given; unclean ones for the requested partitions, or for all.

    The controller of a KRaft cluster chooses the unclean leaders itself, and the plan states its choice.
    """

    def planner(tables: SnapshotTables) -> PlanDraft:
        leaderless = _leaderless(tables)
        if only is not None:
            leaderless = leaderless.join(tables.requested([*only, *requested]), PARTITION_KEY, "left_semi")
        offline = leaderless.localCheckpoint()
        evidence = _evidence_for(tables, offline).localCheckpoint()
        considered = offline, tables["broker_configs"], evidence, None if allow_unclean else tables.requested(requested)
        named = tables.requested(sorted({*requested, *(only or ())}))
        rejections = recover_rejections(*considered).unionByName(
            unneeded_rejections(named, tables["partitions"], offline)
        )
        parameters = {"allow_unclean": allow_unclean, "partitions": partition_parameters(requested)}
        if only is not None:
            parameters["only"] = partition_parameters(only)
        return PlanDraft(PlanKind.RECOVER, parameters, recover_changes(*considered), rejections, evidence=evidence)

    return planner


def _evidence_for(tables: SnapshotTables, offline: DataFrame) -> DataFrame:
    """Return the evidence for the partitions that only an unclean election can bring back.

    `offline` has the shape of `offline_partitions`.
    """
    until = F.col("snapshot_id") <= tables.snapshot.snapshot_id
    history = tables.spark_warehouse.read("partition_history").where(until)
    snapshots = tables.spark_warehouse.read("snapshots").where(until)
    sizes = log_sizes(tables.spark_warehouse.read("sizes"))
    evidence = ranked_evidence(without_in_sync(offline), history, snapshots, sizes)
    return evidence.withColumns({"chosen": F.col("kafkas_choice")}) if tables.snapshot.is_of_kraft else evidence


def _leaderless(tables: SnapshotTables) -> DataFrame:
    """Return the partitions without a live leader, and those with a lost state."""
    frames = tables["partitions"], tables["topics"], tables["brokers"]
    vanished = vanished_states(tables, without_state(tables["partitions"], tables["topics"]))
    return offline_partitions(*frames).unionByName(stateless_partitions(vanished, *frames))


def partition_parameters(partitions: Iterable[Key]) -> list[Row]:
    """Return partitions as the parameters of a plan name them."""
    return [{"topic": topic, "partition": partition} for topic, partition in partitions]


def parse_partition_names(names: Sequence[str]) -> list[Key]:
    """Parse partition names into a sorted list without duplicates.

    >>> parse_partition_names(["orders-7", "a-b-0", "orders-7"])
    [('a-b', 0), ('orders', 7)]
    """
    partitions = set[Key]()
    for name in names:
        parts = re.fullmatch(r"(.+)-(\d{1,9})", name)
        if parts is None:
            raise UsageError(f"--partition {name!r}: expected TOPIC-N, as in orders-7")
        partitions.add((parts[1], int(parts[2])))
    return sorted(partitions)
