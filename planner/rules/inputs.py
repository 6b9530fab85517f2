"""Inputs of the rules other than a partition and its topic: the broker sets and the controller's configs.

Corresponds to `liveOrShuttingDownBrokerIds` and `replicasOnOfflineDirs` of `ControllerContext`.
"""

import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from schemas.broker_config_names import PROTOCOL_VERSION, RECOVERY_STATE_SINCE
from schemas.enums import RECOVERING, DrainMode
from schemas.partition_info import PartitionInfo, TopicInfo
from schemas.reasons import DRAINED_BROKER_LEADS, FAILED_LOG_DIRS
from schemas.rows import BrokerConfig, BrokerResponseRow
from schemas.topic_configs import DELETION_ENABLED, UNCLEAN_ELECTION, boolean

NO_BROKERS: Final[frozenset[int]] = frozenset()

_RELEASE: Final = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class BrokerSets:
    """Sets of broker ids; `planner.columns.broker_sets` has the same as columns.

    `live`: registered, understood or not. `eligible`: registered and understood. `drained`: chosen as leader last.
    `electable`: eligible and not drained. `informed`: eligible, and receives LeaderAndIsr of every change. (A broker
    whose replicas a drain stopped receives it only if it is in sync.) `failed`: log dir of the partition failed.
    """

    live: frozenset[int]
    eligible: frozenset[int]
    electable: frozenset[int]
    drained: frozenset[int]
    informed: frozenset[int]
    failed: Sequence[int] = ()
    """Ascending."""

    @classmethod
    def of(cls, understood: Mapping[int, bool], drained: Mapping[int, DrainMode]) -> Self:
        """Make the sets from the registered brokers, and from the drain modes of those that are drained."""
        live = frozenset(understood)
        eligible = frozenset(broker for broker, is_understood in understood.items() if is_understood)
        stopped = {broker for broker, mode in drained.items() if mode is DrainMode.RESIDENT}
        return cls(live, eligible, eligible - drained.keys(), live & drained.keys(), eligible - stopped)

    def with_failed(self, failed: Collection[int]) -> "BrokerSets":
        """Return the sets for a partition whose log dir failed on these brokers: there they do not count as live."""
        if not failed:
            return self
        gone = frozenset(failed)
        return BrokerSets(
            self.live - gone, self.eligible, self.electable - gone, self.drained, self.informed, sorted(gone)
        )

    def first_choice(self, candidates: Sequence[int]) -> int | None:
        """Return the first of `candidates` that may lead: a drained broker only if no other can, None if none can."""
        for broker in candidates:
            if broker in self.electable:
                return broker
        for broker in candidates:
            if broker in self.eligible and broker in self.live:
                return broker
        return None

    def recipients(self, replicas: Iterable[int], isr: Container[int]) -> list[int]:
        """Return the replicas that receive LeaderAndIsr.

        A replica that a drain has stopped receives it only if it is in this ISR: then it either leads or was never
        stopped, and the leader epoch of the change is later than the one at which it stopped.
        """
        return [b for b in replicas if b in self.informed or (b in self.eligible and b in isr)]

    def drained_leads(self, leader: int | None) -> str:
        """Return the part of a reason that names the leader if it is drained, else an empty string."""
        return DRAINED_BROKER_LEADS.render(leader=leader) if leader in self.drained else ""

    @property
    def failed_suffix(self) -> str:
        """The part of a reason that names the brokers with a failed log dir, else an empty string."""
        return FAILED_LOG_DIRS.render(failed=self.failed) if self.failed else ""


def failed_log_dirs(row: PartitionInfo, responses: Iterable[BrokerResponseRow]) -> list[int]:
    """Return the brokers on which a partition's log dir failed, as `planner.columns.broker_sets.with_failed` does.

    `responses` are those to LeaderAndIsr of this partition with error 56 (KAFKA_STORAGE_ERROR).

    >>> row = PartitionInfo(topic="t", partition=0, replicas=[1, 2, 3], adding_replicas=[], removing_replicas=[],
    ...     topic_version=0, understood=True, leader=1, leader_epoch=5)
    >>> at = [(1, 4), (1, 5), (2, 4), (3, 6)]  # elected since, failed, failed, of an earlier topic
    >>> failed_log_dirs(row, [BrokerResponseRow(broker_id=n, api="LeaderAndIsr", leader_epoch=e) for n, e in at])
    [1, 2]
    """
    epoch = row.leader_epoch
    sources = ((response.broker_id, response.leader_epoch) for response in responses)
    return [
        broker
        for broker, sent in sources
        if epoch is not None and sent is not None and (sent == epoch or (sent < epoch and broker != row.leader))
    ]


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Broker configs that the controller's rules depend on."""

    unclean_election: bool = False
    """Whether unclean elections are allowed if the topic does not set it: only if every broker is known to allow them.
    """
    unclean_state: int | None = RECOVERING
    """The recovery state after an unclean election; None if a broker is known to use a protocol without it."""
    deletion_enabled: bool = True
    allow_unclean: bool = False
    """Whether the operator allows unclean elections for all partitions."""

    @classmethod
    def of(cls, configs: Iterable[BrokerConfig], *, allow_unclean: bool = False) -> Self:
        """Derive the config of the controller from the brokers' configs."""
        unclean, releases, deletion_enabled = list[bool](), list[tuple[int, int]](), True
        for config in configs:
            if config.name == UNCLEAN_ELECTION:
                unclean.append(bool(boolean(config.value)) and config.assumed is False)
            elif config.name == PROTOCOL_VERSION and not config.assumed:
                release = _RELEASE.match(config.value or "")
                releases += [(int(release[1]), int(release[2]))] if release else []
            elif config.name == DELETION_ENABLED and boolean(config.value) is False:
                deletion_enabled = False
        is_recovering = min(releases, default=RECOVERY_STATE_SINCE) >= RECOVERY_STATE_SINCE
        return cls(
            bool(unclean) and all(unclean), RECOVERING if is_recovering else None, deletion_enabled, allow_unclean
        )

    def allows_unclean(self, topic: TopicInfo | None) -> bool:
        """Return whether a partition of the topic may get a leader that was not in sync."""
        if self.allow_unclean:
            return True
        if topic is None or topic.config is None:
            return False
        if UNCLEAN_ELECTION in topic.config:
            return bool(boolean(topic.config[UNCLEAN_ELECTION]))
        return self.unclean_election


def has_live_leader(leader: int | None, isr: Collection[int] | None, live: Container[int]) -> bool:
    """Return whether a partition is led by a live broker in its ISR, so that followers can copy from it."""
    return leader in live and leader in (isr or ())


def among(brokers: Iterable[int], others: Container[int]) -> list[int]:
    """Return the brokers that are among the others, in order."""
    return [broker for broker in brokers if broker in others]


def union(brokers: Iterable[int], others: Iterable[int]) -> list[int]:
    """Return the brokers and then the others, each once."""
    return list(dict.fromkeys([*brokers, *others]))
