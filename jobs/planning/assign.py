"""`surveyor plan assign`: new topics, one from the command line or many from a file."""

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.adapters.delta.lake import Row
from jobs.basics.errors import ExitCode, Fault, RefusedError, UsageError, raise_any
from jobs.planning.new_partitions import KAFKA, STRATEGIES, assign_topics, racks_of, racks_told
from jobs.planning.new_topics import NewTopic, name_faults, not_alive, topics_in
from jobs.planning.plan import Planned, Planning, question, report_plan
from jobs.planning.protocol import config_notes, have_topic_ids
from jobs.planning.topics import operation, topic_name
from jobs.records.checked_configs import AllowUnknownConfig
from jobs.records.snapshots import SnapshotTables, as_of
from jobs.runtime.inputs import parse_broker_ids, parse_configs, parse_replica_assignment
from jobs.runtime.settings import Settings
from planner.topics.creation import creation_changes
from schemas.names import OperationKind, PlanKind

_MOST = 2**31 - 1


@question
def assign(
    settings: Settings,
    *,
    topic: Annotated[str | None, typer.Option(help="The new topic.")] = None,
    partitions: Annotated[int | None, typer.Option(min=1, max=_MOST)] = None,
    replication_factor: Annotated[int | None, typer.Option(min=1, max=_MOST)] = None,
    replica_assignment: Annotated[str | None, typer.Option(help="Replicas by hand: 0:1:2,1:2:0")] = None,
    config: Annotated[list[str] | None, typer.Option(help="key=value, may be repeated")] = None,
    allow_unknown_config: AllowUnknownConfig = False,
    topics_json_file: Annotated[
        Path | None,
        typer.Option(help="Many new topics, each with its name, sizes or replicas, and config, instead of --topic."),
    ] = None,
    brokers: Annotated[str | None, typer.Option(help="Brokers to use, in this order: 0,1,2 [default: all].")] = None,
    start_index: Annotated[
        int | None, typer.Option(min=0, max=_MOST, help="Where partition 0 leads [default: by name].")
    ] = None,
    shift: Annotated[
        int | None, typer.Option(min=0, max=_MOST, help="First shift of the followers [default: by name].")
    ] = None,
    strategy: Annotated[str, typer.Option(help="kafka or simple")] = "kafka",
    disable_rack_aware: Annotated[bool, typer.Option("--disable-rack-aware", help="Ignore racks.")] = False,
    planning: Planning,
) -> ExitCode:
    """Plan new topics: where their replicas go and who leads first."""
    its_own = {
        "--topic": topic,
        "--partitions": partitions,
        "--replication-factor": replication_factor,
        "--replica-assignment": replica_assignment,
        "--config": config or None,
    }
    if topics_json_file is not None:
        _refuse_beside_file([option for option, value in its_own.items() if value is not None])
        topics = topics_in(topics_json_file)
    elif topic is None:
        raise UsageError("say which topic: --topic, or --topics-json-file for many")
    else:
        by_hand = None if replica_assignment is None else parse_replica_assignment(replica_assignment)
        asked_for = NewTopic(
            name=topic_name(topic),
            partitions=partitions,
            replication_factor=replication_factor,
            by_hand=by_hand,
            configs=parse_configs(config or []),
        )
        topics = [asked_for]
    asked = AssignRequest(
        topics=topics,
        from_file=topics_json_file is not None,
        brokers=None if brokers is None else parse_broker_ids(brokers),
        start_index=start_index,
        shift=shift,
        strategy=strategy,
        rack_aware=not disable_rack_aware,
        unknown_config_allowed=allow_unknown_config,
    )
    asked.check()
    return report_plan(settings, planning, asked.plan)


def _refuse_beside_file(options: list[str]) -> None:
    if options:
        raise UsageError(f"--topics-json-file says it all for each topic: leave out {', '.join(options)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignRequest:
    """What was asked for on the command line."""

    topics: Sequence[NewTopic]
    from_file: bool
    brokers: list[int] | None
    start_index: int | None
    shift: int | None
    strategy: str
    rack_aware: bool
    unknown_config_allowed: bool = False

    def check(self) -> None:
        """Refuse what cannot be meant, before anything is read; a file's faults wait until all of them are known."""
        if self.strategy not in STRATEGIES:
            raise UsageError(f"--strategy {self.strategy!r}: expected one of {', '.join(STRATEGIES)}")
        if not self.from_file:
            raise_any(self._meaning_faults())

    def plan(self, at: SnapshotTables) -> Planned:
        """Plan the topics on a snapshot."""
        registered = as_of(at.tables.lake, at.snapshot, "brokers")
        live = sorted(row["broker_id"] for row in registered if row["understood"])
        if not live:
            raise RefusedError(
                f"no broker is alive in the snapshot: nothing can hold {', '.join(self._names[:3])}; "
                "start brokers, snapshot again",
            )
        brokers = self.brokers or live
        racks = self._racks([row for row in registered if row["broker_id"] in brokers])
        raise_any(self._faults(at, brokers, live, racks))
        return self._planned(at, brokers, racks if isinstance(racks, dict) else {})

    @property
    def _names(self) -> list[str]:
        return [topic.name for topic in self.topics]

    @property
    def _by_rule(self) -> list[NewTopic]:
        return sorted((topic for topic in self.topics if topic.by_hand is None), key=lambda topic: topic.name)

    def _meaning_faults(self) -> Iterator[Fault]:
        for topic in self.topics:
            for said in topic.meaning_faults(in_file=self.from_file, unknown_allowed=self.unknown_config_allowed):
                yield UsageError, said

    def _racks(self, brokers: Sequence[Row]) -> dict[int, str] | Fault:
        if not (self.rack_aware and self.strategy == KAFKA and self._by_rule):
            return {}
        try:
            return racks_of(brokers, "leave them out with --brokers, place replicas by hand,")
        except RefusedError as error:
            return RefusedError, str(error)

    def _faults(
        self, at: SnapshotTables, brokers: list[int], live: list[int], racks: dict[int, str] | Fault
    ) -> Iterator[Fault]:
        yield from self._meaning_faults()
        yield from name_faults(at, self._names)
        unknown = sorted(set(brokers) - set(live))
        if unknown:
            yield RefusedError, not_alive(unknown, live)
        if isinstance(racks, tuple):
            yield racks
        for topic in self.topics:
            for said in topic.placement_faults(brokers, live):
                yield RefusedError, said

    def _planned(self, at: SnapshotTables, brokers: list[int], racks: dict[int, str]) -> Planned:
        rows = [*self._placements(len(brokers)), *(_by_hand(topic) for topic in self.topics if topic.by_hand)]
        rows.sort(key=lambda row: str(row["topic"]))
        known = have_topic_ids(at)
        ids = {name: new_topic_id(at.snapshot, name) if known else None for name in self._names}
        configs = {topic.name: topic.configs for topic in self.topics}
        settled: dict[str, Any] = {"strategy": self.strategy, "brokers": brokers} if self._by_rule else {}
        settled |= racks_told(racks)
        assigned = assign_topics(at.tables.spark, rows, settled)
        assignments = assigned.join(F.broadcast(_known(at, ids)), "topic")
        changes = creation_changes(assignments, at["brokers"], at.tables.lake.cluster)
        told = [_told(at, ids[row["topic"]], configs[row["topic"]]) for row in rows]
        operations = [
            operation(number, OperationKind.CREATE_TOPIC, row["topic"], json.dumps(data, sort_keys=True))
            for number, (row, data) in enumerate(zip(rows, told, strict=True))
        ]
        each = [_said(row) | data for row, data in zip(rows, told, strict=True)]
        parameters = settled | ({"topics": each} if self.from_file else each[0])
        return Planned(PlanKind.ASSIGN, parameters, changes, operations=operations)

    def _placements(self, brokers: int) -> Iterator[Row]:
        """Settle what the algorithm needs; where the first topic begins comes from its name unless given."""
        topics = self._by_rule
        sizes = [topic.partitions or 0 for topic in topics]
        seed = int.from_bytes(hashlib.sha256(topics[0].name.encode()).digest()[:8]) if topics else 0
        start = seed % brokers if self.start_index is None else self.start_index
        seeded = (seed >> 32) % brokers
        kafkas = seeded if self.start_index is None else self.start_index  # Kafka's fixed start is the first shift too
        shift = kafkas if self.shift is None else self.shift
        for topic, before in zip(topics, accumulate(sizes, initial=0), strict=False):
            yield {
                "topic": topic.name,
                "first_partition": 0,
                "partitions": topic.partitions,
                "replication_factor": topic.replication_factor,
                "start_index": (start + before) % brokers if before else start,
                "shift": shift + before // brokers,
            }


def _by_hand(topic: NewTopic) -> Row:
    return {"topic": topic.name, "first_partition": 0, "replica_assignment": topic.by_hand}


def _told(at: SnapshotTables, topic_id: str | None, config: dict[str, str]) -> Row:
    return {"topic_id": topic_id, "config": config, **config_notes(at, config)}


def _said(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "first_partition"}


def _known(at: SnapshotTables, ids: dict[str, str | None]) -> DataFrame:
    return at.tables.spark.createDataFrame(list(ids.items()), "topic string, topic_id string")


def new_topic_id(snapshot: Row, topic: str) -> str:
    """Make a topic id as Kafka writes them, the same for the same snapshot: 22 characters of base64url.

    Ids that begin with a dash are passed over, as Kafka does for the sake of command lines.
    """
    for attempt in range(1000):
        seed = json.dumps([snapshot["cluster_id"], snapshot["zxid_after"], snapshot["snapshot_id"], topic, attempt])
        text = base64.urlsafe_b64encode(hashlib.sha256(seed.encode()).digest()[:16]).decode().rstrip("=")
        if not text.startswith("-"):
            return text
    raise AssertionError("a thousand hashes in a row begin with a dash")
