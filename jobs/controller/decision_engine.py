"""Decides what is due by the controller's context, with Kafka's rules for one partition (`planner.rules`)."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from jobs.adapters.delta.warehouse import Warehouse
from jobs.controller.controller_context import ControllerContext
from jobs.repositories.drained_brokers import has_registered_again
from planner.broker_requests import notices_for_deletion
from planner.rules.decisions import Decision
from planner.rules.inputs import NO_BROKERS, BrokerSets, ControllerConfig
from planner.rules.partition_cycle import CycleState
from planner.rules.topic_deletion import Deletion, DeletionStep, deletion_step, replica_states, replicas_to_delete
from schemas.enums import LEADER_DURING_DELETE, NO_LEADER, Action, DrainMode, RequestKind
from schemas.notices import Notice
from schemas.rows import BrokerConfig, Change, DrainedBroker, Key


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions of one cycle."""

    changes: Sequence[Change] = ()
    others: Sequence[Decision] = ()
    """Decisions that name why something is not done."""
    withdrawn: Sequence[Decision] = ()
    """Decisions after which the request for them is withdrawn."""
    deletions: Sequence[Deletion] = ()
    deletion_batches: Sequence[Sequence[Notice]] = ()
    """Notices for topics that are being deleted; each list must be sent after the one before."""

    @classmethod
    def of(
        cls,
        decided: Sequence[Decision],
        deletions: Sequence[Deletion] = (),
        deletion_batches: Sequence[Sequence[Notice]] = (),
    ) -> "Decisions":
        """Sort the decisions on partitions."""
        return cls(
            [decision.change for decision in decided if decision.change is not None],
            [decision for decision in decided if decision.code is not None],
            [decision for decision in decided if decision.withdrawn],
            deletions,
            deletion_batches,
        )


@dataclass(slots=True)
class DecisionEngine:
    """Decides by the broker settings that were read last."""

    warehouse: Warehouse
    broker_configs: list[BrokerConfig]
    allow_unclean: bool = False
    drained: list[DrainedBroker] = field(default_factory=list)
    _config: ControllerConfig = field(default_factory=ControllerConfig)

    def __post_init__(self) -> None:
        self.set_broker_configs(self.broker_configs)

    def set_broker_configs(self, broker_configs: list[BrokerConfig]) -> None:
        """Use other broker settings from now on."""
        self.broker_configs = broker_configs
        self._config = ControllerConfig.of(broker_configs, allow_unclean=self.allow_unclean)

    def refresh_drained(self) -> None:
        """Read which brokers are drained."""
        self.drained = self.warehouse.typed_rows(DrainedBroker) if self.warehouse.has("drained") else []

    def end_drains(self, registered: Mapping[int, int]) -> list[DrainedBroker]:
        """Remove and return the resident drains whose brokers have registered again."""
        ended = [row for row in self.drained if has_registered_again(row, registered)]
        self.drained = [row for row in self.drained if row not in ended]
        return ended

    def decide(
        self,
        context: ControllerContext,
        keys: Collection[Key],
        *,
        deletions: bool,
        balance: Collection[Key] = (),
        assumed_dead: Collection[int] = (),
        resuming: Collection[Key] = frozenset(),
    ) -> Decisions:
        """Decide on these partitions and on the requests.

        `deletions`: decide on topics that are queued for deletion, too. `balance`: partitions that should be led by
        their preferred replica if possible, although no request names them. `assumed_dead`: brokers that count as
        failed, although they are registered. `resuming`: partitions whose reassignment resumes after a take-over.
        """
        requested = context.requested(RequestKind.PREFERRED_ELECTION)
        elections = frozenset((*requested, *balance))
        state = self._state(context, elections, assumed_dead, resuming)
        decided = [
            decision
            for decision in state.decisions(sorted(keys))
            if not (_is_idle_balance(decision) and decision.key not in requested)
        ]
        queued = sorted(context.topics_to_be_deleted) if deletions else ()
        elected_topics = {topic for topic, _ in requested}
        steps = [_deletion(context, state, topic, is_elected=topic in elected_topics) for topic in queued]
        batches = [[*_deletion_notices(context, state, steps, delete=delete)] for delete in (False, True)]
        return Decisions.of(decided, steps, batches)

    def shut_down(self, context: ControllerContext, keys: Collection[Key], brokers: frozenset[int]) -> Decisions:
        """Decide on these partitions as these brokers shut down.

        A replica that is neither the leader nor in sync needs no change, and a partition with one replica gets none
        (`KafkaController.doControlledShutdown`).
        """
        state = self._state(context, frozenset(), (), ())
        rows = (context.partitions[key] for key in sorted(keys) if key in context.partitions)
        decided = [
            decision
            for row in rows
            if len(row.replicas) > 1
            and not brokers.isdisjoint([row.leader, *(row.isr or ())])
            and (decision := state.controlled_shutdown(row, brokers)) is not None
        ]
        return Decisions.of(decided)

    def _state(
        self,
        context: ControllerContext,
        elections: frozenset[Key],
        assumed_dead: Collection[int],
        resuming: Collection[Key],
    ) -> CycleState:
        unknown = context.not_understood
        understood = {
            b: row.understood and b not in unknown for b, row in context.brokers.items() if b not in assumed_dead
        }
        modes = {row.broker_id: DrainMode(row.mode) for row in self.drained}
        modes |= dict.fromkeys(context.shutting_down, DrainMode.RESIDENT)
        return CycleState(
            partitions=context.partitions,
            topics=context.topics,
            brokers=BrokerSets.of(understood, modes),
            config=self._config,
            failed=context.failed,
            stopped=context.stopped,
            reassignments=context.requested(RequestKind.REASSIGN),
            elections=elections,
            resuming=resuming,
        )


def _is_idle_balance(decision: Decision) -> bool:
    """Return whether a decision only says that a partition is not given back to its preferred replica."""
    return decision.change is None and decision.wanted is Action.ELECT_PREFERRED


def _deletion(context: ControllerContext, state: CycleState, topic: str, *, is_elected: bool) -> Deletion:
    keys = context.of_topic(topic)
    return deletion_step(
        topic,
        state.topics.get(topic),
        [context.partitions[key] for key in keys],
        state.brokers,
        state.config,
        is_elected=is_elected,
        confirmed=_confirmed(context, topic),
        failed={partition: context.failed.get((topic, partition), NO_BROKERS) for _, partition in keys},
    )


def _deletion_notices(
    context: ControllerContext, state: CycleState, steps: Sequence[Deletion], *, delete: bool
) -> Iterator[Notice]:
    for step in steps:
        if step.step is DeletionStep.DELETE:
            rows = [context.partitions[key] for key in context.of_topic(step.topic)]
            replicas = replicas_to_delete(replica_states(rows, state.brokers, _confirmed(context, step.topic)))
            yield from notices_for_deletion(step.topic, step.topic_id, replicas, state.brokers.eligible, delete=delete)


def _confirmed(context: ControllerContext, topic: str) -> dict[int, set[int]]:
    """Return by partition the brokers that have confirmed the deletion of their replica."""
    confirmed = defaultdict[int, set[int]](set)
    for _, partition in context.of_topic(topic):
        for broker, epoch in context.stopped.get((topic, partition), {}).items():
            if epoch == LEADER_DURING_DELETE:
                confirmed[partition].add(broker)
    return confirmed


def restrict_to_in_sync(change: Change, assumed_dead: Collection[int]) -> Change:
    """Adapt a change that was decided as if bounced brokers had failed.

    Corresponds to `KafkaController.processBrokerChange`, where a bounced broker fails and starts. Its unflushed records
    may be lost, so it must not continue to lead at the leader epoch at which other replicas have them. No replica
    outside of the ISR is elected in its place, because the broker is about to be back and then leads at a later epoch.
    """
    change = replace(change, requires_dead=[broker for broker in change.requires_dead if broker not in assumed_dead])
    in_sync = {*(change.isr_before or ())}
    if change.action != Action.ELECT or {*(change.isr_after or ())} <= in_sync or in_sync.isdisjoint(assumed_dead):
        return change
    return replace(
        change,
        action=Action.TAKE_OFFLINE.value,
        leader_after=NO_LEADER,
        isr_after=change.isr_before,
        leader_recovery_state_after=change.leader_recovery_state_before,
        requires_live=[],
        reason="its leader has restarted, and no other replica is in sync",
    )


def released_replicas(change: Change) -> Collection[int]:
    """Return the brokers that no longer hold a replica of the partition after a change."""
    return change.removing_before or () if change.action == Action.END_REASSIGNMENT else ()
