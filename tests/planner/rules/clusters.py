"""Clusters for the rules, random ones too: the same as tables for Spark, and as objects for plain Python."""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

import msgspec
from pyspark.sql import SparkSession

from planner.columns.broker_sets import FAILED_COLUMN, with_drained
from planner.reconciliation.cycle import Cycle, CycleInput
from planner.rules.inputs import BrokerSets, ControllerConfig
from planner.rules.partition_cycle import CycleState
from schemas.enums import LEADER_DURING_DELETE, NO_LEADER, DrainMode, RequestKind
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.rows import BrokerConfig, Key, Row
from schemas.tables import ANSWERS, BROKER_CONFIGS, BROKERS, DRAINED, REQUESTS, TOPICS
from tests.planner.frames import WITH_FAILED, broker_row, config_row, frame, partition_row, topic_row

BROKERS_AT_MOST: Final = 7
CONFIGS: Final = {
    "unclean.leader.election.enable": ("true", "true", " TRUE ", "false", None),
    "inter.broker.protocol.version": ("3.9-IV0", "3.2", "2.6", "many"),
    "delete.topic.enable": ("true", "true", "true", "false"),
    "min.insync.replicas": ("1", "1", "2", " 2 ", "many"),
}
UNCLEAN_OF_TOPIC: Final = (None, "true", " True\t", "false", "yes")
MIN_ISR_OF_TOPIC: Final = (None, None, "1", "2", " 2", "3", "many", "")


@dataclass
class RuleCluster:
    """A cluster, the requests for it, and what brokers have confirmed."""

    brokers: dict[int, bool]
    """Registered brokers, and whether they are understood."""
    topics: list[Row]
    partitions: list[Row]
    configs: list[Row] = field(default_factory=list)
    drained: dict[int, DrainMode] = field(default_factory=dict)
    requests: list[Row] = field(default_factory=list)
    stopped: list[Row] = field(default_factory=list)
    allow_unclean: bool = False
    is_resident: bool = True

    def tables(self, spark: SparkSession) -> Cycle:
        """Return the cycle of Spark's rules."""
        rows = [broker_row(broker, understood=understood) for broker, understood in self.brokers.items()]
        marks = [{"broker_id": broker, "mode": mode.value} for broker, mode in self.drained.items()]
        return Cycle(
            CycleInput(
                partitions=frame(spark, self.partitions, WITH_FAILED),
                topics=frame(spark, self.topics, TOPICS),
                brokers=with_drained(frame(spark, rows, BROKERS), frame(spark, marks, DRAINED)),
                broker_configs=frame(spark, self.configs, BROKER_CONFIGS),
                requests=frame(spark, self.requests, REQUESTS),
                stopped=frame(spark, self.stopped, ANSWERS),
                is_resident=self.is_resident,
                allow_unclean=self.allow_unclean,
            )
        )

    @property
    def sets(self) -> BrokerSets:
        return BrokerSets.of(self.brokers, self.drained)

    @property
    def config(self) -> ControllerConfig:
        configs = (BrokerConfig(**row) for row in self.configs)
        return ControllerConfig.of(configs, allow_unclean=self.allow_unclean)

    def state(self) -> CycleState:
        """Return the input of the rules in plain Python."""
        infos = {(row["topic"], row["partition"]): msgspec.convert(row, PartitionInfo) for row in self.partitions}
        stopped = defaultdict[Key, dict[int, int]](dict)
        for row in self.stopped:
            stopped[row["topic"], row["partition"]][row["broker_id"]] = row["leader_epoch"]
        by_kind = defaultdict[str, list[Row]](list)
        for row in self.requests:
            by_kind[row["kind"]].append(row)
        return CycleState(
            partitions=infos,
            topics={row["topic"]: msgspec.convert(row, TopicInfo) for row in self.topics},
            brokers=self.sets,
            config=self.config,
            failed={
                (row["topic"], row["partition"]): row[FAILED_COLUMN]
                for row in self.partitions
                if row.get(FAILED_COLUMN)
            },
            stopped=stopped,
            reassignments={(r["topic"], r["partition"]): r["replicas"] for r in by_kind[RequestKind.REASSIGN]},
            elections={(r["topic"], r["partition"]) for r in by_kind[RequestKind.PREFERRED_ELECTION]},
            is_resident=self.is_resident,
        )


class RandomCluster(RuleCluster):
    """A cluster with partitions of every kind, requests for them, and what brokers have confirmed."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = pick = chance
        self.allow_unclean, self.is_resident = pick.random() < 0.2, pick.random() < 0.7
        self.brokers = {b: pick.random() < 0.85 for b in range(BROKERS_AT_MOST) if pick.random() < 0.7}
        self.drained = {b: pick.choice([*DrainMode]) for b in range(BROKERS_AT_MOST) if pick.random() < 0.2}
        self.configs = [
            config_row(broker, name, pick.choice(values), assumed=pick.choice((False, False, False, True, None)))
            for broker in range(pick.choice((0, 1, 2, 3, BROKERS_AT_MOST)))
            for name, values in CONFIGS.items()
            if pick.random() < 0.8
        ]
        self.topics = [self._topic(f"t{number}") for number in range(12)]
        names = [*(topic["topic"] for topic in self.topics), "unlisted"]
        self.partitions = [self._partition(pick.choice(names), number) for number in range(pick.randint(20, 60))]
        self.requests = self._requests()
        self.stopped = [row for partition in self.partitions for row in self._stopped(partition)]

    def _some(self, brokers: list[int], *, chance: float = 0.5) -> list[int]:
        chosen = [broker for broker in brokers if self.chance.random() < chance]
        self.chance.shuffle(chosen)
        return chosen

    def _topic(self, name: str) -> Row:
        pick = self.chance
        unclean = pick.choice(UNCLEAN_OF_TOPIC)
        config: dict[str, str | None] = {} if unclean is None else {"unclean.leader.election.enable": unclean}
        min_isr = pick.choice(MIN_ISR_OF_TOPIC)
        if min_isr is not None:
            config["min.insync.replicas"] = min_isr or None
        understood = pick.random() < 0.85
        return topic_row(
            name,
            topic_id=pick.choice((None, "A" * 22)),
            config=None if pick.random() < 0.1 else config,
            deletion_requested=pick.random() < 0.2,
            understood=understood,
            assignment_understood=understood or pick.random() < 0.5,
        )

    def _partition(self, topic: str, number: int) -> Row:
        pick = self.chance
        replicas = pick.sample(range(BROKERS_AT_MOST), pick.randint(1, 5))
        columns: Row = {"topic": topic, "partition": number, "understood": pick.random() < 0.9}
        if pick.random() < 0.4:
            columns["adding_replicas"] = self._some(replicas, chance=0.3)
            columns["removing_replicas"] = self._some(
                [replica for replica in replicas if replica not in columns["adding_replicas"]], chance=0.4
            )
        columns[FAILED_COLUMN] = sorted(self._some([*self.brokers], chance=0.1))
        leader = pick.choice([None, NO_LEADER, *replicas * 2, pick.randrange(BROKERS_AT_MOST)])
        if leader is None:
            return partition_row(replicas, None, None, **columns)
        outside = [b for b in range(BROKERS_AT_MOST) if b not in replicas and pick.random() < 0.05]
        isr = self._some(replicas, chance=0.8) + outside
        if pick.random() < 0.8 and leader != NO_LEADER and leader not in isr:
            isr.append(leader)
        numbers = {name: pick.randint(0, 9) for name in ("leader_epoch", "controller_epoch", "state_version")}
        return partition_row(
            replicas, leader, isr, **columns, **numbers, leader_recovery_state=pick.randint(0, 1), topic_version=3
        )

    def _requests(self) -> list[Row]:
        pick, rows = self.chance, list[Row]()
        keys = [(row["topic"], row["partition"]) for row in self.partitions] + [("t0", 900), ("none", 0), ("t1", 901)]
        for topic, partition in keys:
            if pick.random() < 0.35:
                rows.append(request_row(RequestKind.REASSIGN, topic, partition, self._target(topic, partition)))
            if pick.random() < 0.2:
                rows.append(request_row(RequestKind.PREFERRED_ELECTION, topic, partition, None))
        queued = [row["topic"] for row in self.topics if row["deletion_requested"]]
        return rows + [request_row(RequestKind.DELETE_TOPIC, topic, None, None) for topic in [*queued, "none"]]

    def _target(self, topic: str, partition: int) -> list[int]:
        pick = self.chance
        row = next((r for r in self.partitions if (r["topic"], r["partition"]) == (topic, partition)), None)
        if row is not None and pick.random() < 0.3:
            return [b for b in row["replicas"] if b not in row["removing_replicas"]]
        target = pick.sample(range(BROKERS_AT_MOST), pick.randint(1, 4))
        return pick.choice((target, target, target, target, [], [*target, target[0]], [-1, *target]))

    def _stopped(self, row: Row) -> list[Row]:
        epochs = (row.get("leader_epoch"), row.get("leader_epoch"), 100, LEADER_DURING_DELETE, LEADER_DURING_DELETE)
        return [
            {"topic": row["topic"], "partition": row["partition"], "broker_id": broker, "leader_epoch": epoch}
            for broker in row["replicas"]
            if self.chance.random() < 0.4 and (epoch := self.chance.choice(epochs)) is not None
        ]


def request_row(kind: RequestKind, topic: str, partition: int | None, replicas: list[int] | None = None) -> Row:
    columns = {"topic": topic, "partition": partition, "replicas": replicas, "path": "/admin"}
    return {"cluster": "test", "kind": kind.value, **columns}
